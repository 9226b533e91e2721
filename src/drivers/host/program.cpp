#include "drivers/host/program.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>
#include <sstream>

#include "base/first_uses.h"
#include "base/no_memory.h"
#include "base/trace.h"
#include "drivers/host/layout/channel_layout.h"
#include "drivers/host/lowering.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/omp_scope.h"
#include "ir/op.h"
#include "plan/cost.h"
#include "plan/memory_plan.h"

namespace heddle::host {
namespace {

std::vector<Operand> pick(const Storage& storage, const std::vector<ir::ValueId>& ids) {
  std::vector<Operand> out;
  for (ir::ValueId id : ids) out.push_back(id == ir::kNoValue ? Operand() : storage.operands[id]);
  return out;
}

// Of a run's operands; a few need no memory of the heap.
template <class T>
class Addresses {
 public:
  explicit Addresses(std::span<const device::View> views) {
    if (views.size() > few_.size()) many_.resize(views.size());
    for (size_t i = 0; i < views.size(); ++i) data()[i] = reinterpret_cast<T>(views[i].address());
  }
  T* data() { return many_.empty() ? few_.data() : many_.data(); }

 private:
  std::array<T, 8> few_;
  std::vector<T> many_;
};

bool is_brief(const ir::Graph& graph) {
  constexpr double kFlops = 10'000, kBytes = 32 * 1024;
  plan::Cost sum;
  for (const ir::Node& node : graph.nodes) {
    const std::optional<plan::Cost> cost = plan::cost(graph, node);
    if (!cost.has_value()) return false;
    sum.flops += cost->flops;
    sum.bytes += cost->bytes;
  }
  return sum.flops <= kFlops && sum.bytes <= kBytes;
}

Result<std::unique_ptr<Step>> lower_in_layout(Lower lower, Lowering& lowering) {
  if (!follows_channels_last(lowering)) return lower(lowering);
  Follower follower = in_order_of_bytes(lowering);
  Lowering inner{lowering.graph,
                 follower.node,
                 std::move(follower.inputs),
                 std::move(follower.outputs),
                 lowering.weights,
                 lowering.width,
                 true};
  inner.bytes_left = lowering.bytes_left;
  return lower(inner);
}

StorageRules rules_of(const Engine& engine) {
  return {engine.bf16, !engine.bf16 && engine.row_bits == nullptr, Engine::multiplies_bf16()};
}

// How a step is computed, and how it is divided.
std::string described(const Step& step) {
  std::string all;
  for (const std::string& words : {step.path(), step.way(), step.sharing().words}) {
    if (!words.empty()) all += (all.empty() ? "" : "; ") + words;
  }
  return all;
}

// Without the words that are numbers: "oneDNN sgemm in 12 pieces" as "oneDNN sgemm in pieces".
std::string without_counts(const std::string& path) {
  std::istringstream words(path);
  std::string all;
  for (std::string word; words >> word;) {
    if (word.find_first_not_of("0123456789") != std::string::npos) all += (all.empty() ? "" : " ") + word;
  }
  return all;
}

}  // namespace

Result<Ref<const device::Program>> HostProgram::make(const ir::Graph& graph, WeightStore& weights, int width,
                                                     const Limits& limits) {
  auto program = std::make_shared<HostProgram>();
  HEDDLE_TRY(program->prepare_storage(graph, weights));
  const uint64_t arena = program->storage_.arena_bytes;
  HEDDLE_TRY(plan::check_memory(graph, arena, limits.weight_bytes, limits.bytes_max));
  const uint64_t left = limits.bytes_max - limits.weight_bytes - arena;
  HEDDLE_TRY(program->prepare_steps(graph, weights, width, left, true));
  program->brief_ = is_brief(graph);
  program->note_first("made ");
  return Ref<const device::Program>(std::move(program));
}

Result<Ref<HostProgram>> HostProgram::prepare(const ir::Graph& graph, WeightStore& weights, int width,
                                              uint64_t bytes_max, bool outermost) {
  auto program = std::make_shared<HostProgram>();
  HEDDLE_TRY(program->prepare_storage(graph, weights));
  const uint64_t arena = program->storage_.arena_bytes;
  if (arena > bytes_max) {
    return Status::exhausted("a run needs ", arena, " bytes between nodes; the memory limit leaves ",
                             bytes_max);
  }
  HEDDLE_TRY(program->prepare_steps(graph, weights, width, bytes_max - arena, outermost));
  return program;
}

Status HostProgram::prepare_storage(const ir::Graph& graph, const WeightStore& weights) {
  HEDDLE_TRY_ASSIGN(storage_, assign_storage(graph, rules_of(weights.engine())));
  take_operands(graph);
  for (const ir::Value& value : graph.values) {
    if (value.is_constant()) constants_.push_back(*value.constant);
  }
  return {};
}

Status HostProgram::prepare_steps(const ir::Graph& graph, WeightStore& weights, int width,
                                  uint64_t bytes_left, bool outermost) {
  uint64_t scratch = 0;
  resident_bytes_ = 4096;
  for (const ir::Node& node : graph.nodes) {
    if (falls_away(node, storage_)) continue;
    const Lower lower = find_lowering(node.op->name);
    if (lower == nullptr)
      return Status::unsupported(node.describe(), ": the host driver has no lowering for it");
    Lowering lowering{graph, node, pick(storage_, node.inputs), pick(storage_, node.outputs), weights, width};
    lowering.outermost = outermost;
    lowering.bytes_left = bytes_left;
    Result<std::unique_ptr<Step>> step = lower_in_layout(lower, lowering);
    if (!step.ok()) return step.status().with_context(node.describe());
    (*step)->set_scratch(storage_.arena_bytes);
    scratch = std::max(scratch, (*step)->scratch_bytes());
    if (Status fits = lowering.has_room_for(scratch, "scratch memory"); !fits.ok())
      return fits.with_context(node.describe());
    resident_bytes_ += (*step)->resident_bytes();
    steps_.push_back({node.op->name.data(), std::move(*step)});
  }
  keeps_to_a_core_ =
      std::ranges::all_of(steps_, [](const Named& each) { return each.step->sharing().pieces <= 1; });
  if (outermost) note_sharing(graph);
  arena_bytes_ = storage_.arena_bytes + scratch;
  storage_.operands = {};
  storage_.root = {};
  return {};
}

void HostProgram::note_sharing(const ir::Graph& graph) {
  const std::vector<ir::ValueId>& root = storage_.root;
  std::vector<int> last_read(graph.values.size(), kNever), written(graph.values.size(), kNever);
  std::vector<const ir::Node*> made_by(graph.values.size(), nullptr);
  int step = 0;
  bool has_bodies = false;
  for (const ir::Node& node : graph.nodes) {
    has_bodies = has_bodies || node.is("If") || node.is("Loop");
    if (falls_away(node, storage_)) continue;
    for (const ir::ValueId id : node.inputs) {
      if (id != ir::kNoValue) last_read[root[id]] = step;
    }
    for (const ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue) continue;
      written[id] = step;
      made_by[id] = &node;
    }
    ++step;
  }
  std::vector<bool> is_copied(graph.outputs.size(), false);
  for (const auto& [from, to] : storage_.copies) {
    is_copied[to.offset] = true;
    last_read[root[graph.outputs[to.offset]]] = kAlways;
  }
  for (const ir::ValueId id : graph.inputs) last_reads_.push_back(has_bodies ? kAlways : last_read[id]);
  for (size_t output = 0; output < graph.outputs.size(); ++output) {
    const ir::ValueId id = root[graph.outputs[output]];
    writes_.push_back(is_copied[output] ? step : written[id]);
    if (is_copied[output]) continue;
    const Step& writer = *steps_[static_cast<size_t>(writes_.back())].step;
    const std::vector<ir::ValueId>& operands = made_by[id]->inputs;
    for (size_t input = 0; input < graph.inputs.size(); ++input) {
      if (last_reads_[input] != writes_.back()) continue;
      bool all = true;
      for (size_t i = 0; i < operands.size(); ++i) {
        const bool reads = operands[i] != ir::kNoValue && root[operands[i]] == graph.inputs[input];
        all = all && (!reads || writer.may_write_over(i));
      }
      if (all) replaced_.emplace_back(output, input);
    }
  }
}

bool HostProgram::may_share(size_t output, size_t input) const {
  if (last_reads_[input] < writes_[output]) return true;
  return std::ranges::find(replaced_, std::pair(output, input)) != replaced_.end();
}

Status HostProgram::run(const device::Run& run, Team& team) const {
  HEDDLE_TRY(check_operands(run));
  Addresses<const std::byte*> inputs(run.inputs);
  Addresses<std::byte*> outputs(run.outputs);
  auto* const arena = run.arena == nullptr ? nullptr : reinterpret_cast<std::byte*>(run.arena->address());
  const OmpScope team_of_one;
  const OnNode here(team.nodes());
  Team::Caller caller(team, brief_);
  // References compute in containers of their own.
  HEDDLE_TRY(or_exhausted("a run", [&] {
    return run_steps({arena, inputs.data(), outputs.data(), caller, run.row_faults.get()});
  }));
  if (!ran_.load_relaxed()) [[unlikely]]
    note_first("ran "), ran_.store_relaxed(true);
  return {};
}

Status HostProgram::run_steps(const RunContext& context) const {
  uint64_t number = 0;  // of the step, from 1: tells the spans of one operator apart
  for (const Named& named : steps_) {
    const trace::Span span("host", named.op, ++number);
    Status status = named.step->run(context);
    if (status.code() == Code::internal) [[unlikely]]
      return status.with_context(named.op);
    if (!status.ok()) [[unlikely]]
      return status;
  }
  for (const auto& [from, to] : storage_.copies) {
    const auto bytes = static_cast<size_t>(to.elements() * ir::size_of(to.dtype));
    if (bytes > 0) std::memcpy(context.write(to), context.read(from), bytes);
  }
  return {};
}

std::string HostProgram::path() const {
  std::set<std::string> paths;
  for (const Named& named : steps_) {
    if (std::string path = named.step->path(); !path.empty()) paths.insert(text(named.op, ": ", path));
  }
  std::string out = "{";
  for (const std::string& path : paths) out += text(out.size() > 1 ? "; " : "", path);
  return out + "}";
}

// How many pieces it is cut into makes no other kind of step.
void HostProgram::note_first(const char* what) const {
  std::set<std::string> kinds;
  for (const Named& named : steps_)
    kinds.insert(text(what, named.op, ' ', without_counts(named.step->path())));
  FirstUses::of_process().note(kinds);
}

HostModule::HostModule(plan::Prepared prepared, Ref<const Engine> engine, Ref<device::Source> source,
                       int width, Ref<const Nodes> nodes)
    : Module(std::move(prepared)),
      weights_(
          std::make_unique<WeightStore>(std::move(engine), graph(), std::move(source), std::move(nodes))),
      width_(width) {}

Result<Ref<const device::Program>> HostModule::lower(const ir::Graph& specialised, uint64_t bytes_max,
                                                     NoLocksHeld) const {
  // A primitive keeps the team that it was made for, whatever the setting is when it runs.
  const OmpScope team_of_one;
  return HostProgram::make(specialised, *weights_, width_, {weight_bytes(), bytes_max});
}

Result<plan::ProgramPlan> HostModule::describe(const ir::Graph& specialised, uint64_t bytes_max,
                                               NoLocksHeld none) const {
  HEDDLE_TRY_ASSIGN(const Ref<const device::Program> compiled, lower(specialised, bytes_max, none));
  HEDDLE_TRY_ASSIGN(const Storage storage, assign_storage(specialised, rules_of(weights_->engine())));
  const auto& program = static_cast<const HostProgram&>(*compiled);
  plan::ProgramPlan planned;
  planned.arena_bytes = storage.arena_bytes;
  planned.arena_bytes_apart = storage.arena_bytes_apart;
  planned.slot_bytes = program.arena_bytes();
  planned.weights = weights_->describe_copies();
  uint64_t steps = 0;
  for (const ir::Node& node : specialised.nodes) {
    plan::PlannedNode line{std::string(node.op->name), {}, {}, 0, {}, {}};
    for (ir::ValueId id : node.outputs) {
      if (id == ir::kNoValue) continue;
      if (line.outputs.empty()) line.name = specialised.values[id].name;
      line.outputs.push_back({storage.operands[id].dtype, storage.operands[id].extents});
    }
    if (!falls_away(node, storage)) {
      line.path = described(*program.steps()[steps].step);
      line.step = ++steps;
      line.cost = plan::cost(specialised, node);
    }
    planned.nodes.push_back(std::move(line));
  }
  return planned;
}

}  // namespace heddle::host
