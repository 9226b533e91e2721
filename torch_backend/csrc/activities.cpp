#include "activities.h"

#include "device.h"

#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#include <libkineto.h>
#include <output_base.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>

#include <algorithm>
#include <atomic>
#include <chrono>
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

// One profile. Event times are told from an event of a known time, one for each device.
class Recording {
 public:
  explicit Recording(int64_t began) : began(began) {
    for (c10::DeviceIndex index = 0; index < device_count(); ++index) {
      const Stream& stream = current_stream_of(index);
      stream.synchronize();
      Event event = stream.record();
      event.wait();
      origins_.push_back({now(), std::move(event)});
    }
  }
  void add(Recorded recorded) {
    const std::lock_guard held(lock_);
    recorded_.push_back(std::move(recorded));
  }
  std::vector<Recorded> take() {
    const std::lock_guard held(lock_);
    return std::exchange(recorded_, {});
  }
  int64_t time_of(const Event& event, c10::DeviceIndex index) const {
    const Origin& origin = origins_[static_cast<size_t>(index)];
    return origin.at + static_cast<int64_t>(origin.event.elapsed_ms(event) * 1e6);
  }
  static int64_t now() {  // as Kineto counts: nanoseconds of Unix time
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
  }

  const int64_t began;

 private:
  struct Origin {
    int64_t at;
    Event event;
  };
  std::vector<Origin> origins_;
  std::mutex lock_;
  std::vector<Recorded> recorded_;
};

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

class Session final : public libkineto::IActivityProfilerSession {
 public:
  void start() override {
    status_ = libkineto::TraceStatus::RECORDING;
    began_ = Recording::now();
    recording_ = std::make_shared<Recording>(began_);
    set_current(recording_);
  }
  void stop() override {
    set_current(nullptr);
    recorded_ = recording_->take();
    for (const Recorded& each : recorded_) each.after.wait();
    ended_ = Recording::now();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }
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
    std::vector<libkineto::ResourceInfo> streams;
    for (const Recorded& each : recorded_) {
      const bool known = std::ranges::any_of(streams, [&](const auto& is) { return is.id == each.stream; });
      if (!known) streams.push_back({each.stream, each.stream, kDevice, name_of_stream(each)});
    }
    return streams;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(trace_); }
  void pushCorrelationId(uint64_t id) override { Correlations::of_thread(began_).numbers.push_back(id); }
  void popCorrelationId() override {
    std::vector<uint64_t>& numbers = Correlations::of_thread(began_).numbers;
    if (!numbers.empty()) numbers.pop_back();
  }

 private:
  static constexpr int64_t kDevice = 0;  // Kineto's number for the row of the device
  static std::string name_of_stream(const Recorded& each) {
    return "device " + std::to_string(each.index) + ", stream " + std::to_string(each.stream);
  }

  void log(libkineto::ActivityLogger& logger, const libkineto::getLinkedActivityCallback& linked) {
    trace_ = std::make_unique<libkineto::CpuTraceBuffer>();
    trace_->span = libkineto::TraceSpan(began_, ended_, "heddle");
    trace_->gpuOpCount = static_cast<int>(recorded_.size());
    for (const Recorded& each : recorded_) {
      const ActivityType type =
          each.doing == Doing::copy ? ActivityType::GPU_MEMCPY : ActivityType::CONCURRENT_KERNEL;
      trace_->emplace_activity(trace_->span, type, each.name);
      libkineto::GenericTraceActivity& activity = *trace_->activities.back();
      activity.startTime = recording_->time_of(each.before, each.index);
      activity.endTime = recording_->time_of(each.after, each.index);
      activity.device = each.index;
      activity.resource = static_cast<int32_t>(each.stream);
      activity.id = static_cast<int32_t>(each.correlation);
      activity.flow.id = static_cast<uint32_t>(each.correlation);
      activity.flow.type = libkineto::kLinkAsyncCpuGpu;
      activity.flow.start = 0;
      if (linked) activity.linked = linked(activity.id);
      activity.log(logger);
    }
  }

  std::shared_ptr<Recording> recording_;
  std::vector<Recorded> recorded_;
  int64_t began_ = 0, ended_ = 0;
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
  if (listening.load(std::memory_order_relaxed)) [[unlikely]]
    before_ = current_stream_of(index).record();
}

Activity::~Activity() {
  if (!before_.has_value()) [[likely]]
    return;
  const std::shared_ptr<Recording> recording = current();
  if (recording == nullptr) return;  // the profile has ended meanwhile
  try {
    const Stream& stream = current_stream_of(index_);
    const std::vector<uint64_t>& numbers = Correlations::of_thread(recording->began).numbers;
    recording->add({std::string(name_), doing_, index_, name_of(stream, index_).id(),
                    numbers.empty() ? 0 : numbers.back(), *std::move(before_), stream.record()});
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

Activity::Activity(std::string_view name, c10::DeviceIndex index, Doing doing)
    : name_(name), index_(index), doing_(doing) {}
Activity::~Activity() = default;
void register_activities() {}

}  // namespace heddle::torch_backend

#endif
