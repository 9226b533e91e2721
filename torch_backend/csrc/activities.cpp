#include "activities.h"

#include "device.h"

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace heddle::torch_backend {
namespace {

using libkineto::ActivityType;

// Kineto's numbers of the operators that this thread is in, the innermost last. A profile may end within one,
// and nobody takes its number away then: they are those of one profile.
struct Correlations {
  int64_t profile = 0;  // when it began
  std::vector<uint64_t> numbers;

  static Correlations& of_thread(int64_t profile) {
    thread_local Correlations here;
    if (here.profile != profile) here = {profile, {}};
    return here;
  }
};

struct Recorded {
  std::string name;
  Doing doing;
  c10::DeviceIndex index;
  int64_t stream;
  uint64_t correlation;  // 0: of no operator
  Event before, after;
};

int64_t now() {  // as Kineto counts: nanoseconds of Unix time
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// Tells the times of events of one device, all of them over, from one whose time is known.
class EventClock {
 public:
  explicit EventClock(c10::DeviceIndex index) : event_(current_stream_of(index).record()) {
    event_.wait();
    at_ = now();
  }
  int64_t time_of(const Event& before) const {
    return at_ - static_cast<int64_t>(before.elapsed_ms(event_) * 1e6);
  }

 private:
  Event event_;
  int64_t at_ = 0;
};

}  // namespace

// One profile.
class Recording {
 public:
  void add(Recorded recorded) {
    const std::lock_guard held(lock_);
    recorded_.push_back(std::move(recorded));
  }
  std::vector<Recorded> take() {
    const std::lock_guard held(lock_);
    return std::exchange(recorded_, {});
  }

  const int64_t began = now();

 private:
  std::mutex lock_;
  std::vector<Recorded> recorded_;
};

namespace {

// Kineto takes one profile at a time.
std::atomic<bool> listening{false};  // whether current() may be there
std::mutex& current_lock() {
  static std::mutex& lock = *new std::mutex;
  return lock;
}
std::shared_ptr<Recording>& current_unlocked() {
  static std::shared_ptr<Recording>& recording = *new std::shared_ptr<Recording>;
  return recording;
}
std::shared_ptr<Recording> current() {
  const std::lock_guard held(current_lock());
  return current_unlocked();
}
void set_current(std::shared_ptr<Recording> recording) {
  const std::lock_guard held(current_lock());
  listening.store(recording != nullptr, std::memory_order_relaxed);  // a hint: the lock orders the rest
  current_unlocked() = std::move(recording);
}

// An activity's own times.
struct Done {
  Recorded what;
  int64_t begin, end;
};

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    recording_ = std::make_shared<Recording>();
    set_current(recording_);
  }
  void stop() override {
    set_current(nullptr);
    std::map<c10::DeviceIndex, EventClock> clocks;
    for (Recorded& each : recording_->take()) {
      try {
        each.after.wait();
        const EventClock& clock = clocks.try_emplace(each.index, each.index).first->second;
        const int64_t begin = clock.time_of(each.before), end = clock.time_of(each.after);
        done_.push_back({std::move(each), begin, end});
      } catch (const Error& error) {
        errors_.push_back(each.name + ": " + error.what());
      }
    }
    ended_ = now();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return errors_; }
  void processTrace(libkineto::ActivityLogger& logger) override { log(logger, {}); }
  void processTrace(libkineto::ActivityLogger& logger, libkineto::getLinkedActivityCallback linked,
                    int64_t /*begin*/, int64_t /*end*/) override {
    log(logger, linked);
  }
  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(
        libkineto::DeviceInfo{kDevice, libkineto::kExceedMaxPid, "heddle", "heddle"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::map<std::pair<c10::DeviceIndex, int64_t>, libkineto::ResourceInfo> streams;
    for (const auto& [what, begin, end] : done_) {
      streams.try_emplace(
          {what.index, what.stream},
          libkineto::ResourceInfo{what.stream, what.stream, what.index, name_of_stream(what)});
    }
    std::vector<libkineto::ResourceInfo> infos;
    for (const auto& [key, info] : streams) infos.push_back(info);
    return infos;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(trace_); }
  void pushCorrelationId(uint64_t id) override {
    Correlations::of_thread(recording_->began).numbers.push_back(id);
  }
  void popCorrelationId() override {
    std::vector<uint64_t>& numbers = Correlations::of_thread(recording_->began).numbers;
    if (!numbers.empty()) numbers.pop_back();
  }

 private:
  static constexpr int64_t kDevice = 0;  // Kineto's number for the row of the device
  static std::string name_of_stream(const Recorded& each) {
    return "device " + std::to_string(each.index) + ", stream " + std::to_string(each.stream);
  }

  void log(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked) {
    trace_ = std::make_unique<libkineto::CpuTraceBuffer>();
    trace_->span = libkineto::TraceSpan(recording_->began, ended_, "heddle");
    trace_->gpuOpCount = static_cast<int>(done_.size());
    for (const auto& [what, begin, end] : done_) {
      const ActivityType type =
          what.doing == Doing::copy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
      trace_->emplace_activity(trace_->span, type, what.name);
      libkineto::GenericTraceActivity& activity = *trace_->activities.back();
      activity.startTime = begin;
      activity.endTime = end;
      activity.device = what.index;
      activity.resource = static_cast<int32_t>(what.stream);
      activity.id = static_cast<int32_t>(what.correlation);
      activity.flow.id = static_cast<uint32_t>(what.correlation);
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = 0;
      if (linked) activity.linked = linked(activity.id);
      activity.log(logger);
    }
  }

  std::shared_ptr<Recording> recording_;
  std::vector<Done> done_;
  std::vector<std::string> errors_;
  int64_t ended_ = 0;
  std::unique_ptr<libkineto::CpuTraceBuffer> trace_;
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string& name() const override { return name_; }
  const std::set<ActivityType>& availableActivities() const override { return types_; }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(
      const std::set<ActivityType>& types, const libkineto::Config& /*config*/) override {
    if (!types.contains(ActivityType::CONCURRENT_KERNEL)) return nullptr;  // CPU activities alone
    return std::make_unique<Session>();
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t /*at*/, int64_t /*duration*/,
                                                                 const std::set<ActivityType>& types,
                                                                 const libkineto::Config& config) override {
    return configure(types, config);
  }

 private:
  const std::string name_ = "heddle";
  const std::set<ActivityType> types_{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY};
};

}  // namespace

Activity::Activity(std::string_view name, c10::DeviceIndex index, Doing doing)
    : name_(name), index_(index), doing_(doing) {
  if (!listening.load(std::memory_order_relaxed)) [[likely]]
    return;
  recording_ = current();
  if (recording_ != nullptr) before_ = current_stream_of(index_).record();
}

Activity::~Activity() {
  if (recording_ == nullptr) [[likely]]
    return;
  try {
    const Stream& stream = current_stream_of(index_);
    const std::vector<uint64_t>& numbers = Correlations::of_thread(recording_->began).numbers;
    recording_->add({std::string(name_), doing_, index_, current_stream_number(index_),
                     numbers.empty() ? 0 : numbers.back(), std::move(before_), stream.record()});
  } catch (const Error&) {
    // A stream that has failed: the operator that it stands around says so, and has no activity.
  }
}

void register_activities() {
  torch::profiler::impl::PrivateUse1ProfilerRegistry::instance().registerFactory(
      [] { return std::make_unique<Profiler>(); });
}

}  // namespace heddle::torch_backend

#else  // a PyTorch without the registry

namespace heddle::torch_backend {

class Recording {};

Activity::Activity(std::string_view name, c10::DeviceIndex index, Doing doing)
    : name_(name), index_(index), doing_(doing) {}
Activity::~Activity() = default;
void register_activities() {}

}  // namespace heddle::torch_backend

#endif
