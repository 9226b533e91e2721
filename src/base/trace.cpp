#include "base/trace.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "base/made_once.h"
#include "base/sync.h"

namespace heddle::trace {

constinit Atomic<uint64_t> session{0};

namespace {

struct Event {
  enum Kind : uint8_t { kSpan, kInstant, kCounter };
  Kind kind;
  const char* category;
  const char* name;
  int64_t start_ns;
  int64_t duration_ns;
  uint64_t value;  // a span's id, a counter's value
};

struct Events {
  std::vector<Event> list;
  uint64_t dropped = 0;
};

struct Buffer {
  Buffer(uint64_t of, std::string name) : session(of), thread_name(std::move(name)) {}
  const uint64_t session;
  const std::string thread_name;
  Guarded<Events, Rank::kTrace> events;  // its thread appends, stop() and take_json() take
};

struct Registry {
  uint64_t sessions = 0;
  std::string path;
  std::vector<Ref<Buffer>> buffers;  // by thread number - 1
};

Guarded<Registry, Rank::kTrace>& registry() {
  static constinit MadeOnce<Guarded<Registry, Rank::kTrace>> only;
  return only.get();
}

thread_local Ref<Buffer> my_buffer;

int64_t ns(TimePoint at) { return std::chrono::duration_cast<Duration>(at.time_since_epoch()).count(); }

std::string this_thread_name() {
  char name[64] = "";
  pthread_getname_np(pthread_self(), name, sizeof(name));
  return name;
}

void record(uint64_t of, const Event& event) {
  if (session.load_relaxed() != of) return;  // the recording ended meanwhile
  if (my_buffer == nullptr || my_buffer->session != of) {
    auto fresh = std::make_shared<Buffer>(of, this_thread_name());
    auto held = registry().lock();
    if (held->sessions != of) return;
    held->buffers.push_back(fresh);
    my_buffer = std::move(fresh);
  }
  auto events = my_buffer->events.lock();
  if (events->list.size() < kEventsPerThread) {
    events->list.push_back(event);
  } else {
    ++events->dropped;
  }
}

void append_microseconds(std::string& out, int64_t value_ns) {
  char digits[48];
  std::snprintf(digits, sizeof(digits), "%" PRId64 ".%03d", value_ns / 1000,
                static_cast<int>(value_ns % 1000));
  out += digits;
}

void append_event(std::string& out, const Event& event, const std::string& place) {
  out += ",\n{\"name\":";
  append_quoted(out, event.name);
  if (event.category != nullptr) {
    out += ",\"cat\":";
    append_quoted(out, event.category);
  }
  out += place + ",\"ts\":";
  append_microseconds(out, event.start_ns);
  switch (event.kind) {
    case Event::kSpan:
      out += ",\"ph\":\"X\",\"dur\":";
      append_microseconds(out, event.duration_ns);
      out += text(",\"args\":{\"id\":", event.value, "}}");
      break;
    case Event::kInstant:
      out += ",\"ph\":\"i\",\"s\":\"t\"}";
      break;
    case Event::kCounter:
      out += text(",\"ph\":\"C\",\"args\":{\"value\":", static_cast<int64_t>(event.value), "}}");
      break;
  }
}

struct Recorded {
  std::string thread_name;
  Events events;
};

std::vector<Recorded> copy_of(const std::vector<Ref<Buffer>>& buffers) {
  std::vector<Recorded> out;
  for (const Ref<Buffer>& buffer : buffers) out.push_back({buffer->thread_name, *buffer->events.lock()});
  return out;
}

std::vector<Recorded> take(const std::vector<Ref<Buffer>>& buffers) {
  std::vector<Recorded> out;
  for (const Ref<Buffer>& buffer : buffers) {
    out.push_back({buffer->thread_name, std::exchange(*buffer->events.lock(), {})});
  }
  return out;
}

std::string to_json(const std::vector<Recorded>& threads) {
  const std::string pid = text(",\"pid\":", static_cast<int64_t>(getpid()));
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"name\":\"process_name\",\"ph\":\"M\"" +
                    pid + ",\"args\":{\"name\":\"heddle\"}}";
  uint64_t dropped = 0;
  for (size_t i = 0; i < threads.size(); ++i) {
    const std::string place = text(pid, ",\"tid\":", i + 1);
    out += ",\n{\"name\":\"thread_name\",\"ph\":\"M\"" + place + ",\"args\":{\"name\":";
    append_quoted(out, threads[i].thread_name);
    out += "}}";
    for (const Event& event : threads[i].events.list) append_event(out, event, place);
    dropped += threads[i].events.dropped;
  }
  out += text("\n],\"otherData\":{\"dropped_events\":", dropped, "}}\n");
  return out;
}

}  // namespace

void start(std::string path) {
  std::vector<Ref<Buffer>> forgotten;  // freed after the lock
  auto held = registry().lock();
  forgotten.swap(held->buffers);
  held->path = std::move(path);
  session.store_relaxed(++held->sessions);
}

Status stop() {
  std::vector<Ref<Buffer>> buffers;
  std::string path;
  {
    auto held = registry().lock();
    if (!on()) return Status::invalid("trace::stop() without a trace::start()");
    session.store_relaxed(0);
    buffers = held->buffers;
    path = held->path;
  }
  if (path.empty()) return {};
  const std::string json = to_json(copy_of(buffers));
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) {
    return Status::unavailable("trace file '", path, "' cannot be opened: ", std::strerror(errno));
  }
  const bool written = std::fwrite(json.data(), 1, json.size(), file) == json.size();
  if (std::fclose(file) != 0 || !written) {
    return Status::unavailable("trace file '", path, "' cannot be written: ", std::strerror(errno));
  }
  return {};
}

void append_quoted(std::string& json, const std::string& raw) {
  json += '"';
  for (const char c : raw) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escaped[8];
      std::snprintf(escaped, sizeof(escaped), "\\u%04x", static_cast<unsigned>(c));
      json += escaped;
    } else {
      json += c;
    }
  }
  json += '"';
}

std::string take_json() {
  const std::vector<Ref<Buffer>> buffers = registry().lock()->buffers;
  return to_json(take(buffers));
}

void instant(const char* category, const char* name) {
  const uint64_t of = session.load_relaxed();
  if (of == 0) return;
  record(of, {Event::kInstant, category, name, ns(Clock::real().now()), 0, 0});
}

void counter(const char* name, int64_t value) {
  const uint64_t of = session.load_relaxed();
  if (of == 0) return;
  record(of, {Event::kCounter, nullptr, name, ns(Clock::real().now()), 0, static_cast<uint64_t>(value)});
}

void Span::open(const char* category, const char* name, uint64_t id) {
  category_ = category;
  name_ = name;
  id_ = id;
  start_ = Clock::real().now();
}

void Span::close() {
  const int64_t from = ns(start_);
  record(session_, {Event::kSpan, category_, name_, from, ns(Clock::real().now()) - from, id_});
}

}  // namespace heddle::trace
