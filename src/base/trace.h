// trace.h: spans, instants and counters in a file for Perfetto (ui.perfetto.dev) or chrome://tracing.
//
//   What       start() begins a recording, stop() ends it and writes it to start's path; with an empty path
//              the recording stays in memory for take_json().
//   States     off -> on (start) -> off (stop). start() while on, or after a stop(), forgets what was
//              recorded before.
//   Ordering   Events of one thread are in order. A span that is open across stop() is not recorded.
//   Threads    Any, all calls. Each thread records into its own buffer, under its own lock, which only stop()
//              and take_json() share.
//   Blocks     stop() writes a file. Recording never blocks on another recording thread. Off, everything
//              costs one relaxed load.
//   Lifetime   Categories and names are string literals (they are kept as pointers). A buffer outlives its
//              thread until the next start(). Each thread records at most kEventsPerThread; what is beyond is
//              counted in the file ("dropped_events"). The recording is a state of the process, like the file
//              it writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/status.h"

namespace heddle::trace {

inline constexpr size_t kEventsPerThread = size_t{1} << 18;

// The recording's number, 0 when off. Orders nothing: a thread that reads it late records a little late.
extern Atomic<uint64_t> session;

inline bool on() { return session.load_relaxed() != 0; }

void start(std::string path);
Status stop();  // `invalid` when off, `unavailable` when the file cannot be written (the events are kept)
void append_quoted(std::string& json, const std::string& raw);  // as a string of JSON
std::string take_json();  // what has been recorded since start(), which is then forgotten; works on and off

void instant(const char* category, const char* name);
void counter(const char* name, int64_t value);

class Span {
 public:
  explicit Span(const char* category, const char* name, uint64_t id = 0) : session_(session.load_relaxed()) {
    if (session_ != 0) [[unlikely]]
      open(category, name, id);
  }
  ~Span() {
    if (session_ != 0) [[unlikely]]
      close();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;
  void drop() { session_ = 0; }  // what it names did not come about

 private:
  void open(const char* category, const char* name, uint64_t id);
  void close();

  uint64_t session_;
  const char* category_;  // set by open(), like the rest: a Span that is off writes one word
  const char* name_;
  uint64_t id_;
  TimePoint start_;
};

}  // namespace heddle::trace
