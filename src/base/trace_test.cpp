#include "base/trace.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cctype>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "base/thread.h"
#include "base/yield.h"

namespace heddle {
namespace {

// Just enough JSON for the tests: a value is text, a list or a map; anything malformed clears `good`.
struct Json {
  std::string text;
  std::vector<Json> list;
  std::map<std::string, Json> map;
  const Json& at(const std::string& key) const {
    static const Json none;
    const auto found = map.find(key);
    return found == map.end() ? none : found->second;
  }
};

class Reader {
 public:
  explicit Reader(std::string_view in) : in_(in) {}
  Json all() {
    Json out = value();
    skip();
    good = good && at_ == in_.size();
    return out;
  }
  bool good = true;

 private:
  void skip() {
    while (at_ < in_.size() && std::isspace(static_cast<unsigned char>(in_[at_])) != 0) ++at_;
  }
  bool eat(char c) {
    skip();
    if (at_ >= in_.size() || in_[at_] != c) return false;
    ++at_;
    return true;
  }
  void need(char c) { good = eat(c) && good; }
  std::string quoted() {
    std::string out;
    need('"');
    while (good && at_ < in_.size() && in_[at_] != '"') {
      if (static_cast<unsigned char>(in_[at_]) < 0x20) good = false;
      if (in_[at_] == '\\') ++at_;
      if (at_ < in_.size()) out += in_[at_++];
    }
    need('"');
    return out;
  }
  Json value() {
    Json out;
    if (!good) return out;
    if (eat('{')) {
      if (eat('}')) return out;
      do {
        const std::string key = quoted();
        need(':');
        out.map[key] = value();
      } while (good && eat(','));
      need('}');
    } else if (eat('[')) {
      if (eat(']')) return out;
      do out.list.push_back(value());
      while (good && eat(','));
      need(']');
    } else if (at_ < in_.size() && in_[at_] == '"') {
      out.text = quoted();
    } else {
      while (at_ < in_.size() && (std::isalnum(static_cast<unsigned char>(in_[at_])) != 0 ||
                                  std::string_view("+-.").find(in_[at_]) != std::string_view::npos)) {
        out.text += in_[at_++];
      }
      good = good && !out.text.empty();
    }
    return out;
  }
  std::string_view in_;
  size_t at_ = 0;
};

std::vector<Json> events_of(const std::string& json, const std::string& phase) {
  Reader reader(json);
  const Json all = reader.all();
  INFO(json.substr(0, 2000));
  CHECK(reader.good);
  std::vector<Json> out;
  for (const Json& event : all.at("traceEvents").list) {
    if (event.at("ph").text == phase) out.push_back(event);
  }
  return out;
}

TEST_CASE("nothing is recorded while off") {
  {
    const trace::Span span("test", "off");
  }
  trace::start("");
  {
    const trace::Span span("test", "on");
  }
  CHECK(trace::on());
  CHECK(trace::stop().ok());
  CHECK(!trace::on());
  trace::instant("test", "off again");
  const auto spans = events_of(trace::take_json(), "X");
  REQUIRE(spans.size() == 1);
  CHECK(spans[0].at("name").text == "on");
}

TEST_CASE("a span that is open across the end of the recording is not recorded, nor in the next one") {
  trace::start("");
  {
    const trace::Span first("test", "first");
    CHECK(trace::stop().ok());
  }
  CHECK(events_of(trace::take_json(), "X").empty());
  trace::start("");
  {
    const trace::Span second("test", "second");
    CHECK(trace::stop().ok());
    trace::start("");
  }
  CHECK(trace::stop().ok());
  CHECK(events_of(trace::take_json(), "X").empty());
}

TEST_CASE("a span that is dropped leaves nothing") {
  trace::start("");
  {
    trace::Span span("test", "dropped");
    span.drop();
  }
  CHECK(trace::stop().ok());
  CHECK(events_of(trace::take_json(), "X").empty());
}

TEST_CASE("spans nest, carry their ids, and stand beside instants and counters") {
  trace::start("");
  {
    const trace::Span outer("runtime", "outer", 7);
    const trace::Span inner("driver", "a \"quoted\\name\"\n", UINT64_MAX);
    trace::instant("runtime", "here");
    trace::counter("bytes", -5);
  }
  CHECK(trace::stop().ok());
  const std::string json = trace::take_json();
  const auto spans = events_of(json, "X");
  REQUIRE(spans.size() == 2);
  const Json &inner = spans[0], &outer = spans[1];  // in the order in which they end
  CHECK(outer.at("name").text == "outer");
  CHECK(outer.at("cat").text == "runtime");
  CHECK(outer.at("args").at("id").text == "7");
  CHECK(inner.at("args").at("id").text == "18446744073709551615");
  const double outer_start = std::stod(outer.at("ts").text), inner_start = std::stod(inner.at("ts").text);
  CHECK(outer_start <= inner_start);
  CHECK(outer_start + std::stod(outer.at("dur").text) + 0.002 >=
        inner_start + std::stod(inner.at("dur").text));
  REQUIRE(events_of(json, "i").size() == 1);
  REQUIRE(events_of(json, "C").size() == 1);
  CHECK(events_of(json, "C")[0].at("args").at("value").text == "-5");
  CHECK(events_of(trace::take_json(), "i").empty());  // taken once
}

TEST_CASE("every span of every thread is in the file, under its thread's name") {
  constexpr int kThreads = 8, kSpans = 500;
  const std::string path = "/tmp/heddle_trace_test." + std::to_string(getpid()) + ".json";
  trace::start(path);
  run_together(kThreads, [&](int) {
    for (uint64_t i = 0; i < kSpans; ++i) const trace::Span span("test", "work", i);
  });
  CHECK(trace::stop().ok());
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  unlink(path.c_str());
  const std::string json = file.str();
  std::map<std::string, int> per_thread;
  for (const Json& span : events_of(json, "X")) {
    int& count = per_thread[span.at("tid").text];
    CHECK(span.at("args").at("id").text == std::to_string(count));
    ++count;
  }
  CHECK(per_thread.size() == kThreads);
  for (const auto& [thread, count] : per_thread) CHECK(count == kSpans);
  int named = 0;
  for (const Json& meta : events_of(json, "M")) {
    named += meta.at("args").at("name").text.starts_with("together-") ? 1 : 0;
  }
  CHECK(named == kThreads);
}

TEST_CASE("a new start forgets, an open span does not survive a stop, and misuse is told") {
  CHECK(trace::stop().code() == Code::invalid);
  trace::start("");
  trace::instant("test", "forgotten");
  {
    const trace::Span open("test", "open");
    trace::start("/nonexistent-folder/trace.json");
  }
  trace::instant("test", "kept");
  const Status status = trace::stop();
  CHECK(status.code() == Code::unavailable);
  CHECK(status.message().find("/nonexistent-folder/trace.json") != std::string::npos);
  const std::string json = trace::take_json();
  CHECK(events_of(json, "X").empty());
  REQUIRE(events_of(json, "i").size() == 1);
  CHECK(events_of(json, "i")[0].at("name").text == "kept");
}

TEST_CASE("a thread's events beyond the limit are counted, not kept") {
  trace::start("");
  for (size_t i = 0; i < trace::kEventsPerThread + 5; ++i) trace::counter("c", 1);
  CHECK(trace::stop().ok());
  const std::string json = trace::take_json();
  CHECK(json.find("\"dropped_events\":5}") != std::string::npos);
}

TEST_CASE("a string of JSON escapes quotes, backslashes and control characters, and nothing else") {
  struct Case {
    std::string raw, quoted;
  };
  for (const Case& each : {Case{"", "\"\""},
                           {"a b", "\"a b\""},
                           {"\"\\", "\"\\\"\\\\\""},
                           {std::string("\0\n\x1f", 3), "\"\\u0000\\u000a\\u001f\""},
                           {"\x20\x7f\xc3\xa9", "\"\x20\x7f\xc3\xa9\""}}) {
    std::string json = "before";
    trace::append_quoted(json, each.raw);
    CHECK(json == "before" + each.quoted);
  }
}

TEST_CASE("starting and stopping beside recording threads loses nothing but what is open") {
  Atomic<bool> done;
  run_together(5, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < 100; ++i) {
        trace::start("");
        trace::instant("test", "mine");
        CHECK(trace::stop().ok());
        const std::string json = trace::take_json();
        CHECK(json.find("\"mine\"") != std::string::npos);
      }
      done.store_release(true);
      return;
    }
    while (!done.load_acquire()) const trace::Span span("test", "noise");
  });
}

TEST_CASE("of recordings that threads start beside each other the last one has each thread's events") {
  constexpr int kThreads = 4;
  Atomic<int> missing(kThreads);
  run_together(kThreads, [&](int) {
    for (int i = 0; i < 2000; ++i) {
      trace::start("");
      trace::instant("test", "early");
    }
    missing.sub_acq_rel(1);
    while (missing.load_acquire() != 0) give_way();  // the last start is over
    trace::instant("test", "mine");
  });
  CHECK(trace::stop().ok());
  const std::string json = trace::take_json();
  int found = 0;
  for (size_t at = json.find("\"mine\""); at != std::string::npos; at = json.find("\"mine\"", at + 1))
    ++found;
  CHECK(found == kThreads);
}

}  // namespace
}  // namespace heddle
