#include "tests/cuda_double/cuda_double.h"

#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fork.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/graph_double.h"
#include "tests/cuda_double/kernel_launch.h"

namespace heddle::cuda_double {
namespace {

using cuda::Address;
using cuda::Code;

constexpr size_t kMemory = size_t{8} << 30;
constexpr std::string_view kImage = "the kernels of the double\n";

int the_context, the_pool;
const uint32_t born = fork_generation();

// Without a destructor: threads call CUDA while they, or the process, end.
struct Contexts {
  std::array<cuda::Context, 16> stack;
  size_t depth;
  cuda::Context current() const { return depth == 0 ? nullptr : stack[depth - 1]; }
};
Contexts& contexts() {
  static thread_local constinit Contexts mine{};
  return mine;
}
int& capture_mode() {
  static thread_local int mode = 0;
  return mode;
}

// Atomics that order nothing: what the order of a launch's threads is made of.
Atomic<int64_t> launches{0};
Atomic<uint64_t> seed{1};

Code device_attribute(int* value, cuda::DeviceAttribute attribute, cuda::DeviceNumber) {
  switch (attribute) {
    case cuda::kMultiprocessors:
      *value = 4;
      return cuda::kSuccess;
    case cuda::kComputeMajor:
      *value = 9;
      return cuda::kSuccess;
    case cuda::kComputeMinor:
      *value = 0;
      return cuda::kSuccess;
    case cuda::kMemoryPools:
      *value = 1;
      return cuda::kSuccess;
    default:
      return cuda::kInvalidValue;
  }
}

Code launch(cuda::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
            unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::StreamHandle handle,
            void** params, void** extra) {
  Stream* const stream = stream_of(handle, "cuLaunchKernel");
  if (const Code failed = fails(Call::kLaunch); failed != 0) return failed;
  KernelLaunch launch;
  if (!launch.take(
          {function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, params, extra}))
    return cuda::kInvalidValue;
  stream->tell([launch = std::move(launch), number = take_launch_numbers(1)] { launch.run(number); });
  return cuda::kSuccess;
}

Code copy(Address to, Address from, size_t bytes, cuda::StreamHandle handle) {
  if (const Code failed = fails(Call::kCopy); failed != 0) return failed;
  stream_of(handle, "cuMemcpyAsync")->tell([=] {
    std::memcpy(host_of(to, bytes, "cuMemcpyAsync, to"), host_of(from, bytes, "cuMemcpyAsync, from"), bytes);
  });
  return cuda::kSuccess;
}

Code stream_write(cuda::StreamHandle handle, Address at, uint64_t value, unsigned) {
  if (const Code failed = fails(Call::kWrite); failed != 0) return failed;
  stream_of(handle, "cuStreamWriteValue64")->tell([=] {
    auto* const word = reinterpret_cast<Atomic<uint64_t>*>(host_of(at, sizeof value, "cuStreamWriteValue64"));
    word->store_release(value);
  });
  return cuda::kSuccess;
}

Code event_record(cuda::EventHandle handle, cuda::StreamHandle stream) {
  const auto moment = std::make_shared<Moment>();
  *static_cast<Event*>(handle)->moment.lock() = moment;
  stream_of(stream, "cuEventRecord")->tell([moment] { moment->reach(); });
  return cuda::kSuccess;
}

Code stream_wait(cuda::StreamHandle stream, cuda::EventHandle handle, unsigned) {
  const Ref<Moment> moment = *static_cast<Event*>(handle)->moment.lock();
  if (moment == nullptr) stop("cuStreamWaitEvent", "the event was never recorded: CUDA would not wait");
  stream_of(stream, "cuStreamWaitEvent")->tell([moment] { moment->wait(); });
  return cuda::kSuccess;
}

Code event_query(cuda::EventHandle handle) {
  if (const Code failed = fails(Call::kQuery); failed != 0) return failed;
  const Ref<Moment> moment = *static_cast<Event*>(handle)->moment.lock();
  return moment == nullptr || moment->reached() ? cuda::kSuccess : cuda::kNotReady;
}

void add_device(cuda::DriverApi& api) {
  api.init = [](unsigned) { return cuda::kSuccess; };
  api.driver_version = [](int* version) { return *version = 13000, cuda::kSuccess; };
  api.device_count = [](int* count) { return *count = 1, cuda::kSuccess; };
  api.device_get = [](int* device, int) { return *device = 0, cuda::kSuccess; };
  api.device_name = [](char* name, int length, int) {
    std::snprintf(name, static_cast<size_t>(length), "CUDA double");
    return cuda::kSuccess;
  };
  api.device_memory = [](size_t* bytes, int) { return *bytes = kMemory, cuda::kSuccess; };
  api.device_attribute = device_attribute;
  api.primary_retain = [](cuda::Context* context, int) { return *context = &the_context, cuda::kSuccess; };
  api.primary_release = [](int) { return cuda::kSuccess; };
  api.push_context = [](cuda::Context context) {
    Contexts& mine = contexts();
    if (mine.depth == mine.stack.size()) stop("cuCtxPushCurrent", "contexts are pushed and not popped");
    return mine.stack[mine.depth++] = context, cuda::kSuccess;
  };
  api.pop_context = [](cuda::Context* context) {
    require_context("cuCtxPopCurrent");
    Contexts& mine = contexts();
    return *context = mine.stack[--mine.depth], cuda::kSuccess;
  };
}

void add_memory(cuda::DriverApi& api) {
  api.memory_info = [](size_t* free, size_t* total) {
    *total = kMemory;
    *free = kMemory - static_cast<size_t>(allocated_bytes());
    return cuda::kSuccess;
  };
  api.pointer_attribute = [](void* value, int attribute, Address at) {
    require_context("cuPointerGetAttribute");
    if (!is_allocated(at)) return cuda::kInvalidValue;
    if (attribute == cuda::kMemoryType) *static_cast<unsigned*>(value) = cuda::kTypeOfDevice;
    if (attribute == cuda::kDeviceOrdinal) *static_cast<int*>(value) = 0;
    return cuda::kSuccess;
  };
  api.pool_create = [](cuda::MemoryPool* pool, const cuda::PoolProps*) {
    return *pool = &the_pool, cuda::kSuccess;
  };
  api.pool_destroy = [](cuda::MemoryPool) { return cuda::kSuccess; };
  api.pool_set = [](cuda::MemoryPool, cuda::PoolAttribute, void*) { return cuda::kSuccess; };
  api.pool_trim = [](cuda::MemoryPool, size_t) { return fails(Call::kTrim); };
  api.allocate = [](Address* at, size_t bytes, cuda::MemoryPool, cuda::StreamHandle stream) {
    stream_of(stream, "cuMemAllocFromPoolAsync");
    if (const Code failed = fails(Call::kAllocate); failed != 0) return failed;
    if (bytes > kMemory - static_cast<size_t>(allocated_bytes())) return cuda::kOutOfMemory;
    return *at = allocate(bytes), cuda::kSuccess;
  };
  api.free = [](Address at, cuda::StreamHandle stream) {
    stream_of(stream, "cuMemFreeAsync");
    if (const Code failed = fails(Call::kFree); failed != 0) return failed;
    return release(at), cuda::kSuccess;
  };
  api.host_allocate = [](void** at, size_t bytes, unsigned) {
    require_context("cuMemHostAlloc");
    if (const Code failed = fails(Call::kPin); failed != 0) return failed;
    return *at = allocate_pinned(bytes), cuda::kSuccess;
  };
  api.host_free = [](void* at) {
    if (const Code failed = fails(Call::kFree); failed != 0) return failed;
    return release_pinned(at), cuda::kSuccess;
  };
}

void add_streams(cuda::DriverApi& api) {
  api.stream_create = [](cuda::StreamHandle* stream, unsigned) {
    require_context("cuStreamCreate");
    return *stream = new Stream, cuda::kSuccess;
  };
  api.stream_destroy = [](cuda::StreamHandle stream) {
    delete stream_of(stream, "cuStreamDestroy");
    return cuda::kSuccess;
  };
  api.stream_query = [](cuda::StreamHandle stream) {
    Stream* const asked = stream_of(stream, "cuStreamQuery");
    if (const Code failed = fails(Call::kQuery); failed != 0) return failed;
    return asked->idle() ? cuda::kSuccess : cuda::kNotReady;
  };
  api.stream_synchronize = [](cuda::StreamHandle stream) {
    Stream* const waited = stream_of(stream, "cuStreamSynchronize");
    if (const Code failed = fails(Call::kSynchronize); failed != 0) return failed;
    return waited->wait_idle(), cuda::kSuccess;
  };
  api.stream_wait = stream_wait;
  api.stream_write = stream_write;
  api.event_create = [](cuda::EventHandle* event, unsigned) { return *event = new Event, cuda::kSuccess; };
  api.event_destroy = [](cuda::EventHandle event) {
    delete static_cast<Event*>(event);
    return cuda::kSuccess;
  };
  api.event_record = event_record;
  api.event_query = event_query;
}

void add_kernels(cuda::DriverApi& api) {
  api.module_load = [](cuda::ModuleHandle* module, const void* image) {
    if (std::memcmp(image, kImage.data(), kImage.size()) != 0) return cuda::kNoBinaryForGpu;
    return *module = &the_context, cuda::kSuccess;
  };
  api.module_unload = [](cuda::ModuleHandle) { return cuda::kSuccess; };
  api.module_function = [](cuda::Function* function, cuda::ModuleHandle, const char* symbol) {
    const HostKernel* const found = find_kernel(symbol);
    if (found == nullptr) return cuda::kNotFound;
    return *function = const_cast<HostKernel*>(found), cuda::kSuccess;
  };
  api.launch = launch;
  api.copy = copy;
  api.capture_mode = [](int* mode) { return std::swap(capture_mode(), *mode), cuda::kSuccess; };
  api.error_name = [](Code code, const char** name) {
    *name = code == cuda::kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == cuda::kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                            : "CUDA_ERROR_OF_THE_DOUBLE";
    return cuda::kSuccess;
  };
  api.error_text = [](Code, const char** words) { return *words = "the double says so", cuda::kSuccess; };
}

cuda::DriverApi make_api() {
  cuda::DriverApi api;
  add_device(api);
  add_memory(api);
  add_streams(api);
  add_kernels(api);
  add_graphs(api);
  return api;
}

}  // namespace

Stream* stream_of(cuda::StreamHandle handle, const char* what) {
  require_context(what);
  if (handle == nullptr) stop(what, "the null stream");
  if (handle == reinterpret_cast<void*>(uintptr_t{1})) {  // the legacy default stream, by its name
    static auto* const legacy = new Stream;
    return legacy;
  }
  return static_cast<Stream*>(handle);
}

bool KernelLaunch::take(const cuda::KernelNode& from) {
  kernel_ = static_cast<const HostKernel*>(from.function);
  if (kernel_ == nullptr || from.params == nullptr || from.extra != nullptr) return false;
  if (from.grid_x == 0 || from.grid_y != 1 || from.grid_z != 1 || from.block_x == 0 || from.block_y != 1 ||
      from.block_z != 1 || from.block_x > static_cast<unsigned>(kernel_->most_threads) ||
      from.shared_bytes > 48 * 1024)
    return false;
  blocks_ = from.grid_x;
  threads_ = from.block_x;
  shared_bytes_ = from.shared_bytes;
  const auto* const bytes = static_cast<const std::byte*>(from.params[0]);
  params_.assign(bytes, bytes + kernel_->params_bytes);
  return true;
}

uint64_t take_launch_numbers(size_t count) {
  return static_cast<uint64_t>(launches.add_relaxed(static_cast<int64_t>(count)));
}

void KernelLaunch::run(uint64_t number) const {
  const uint64_t mixed = seed.load_relaxed() * 0x9e3779b97f4a7c15u + number;
  for (unsigned index = 0; index < blocks_; ++index) {
    cuda::HostBlock block(index, blocks_, static_cast<int>(threads_), shared_bytes_, mixed + index);
    kernel_->run(params_.data(), block);
    if (block.overrun()) stop(kernel_->name, "it takes more shared memory than the launch gave");
  }
  spend_time_of(*kernel_);
}

void require_context(const char* what) {
  if (fork_generation() != born) stop(what, "the process is a forked child of CUDA's");
  if (contexts().current() == nullptr) stop(what, "no context is current");
}

const cuda::DriverApi& api() {
  static const cuda::DriverApi table = make_api();
  return table;
}

const void* image() { return kImage.data(); }

void set_seed(uint64_t from) { seed.store_relaxed(from); }

// They live as long as the process: streams wait for them when their test is long over.
cuda::EventHandle make_held_event() {
  static auto& held = *new Guarded<std::vector<std::unique_ptr<Event>>, Rank::kPool>;
  auto event = std::make_unique<Event>();
  *event->moment.lock() = std::make_shared<Moment>();
  Event* const made = event.get();
  held.lock()->push_back(std::move(event));
  return made;
}

void reach(cuda::EventHandle event) {
  const Ref<Moment> moment = *static_cast<Event*>(event)->moment.lock();
  moment->reach();
}

bool is_reached(cuda::EventHandle event) { return event_query(event) == cuda::kSuccess; }

}  // namespace heddle::cuda_double
