#include "api/process_devices.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <optional>
#include <vector>

#include "api/device_name.h"
#include "api/environment.h"
#include "api/internals.h"
#include "api/log.h"
#include "api/sim_hooks.h"
#include "api/submissions.h"
#include "base/fork.h"
#include "base/made_once.h"
#include "base/process_exit.h"
#ifdef HEDDLE_CUDA
#include "drivers/cuda/cuda_device.h"
#endif
#include "drivers/host/host_device.h"
#include "drivers/host/machine/cpu_budget.h"
#ifdef HEDDLE_METAL
#include "drivers/metal/metal_device.h"
#endif
#include "drivers/sim/sim_device.h"

namespace heddle::process_devices {
namespace {

constexpr auto kExitWait = std::chrono::seconds(5);
constexpr uint32_t kNobody = ~uint32_t{0};

struct Entry {
  std::optional<DeviceOptions> options;
  std::optional<Device> device;
};
struct Table {
  std::map<std::string, Entry, std::less<>> entries;
  bool making = false;                                      // one first use at a time; the others wait for it
  std::vector<std::weak_ptr<Internals::DeviceRep>> opened;  // all that live, those of Device::open() too
  std::optional<Deadline> ended;                            // until when exit() waits for what runs
};
using GuardedTable = Guarded<Table, Rank::kRegistry>;

GuardedTable& table() {
  static constinit MadeOnce<GuardedTable> only;
  return only.get();
}

// fork_generation() of the process that opened a device first. Its children open none: they take no lock that
// one of its threads may have held.
constinit Atomic<uint32_t> opener{kNobody};
// The handler of exit() is set. Threads that open their first device at the same time may each set it.
constinit Atomic<bool> ends_at_exit{false};

bool is_forked() {
  const uint32_t first = opener.load_acquire();
  return first != kNobody && first != fork_generation();
}

// Threads that use the table, in the lower half, of the process in the upper one: its fork_generation(). A
// child that was forked meanwhile would find the lock taken, or wait for a device that nobody makes.
constinit Atomic<uint64_t> users{0};

// Throws `unavailable` in a child whose parent has opened a device, or was about to.
class Use {
 public:
  Use() {
    const uint64_t ours = uint64_t{fork_generation()} << 32;
    uint64_t seen = users.load_acquire();
    do {
      const bool is_parents = seen >> 32 != ours >> 32 && static_cast<uint32_t>(seen) != 0;
      if (is_forked() || is_parents) throw_status(forked());
    } while (!users.cas_weak_acq_rel(seen, (seen >> 32 == ours >> 32 ? seen : ours) + 1));
  }
  ~Use() { users.sub_acq_rel(1); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;
};

// At exit(), once for each registration: refuses calls from now on and waits for those that run, until
// kExitWait after the first time, whatever others' handlers do between.
void close_all() {
  if (is_forked()) return;
  std::map<std::string, Entry, std::less<>> entries;
  std::vector<std::weak_ptr<Internals::DeviceRep>> opened;
  Deadline until = Deadline::never();
  {
    auto t = table().lock();
    if (!t->ended) t->ended = Deadline::in(kExitWait);
    until = *t->ended;
    entries.swap(t->entries);
    opened.swap(t->opened);
  }
  submissions::end_all(until);
  for (const auto& weak : opened) {
    if (const auto rep = weak.lock()) rep->runtime->close(until);
  }
}

void check_options(const DeviceOptions& o) {
  constexpr int kMostSlices = 1024;
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::invalid, what); };
  if (o.threads < 0) refuse("threads must be 0 (all cores) or more, not " + std::to_string(o.threads));
  if ((o.streams != 0 && o.streams < 2) || o.streams > runtime::StreamPool::kMaxStreams) {
    refuse(text("streams must be 0 (as many as the device needs) or 2 to ", runtime::StreamPool::kMaxStreams,
                ", not ", o.streams));
  }
  if (o.in_flight < 0 || o.in_flight > runtime::Governor::kMaxLimit) {
    refuse(text("in_flight must be 0 (what the device asks for) to ", runtime::Governor::kMaxLimit, ", not ",
                o.in_flight));
  }
  if (o.slices < 0 || o.slices > kMostSlices)
    refuse(text("slices must be 0 (as many as the device needs) to ", kMostSlices, ", not ", o.slices));
  if (!(o.memory_fraction > 0 && o.memory_fraction <= 1)) {
    refuse("memory_fraction must be above 0 and at most 1, not " + std::to_string(o.memory_fraction));
  }
  if (o.stream_wait.count() < 0) refuse("stream_wait must not be negative");
}

// One for each call that a synchronous device holds at once, and the default one: with fewer, callers on
// streams of their own would take turns while processors idle.
int streams_for(const device::Traits& traits, int in_flight) {
  constexpr int kFewest = 32;
  if (!traits.synchronous) return kFewest;
  const int calls = in_flight > 0 ? in_flight : traits.queue_depth;
  return std::clamp(calls + 1, kFewest, runtime::StreamPool::kMaxStreams);
}

runtime::Options to_runtime(const DeviceOptions& o, const device::Traits& traits) {
  runtime::Options options;
  options.streams = o.streams > 0 ? o.streams : streams_for(traits, o.in_flight);
  options.exhaustion = static_cast<runtime::Exhaustion>(o.exhaustion);
  options.stream_wait_max = o.stream_wait;
  options.executable_bytes = o.executable_bytes;
  options.memory_fraction = o.memory_fraction;
  options.in_flight = o.in_flight;
  options.slices = o.slices;
  return options;
}

void note_opened(const std::shared_ptr<Internals::DeviceRep>& device) {
  uint32_t nobody = kNobody;
  static_cast<void>(opener.cas_strong_acq_rel(nobody, fork_generation()));
  if (!ends_at_exit.load_acquire()) {
    set_exit_handler(close_all);
    ends_at_exit.store_release(true);
  }
  auto t = table().lock();
  if (t->ended) throw Error(ErrorCode::unavailable, "the process is ending: its devices are closed");
  std::erase_if(t->opened, [](const auto& weak) { return weak.expired(); });
  t->opened.push_back(device);
}

host::HostOptions to_host(const DeviceOptions& o) {
  host::HostOptions options;
  options.threads = o.threads;
  options.copies_weights = o.numa_copies;
  return options;
}

// HEDDLE_SIM_SEED decides every order of the simulated device.
Result<Ref<device::Device>> make_sim(const DeviceOptions& o, int ordinal) {
  sim::SimOptions options;
  options.name = DeviceName{"sim", ordinal}.to_string();
#if defined(HEDDLE_SIM)
  options.inside_call = sim_hooks::inside_call;
#endif
  if (const char* seed = std::getenv("HEDDLE_SIM_SEED"); seed != nullptr) {
    const char* const end = seed + std::string_view(seed).size();
    if (const auto [rest, error] = std::from_chars(seed, end, options.seed);
        error != std::errc() || rest != end)
      return Status::invalid("HEDDLE_SIM_SEED is '", seed, "'; it has to be a number");
  }
  HEDDLE_TRY_ASSIGN(Ref<device::Device> host, host::make_host_device(to_host(o)));
  HEDDLE_TRY_ASSIGN(Ref<sim::SimDevice> made, sim::make_sim_device(std::move(host), options));
  return Ref<device::Device>(std::move(made));
}

Status always() { return {}; }

struct Driver {
  std::string_view name;
  int devices;  // ordinals from it on do not exist
  Result<Ref<device::Device>> (*make)(const DeviceOptions& options, int ordinal);
  Status (*check_installed)() = always;  // what it needs of the machine; starts nothing
  Result<int> (*count)() = nullptr;      // of this machine; null: `devices`
};
#ifdef HEDDLE_CUDA
// Half the processors, which leaves the others to callers that have work; none where there are few.
int lookers_of(int processors) {
  constexpr int kFew = 4;
  return processors < kFew ? 0 : processors / 2;
}

cuda::CudaOptions cuda_options(int ordinal) {
  cuda::CudaOptions options;
  options.lookers = lookers_of(host::read_budget().cores);
  options.ordinal = ordinal;
  options.image_file = cuda_image_from_environment();
  const std::string graphs = cuda_graphs_from_environment();
  if (graphs == "off") options.graph_bytes = 0;
  options.capture_beside_others = graphs == "all";
  return options;
}

Result<Ref<device::Device>> make_cuda(const DeviceOptions&, int ordinal) {
  cuda::CudaOptions options = cuda_options(ordinal);
  options.library_folders = cuda_libraries_from_environment();
  options.compiles_chains = cuda_nvrtc_from_environment();
  const host::HostTuning tuning = host_tuning_from_environment();
  options.tuning = {.on = tuning.on, .folder = tuning.folder, .warn = tuning.warn};
  return make_cuda_device(options);
}
#endif
// By name only: it is for tests.
constexpr Driver kSim = {"sim", 8, make_sim};
constexpr Driver kDrivers[] = {
    {"host", 1,
     [](const DeviceOptions& o, int) {
       host::HostOptions options = to_host(o);
       options.tuning = host_tuning_from_environment();
       return host::make_host_device(options);
     }},
#ifdef HEDDLE_CUDA
    {"cuda", 64, make_cuda, [] { return check_installed(cuda_options(0)); },
     [] { return cuda::count_devices(cuda_options(0)); }},
#endif
#ifdef HEDDLE_METAL
    {"metal", 1, [](const DeviceOptions&, int) { return metal::make_metal_device(); }},
#endif
};

const Driver& driver_named(std::string_view name) {
  for (const Driver& driver : kDrivers) {
    if (driver.name == name) return driver;
  }
  if (name == kSim.name) return kSim;
  std::string all;
  for (const Driver& driver : kDrivers) all += text(all.empty() ? "'" : ", '", driver.name, '\'');
  throw Error(ErrorCode::unsupported, text("there is no device '", name, "' in this build; there is ", all));
}

Device make(std::string_view name, const DeviceOptions& options) {
  check_options(options);
  const DeviceName which = DeviceName::parse(name);
  const Driver& of = driver_named(which.driver);
  if (which.ordinal >= of.devices) {
    throw Error(ErrorCode::unsupported,
                text("there is no device '", name, "'; of '", of.name, "' there ",
                     of.devices == 1 ? "is one" : text("are ", of.devices), ", numbered from 0"));
  }
  return adopt(name, take(of.make(options, which.ordinal)), options);
}

}  // namespace

Device adopt(std::string_view name, Ref<device::Device> driver, const DeviceOptions& options) {
  const Use use;
  const int threads = driver->traits().threads;
  const runtime::Options wanted = to_runtime(options, driver->traits());
  auto runtime = take(runtime::Runtime::make(std::move(driver), wanted));
  const int limit = runtime->governor().limit();
  if (options.in_flight != 0 && options.in_flight != limit) {
    throw Error(ErrorCode::invalid,
                text("in_flight is ", limit, " for '", name,
                     "' in this process, which was decided at its first use; it cannot be ",
                     options.in_flight, " as well"));
  }
  log(LogLevel::info, text("opened device '", name, "': ", runtime->device().traits().description, ", ",
                           limit, " calls in flight"));
  auto rep = std::make_shared<Internals::DeviceRep>(
      Internals::DeviceRep{std::string(name), std::move(runtime), threads});
  note_opened(rep);
  return Internals::make_device(std::move(rep));
}

Device get(std::string_view spelled) {
  const Use use;
  const std::string name = DeviceName::parse(spelled).to_string();
  std::optional<DeviceOptions> configured;
  {
    auto t = table().lock();
    t.wait([&] { return !t->making || t->ended; });
    if (t->ended) throw Error(ErrorCode::unavailable, "the process is ending: its devices are closed");
    if (const auto it = t->entries.find(name); it != t->entries.end()) {
      if (it->second.device) return *it->second.device;
      configured = it->second.options;
    }
    t->making = true;
  }
  struct Made {
    ~Made() {
      table().lock()->making = false;
      table().notify_all();
    }
  } made;
  Device device = make(name, configured ? *configured : options_from_environment());
  table().lock()->entries[name].device = device;
  return device;
}

Device open(std::string_view name, const DeviceOptions& options) {
  return make(DeviceName::parse(name).to_string(), options);
}

void configure(std::string_view spelled, const DeviceOptions& options) {
  check_options(options);
  const std::string name = DeviceName::parse(spelled).to_string();
  const Use use;
  auto t = table().lock();
  Entry& entry = t->entries[name];
  if (entry.device) {
    throw Error(
        ErrorCode::invalid,
        text(
            "device '", name,
            "' is in use already: configure it before its first use, or open another one with Device::open"));
  }
  entry.options = options;
}

int count(std::string_view kind) {
  const Driver& driver = driver_named(kind);
  return driver.count == nullptr ? driver.devices : take(driver.count());
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Driver& driver : kDrivers) {
    if (driver.check_installed().ok()) all.emplace_back(driver.name);
  }
  return all;
}

std::vector<DeviceFact> missing() {
  std::vector<DeviceFact> all;
  for (const Driver& driver : kDrivers) {
    if (const Status status = driver.check_installed(); !status.ok())
      all.push_back({std::string(driver.name), std::string(status.message())});
  }
  return all;
}

std::vector<Device> living() {
  // The last reference to a device may be one of these: it ends without the lock.
  std::vector<Device> devices;
  const Use use;
  const auto t = table().lock();
  for (const auto& weak : t->opened) {
    if (auto rep = weak.lock()) devices.push_back(Internals::make_device(std::move(rep)));
  }
  return devices;
}

std::optional<Device> of_maker(const void* maker) {
  for (Device& device : living()) {
    if (Internals::runtime(device).device().maker() == maker) return std::move(device);
  }
  return std::nullopt;
}

std::string default_name() {
  const std::string chosen = device_from_environment();
  if (!chosen.empty()) return chosen;
#ifdef __APPLE__
  return std::string(kDrivers[std::size(kDrivers) - 1].name);
#else
  return "host";
#endif
}

}  // namespace heddle::process_devices
