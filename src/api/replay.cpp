// replay.cpp: a plan, which is text, becomes a scenario and faults of the simulated device; what happened
// becomes JSON.
#include <heddle/heddle.h>

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "api/internals.h"
#include "api/scenarios.h"
#include "base/trace.h"
#include "drivers/host/host_device.h"

namespace heddle {
namespace {

struct ReplayPlan {
  const scenarios::Scenario* scenario = &scenarios::all().front();
  std::vector<sim::PlannedFault> faults;
};

std::string names_of(std::span<const scenarios::Scenario> range) {
  std::string out;
  for (const auto& each : range) out += text(out.empty() ? "" : ", ", each.name);
  return out;
}

const scenarios::Scenario& scenario_named(const std::string& name) {
  for (const scenarios::Scenario& each : scenarios::all()) {
    if (each.name == name) return each;
  }
  throw_status(Status::invalid("there is no scenario '", name, "'; there are ", names_of(scenarios::all())));
}

// Lines "scenario NAME" and "fault NAME NTH"; what follows a # is for people.
ReplayPlan parse(std::string_view plan) {
  if (const size_t at = plan.find('\0'); at != std::string_view::npos)
    throw_status(Status::invalid("a plan is text, and byte ", at + 1, " of this one is 0"));
  ReplayPlan parsed;
  std::istringstream lines{std::string(plan)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string what, name, nth, more;
    words >> what >> name >> nth >> more;
    if (what.empty()) continue;
    if (what == "scenario" && nth.empty()) {
      parsed.scenario = &scenario_named(name);
    } else if (what == "fault" && more.empty()) {
      parsed.faults.push_back(take(sim::parse_fault(name, nth)));
    } else {
      throw_status(Status::invalid("'", line,
                                   "' is no line of a plan; those are 'scenario NAME' and 'fault NAME NTH'"));
    }
  }
  return parsed;
}

// An object or a list of JSON, piece by piece.
class Json {
 public:
  void open(char bracket) {
    out_ += bracket;
    first_ = true;
  }
  void close(char bracket) {
    out_ += bracket;
    first_ = false;
  }
  void next() {
    if (!std::exchange(first_, false)) out_ += ", ";
  }
  void key(const char* name) {
    next();
    trace::append_quoted(out_, name);
    out_ += ": ";
  }
  void field(const char* name, std::string_view value) {
    key(name);
    trace::append_quoted(out_, std::string(value));
  }
  void field(const char* name, uint64_t value) {
    key(name);
    out_ += std::to_string(value);
  }
  void flag(const char* name, bool value) {
    key(name);
    out_ += value ? "true" : "false";
  }
  std::string take() { return std::move(out_); }

 private:
  std::string out_;
  bool first_ = true;
};

void add_plan(Json& json, uint64_t seed, const ReplayPlan& plan) {
  json.field("seed", seed);
  json.field("scenario", plan.scenario->name);
  json.field("meaning", plan.scenario->meaning);
  json.key("faults");
  json.open('[');
  for (const sim::PlannedFault& each : plan.faults) {
    json.next();
    json.open('{');
    json.field("fault", sim::line_of(each.fault).word);
    json.field("nth", static_cast<uint64_t>(each.nth));
    json.flag("lasting", each.lasting);
    json.close('}');
  }
  json.close(']');
}

void add_history(Json& json, const std::vector<sim::Happened>& history) {
  json.key("events");
  json.open('[');
  for (const sim::Happened& each : history) {
    json.next();
    json.open('{');
    json.field("at_ns", each.at);
    json.field("event", sim::name(each.what));
    json.field("queue", each.queue);
    json.field("submission", each.value);
    json.field("detail", each.detail);
    json.close('}');
  }
  json.close(']');
}

void add_outcome(Json& json, const scenarios::Outcome& outcome, const std::vector<sim::Found>& violations) {
  json.field("operations", static_cast<uint64_t>(outcome.operations));
  json.field("values_checked", static_cast<uint64_t>(outcome.values_checked));
  json.field("values_right", static_cast<uint64_t>(outcome.values_right));
  json.field("violation", violations.empty() ? "" : sim::to_string(violations.front()));
  json.field("error", outcome.status.ok() ? "" : name(outcome.status.code()));
  json.field("message", outcome.status.message());
}

}  // namespace

std::string replay(uint64_t seed, std::string_view text_of_plan) {
  const ReplayPlan plan = parse(text_of_plan);
  sim::SimOptions options;
  options.name = "replay";
  options.memory_bytes = uint64_t{1} << 30;  // on any machine
  options.seed = seed;
  options.queue_depth = runtime::Governor::kMaxLimit;  // the device is held while all is handed in
  options.keeps_history = true;
  const Ref<sim::SimDevice> device =
      take(sim::make_sim_device(take(host::make_host_device({.threads = 1})), options));
  for (const sim::PlannedFault& each : plan.faults) each.arm(device->faults());
  const scenarios::Outcome outcome = scenarios::play(*plan.scenario, device, seed);
  Json json;
  json.open('{');
  add_plan(json, seed, plan);
  add_history(json, outcome.history);
  add_outcome(json, outcome, device->violations());
  json.close('}');
  return json.take();
}

}  // namespace heddle
