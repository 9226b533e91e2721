#include "tests/cuda_double/cuda_double.h"

#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/kernel_table.h"
#include "tests/cuda_double/stream.h"

namespace heddle::cuda_double {
namespace {

using cuda::Address;
using cuda::Code;

constexpr size_t kMemory = size_t{8} << 30;
constexpr char kImage[] = "the kernels of the double";

int the_context, the_pool;

std::vector<cuda::Context>& contexts() {
  static thread_local std::vector<cuda::Context> stack;
  return stack;
}
int& capture_mode() {
  static thread_local int mode = 0;
  return mode;
}

// Atomics that order nothing: what the order of a launch's threads is made of.
Atomic<int64_t> launches{0};
Atomic<uint64_t> seed{1};

void require_context(const char* what) {
  if (contexts().empty() || contexts().back() == nullptr) stop(what, "no context is current");
}

Stream* stream_of(cuda::StreamHandle handle, const char* what) {
  require_context(what);
  if (handle == nullptr) stop(what, "the null stream");
  return static_cast<Stream*>(handle);
}

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
            void** params, void**) {
  Stream* const stream = stream_of(handle, "cuLaunchKernel");
  if (grid_x == 0 || grid_y != 1 || grid_z != 1 || block_x == 0 || block_x > 1024 || block_y != 1 ||
      block_z != 1 || shared_bytes > 48 * 1024)
    return cuda::kInvalidValue;
  const auto* const kernel = static_cast<const HostKernel*>(function);
  const uint64_t number = static_cast<uint64_t>(launches.add_relaxed(1));
  const uint64_t mixed = seed.load_relaxed() * 0x9e3779b97f4a7c15u + number;
  // As CUDA: the parameters are read before the call returns.
  const auto* const bytes = static_cast<const std::byte*>(params[0]);
  stream->tell([=, copied = std::vector<std::byte>(bytes, bytes + kernel->params_bytes)] {
    for (unsigned index = 0; index < grid_x; ++index) {
      cuda::HostBlock block(index, grid_x, static_cast<int>(block_x), shared_bytes, mixed + index);
      kernel->run(copied.data(), block);
      if (block.overrun()) stop(kernel->name, "it takes more shared memory than the launch gave");
    }
  });
  return cuda::kSuccess;
}

Code copy(Address to, Address from, size_t bytes, cuda::StreamHandle handle) {
  stream_of(handle, "cuMemcpyAsync")->tell([=] {
    std::memcpy(host_of(to, bytes, "cuMemcpyAsync, to"), host_of(from, bytes, "cuMemcpyAsync, from"), bytes);
  });
  return cuda::kSuccess;
}

Code stream_write(cuda::StreamHandle handle, Address at, uint64_t value, unsigned) {
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
  api.push_context = [](cuda::Context context) { return contexts().push_back(context), cuda::kSuccess; };
  api.pop_context = [](cuda::Context* context) {
    require_context("cuCtxPopCurrent");
    *context = contexts().back();
    contexts().pop_back();
    return cuda::kSuccess;
  };
}

void add_memory(cuda::DriverApi& api) {
  api.memory_info = [](size_t* free, size_t* total) {
    *total = kMemory;
    *free = kMemory - static_cast<size_t>(allocated_bytes());
    return cuda::kSuccess;
  };
  api.pool_create = [](cuda::MemoryPool* pool, const cuda::PoolProps*) {
    return *pool = &the_pool, cuda::kSuccess;
  };
  api.pool_destroy = [](cuda::MemoryPool) { return cuda::kSuccess; };
  api.pool_set = [](cuda::MemoryPool, cuda::PoolAttribute, void*) { return cuda::kSuccess; };
  api.pool_trim = [](cuda::MemoryPool, size_t) { return cuda::kSuccess; };
  api.allocate = [](Address* at, size_t bytes, cuda::MemoryPool, cuda::StreamHandle stream) {
    stream_of(stream, "cuMemAllocFromPoolAsync");
    if (bytes > kMemory - static_cast<size_t>(allocated_bytes())) return cuda::kOutOfMemory;
    return *at = allocate(bytes), cuda::kSuccess;
  };
  api.free = [](Address at, cuda::StreamHandle stream) {
    stream_of(stream, "cuMemFreeAsync");
    return release(at), cuda::kSuccess;
  };
  api.host_allocate = [](void** at, size_t bytes, unsigned) {
    require_context("cuMemHostAlloc");
    return *at = allocate_pinned(bytes), cuda::kSuccess;
  };
  api.host_free = [](void* at) { return release_pinned(at), cuda::kSuccess; };
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
    return stream_of(stream, "cuStreamQuery")->idle() ? cuda::kSuccess : cuda::kNotReady;
  };
  api.stream_synchronize = [](cuda::StreamHandle stream) {
    return stream_of(stream, "cuStreamSynchronize")->wait_idle(), cuda::kSuccess;
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
    if (image != kImage) return cuda::kNoBinaryForGpu;
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
    *name = code == cuda::kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_THE_DOUBLE";
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
  return api;
}

}  // namespace

const cuda::DriverApi& api() {
  static const cuda::DriverApi table = make_api();
  return table;
}

const void* image() { return kImage; }

void set_seed(uint64_t from) { seed.store_relaxed(from); }

cuda::EventHandle make_held_event() {
  auto* const event = new Event;
  *event->moment.lock() = std::make_shared<Moment>();
  return event;
}

void reach(cuda::EventHandle event) {
  const Ref<Moment> moment = *static_cast<Event*>(event)->moment.lock();
  moment->reach();
}

bool is_reached(cuda::EventHandle event) { return event_query(event) == cuda::kSuccess; }

}  // namespace heddle::cuda_double
