// inside.cpp: lock statistics, trace, log, version, what the ONNX reader takes.
#include <memory>

#include "api/internals.h"
#include "api/log.h"
#include "base/made_once.h"
#include "base/sync.h"
#include "base/trace.h"
#include "onnx/reader.h"

namespace heddle {
namespace {

using Callback = std::function<void(LogLevel, const std::string&)>;

Guarded<Ref<const Callback>, Rank::kLog>& log_callback() {
  static constinit MadeOnce<Guarded<Ref<const Callback>, Rank::kLog>> callback;
  return callback.get();
}

}  // namespace

void set_log(std::function<void(LogLevel, const std::string&)> callback) {
  auto& guarded = log_callback();
  auto current = guarded.lock();
  *current = callback ? std::make_shared<const Callback>(std::move(callback)) : nullptr;
}

void log(LogLevel level, const std::string& message) {
  const Ref<const Callback> callback = *log_callback().lock();
  if (callback != nullptr) (*callback)(level, message);
}

void count_locks(bool on) { set_lock_counting(on); }
void reset_lock_stats() { clear_lock_counts(); }

std::vector<LockStats> lock_stats() {
  std::vector<LockStats> list;
  for (const LockCounts& lock : read_lock_counts()) {
    list.push_back({std::string(lock.name), lock.acquisitions, lock.contentions,
                    std::chrono::nanoseconds(lock.longest_wait_ns)});
  }
  return list;
}

void set_interrupt_check(bool (*asked)()) { ask_while_waiting(asked); }

void start_trace(const std::string& path) { trace::start(path); }
void stop_trace() { check(trace::stop()); }

OnnxSupport onnx_support() {
  OnnxSupport support{onnx::kOldestOpset, onnx::kNewestOpset, {}};
  for (std::string_view name : onnx::known_operators()) support.operators.emplace_back(name);
  return support;
}

std::string version() { return HEDDLE_VERSION; }

}  // namespace heddle
