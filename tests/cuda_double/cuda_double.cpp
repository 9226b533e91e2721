#include "tests/cuda_double/cuda_double.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/cuda_double/contexts.h"
#include "tests/cuda_double/device_memory.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/graph_double.h"
#include "tests/cuda_double/kernel_launch.h"
#include "tests/cuda_double/nvrtc_double.h"
#include "tests/cuda_double/touches.h"

namespace heddle::cuda_double {
namespace {

using cuda::Address;
using cuda::Code;

constexpr size_t kMemory = size_t{8} << 30;
constexpr std::string_view kImage = "the kernels of the double\n",
                           kOlderImage = "its kernels for older GPUs\n";

std::array<int, kMostDevices> the_pools, the_modules, the_older_modules;

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
    case cuda::kWritesOfWords:
      *value = 1;
      return cuda::kSuccess;
    default:
      return cuda::kInvalidValue;
  }
}

Code launch(const cuda::KernelNode& kernel, cuda::StreamHandle handle, const char* what) {
  Stream* const stream = stream_of(handle, what);
  if (const Code failed = fails(Call::kLaunch); failed != 0) return failed;
  KernelLaunch launch;
  if (!launch.take(kernel)) return cuda::kInvalidValue;
  stream->tell([launch = std::move(launch), number = take_launch_numbers(1)] { launch.run(number); });
  return cuda::kSuccess;
}

Code launch(cuda::Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
            unsigned block_y, unsigned block_z, unsigned shared_bytes, cuda::StreamHandle handle,
            void** params, void** extra) {
  return launch({function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, params, extra},
                handle, "cuLaunchKernel");
}

// All kernels here wait for what they follow, or stop the process (cluster_run.cpp): the order is the same.
Code launch_with(const cuda::LaunchConfig* config, cuda::Function function, void** params, void** extra) {
  constexpr int kProgrammaticSerialization = 6;
  for (unsigned i = 0; i < config->count; ++i) {
    const cuda::LaunchAttribute& each = config->attributes[i];
    if (each.id != kProgrammaticSerialization || each.value != 1) return cuda::kInvalidValue;
    if (const Code failed = fails(Call::kEarlyLaunch); failed != 0) return failed;
  }
  return launch({function, config->grid_x, config->grid_y, config->grid_z, config->block_x, config->block_y,
                 config->block_z, config->shared_bytes, params, extra},
                config->stream, "cuLaunchKernelEx");
}

Code copy(Address to, Address from, size_t bytes, cuda::StreamHandle handle) {
  if (const Code failed = fails(Call::kCopy); failed != 0) return failed;
  stream_of(handle, "cuMemcpyAsync")->tell([=] {
    const std::byte* const source = to_read(from, bytes, "cuMemcpyAsync, from");
    require_written(source, bytes, "cuMemcpyAsync, from");
    std::memcpy(to_write(to, bytes, "cuMemcpyAsync, to"), source, bytes);
  });
  return cuda::kSuccess;
}

Code stream_write(cuda::StreamHandle handle, Address at, uint64_t value, unsigned) {
  if (const Code failed = fails(Call::kWrite); failed != 0) return failed;
  Stream* const stream = stream_of(handle, "cuStreamWriteValue64");
  stream->require_uncaptured("cuStreamWriteValue64");
  stream->tell([=] {
    std::byte* const word = to_write(at, sizeof value, "cuStreamWriteValue64");
    stream->order().show_host();  // before the host can see it
    reinterpret_cast<Atomic<uint64_t>*>(word)->store_release(value);
  });
  return cuda::kSuccess;
}

Code event_record(cuda::EventHandle handle, cuda::StreamHandle at) {
  Stream* const stream = stream_of(at, "cuEventRecord");
  stream->require_uncaptured("cuEventRecord");
  auto* const event = static_cast<Event*>(handle);
  if (event->device != stream->device()) stop("cuEventRecord", "the event is another context's");
  const auto moment = std::make_shared<Moment>();
  *event->moment.lock() = moment;
  stream->tell([moment, stream] { moment->reach(stream->order().up_to_here(), blas_lt_clock().now()); });
  return cuda::kSuccess;
}

Code stream_wait(cuda::StreamHandle at, cuda::EventHandle handle, unsigned) {
  Stream* const stream = stream_of(at, "cuStreamWaitEvent");
  const Ref<Moment> moment = *static_cast<Event*>(handle)->moment.lock();
  if (moment == nullptr) stop("cuStreamWaitEvent", "the event was never recorded: CUDA would not wait");
  stream->tell([moment, stream] { stream->order().learn(moment->wait()); });
  return cuda::kSuccess;
}

Code event_query(cuda::EventHandle handle) {
  if (const Code failed = fails(Call::kQuery); failed != 0) return failed;
  const Ref<Moment> moment = *static_cast<Event*>(handle)->moment.lock();
  if (moment == nullptr) return cuda::kSuccess;
  if (!moment->reached()) return cuda::kNotReady;
  show_host(moment->known());
  return cuda::kSuccess;
}

Code event_elapsed(float* milliseconds, cuda::EventHandle begin, cuda::EventHandle end) {
  std::array<TimePoint, 2> at;
  for (size_t i = 0; i < 2; ++i) {
    const Ref<Moment> moment = *static_cast<Event*>(i == 0 ? begin : end)->moment.lock();
    if (moment == nullptr || !moment->reached()) return cuda::kNotReady;
    at[i] = moment->when();
  }
  *milliseconds = std::chrono::duration<float, std::milli>(at[1] - at[0]).count();
  return cuda::kSuccess;
}

Code create_event(cuda::EventHandle* event, unsigned) {
  return *event = new Event(current_device("cuEventCreate")), cuda::kSuccess;
}

void add_device(cuda::DriverApi& api) {
  api.init = [](unsigned) { return cuda::kSuccess; };
  api.driver_version = [](int* version) { return *version = 13000, cuda::kSuccess; };
  api.device_count = [](int* count) { return *count = devices(), cuda::kSuccess; };
  api.device_get = [](int* device, int ordinal) { return *device = ordinal, cuda::kSuccess; };
  api.device_name = [](char* name, int length, int) {
    std::snprintf(name, static_cast<size_t>(length), "CUDA double");
    return cuda::kSuccess;
  };
  api.device_memory = [](size_t* bytes, int) { return *bytes = kMemory, cuda::kSuccess; };
  api.device_attribute = device_attribute;
  api.primary_retain = [](cuda::Context* context, int device) {
    return *context = context_of(device), cuda::kSuccess;
  };
  api.primary_release = [](int) { return cuda::kSuccess; };
  api.push_context = [](cuda::Context context) { return push_context(context), cuda::kSuccess; };
  api.pop_context = [](cuda::Context* context) { return *context = pop_context(), cuda::kSuccess; };
}

Code memory_info(size_t* free, size_t* total) {
  const int device = current_device("cuMemGetInfo");
  *total = kMemory;
  *free = kMemory - static_cast<size_t>(allocated_bytes(device));
  return cuda::kSuccess;
}

Code pointer_attribute(void* value, int attribute, Address at) {
  require_context("cuPointerGetAttribute");
  const Block block = block_at(at);
  if (block.device < 0) return cuda::kInvalidValue;
  if (attribute == cuda::kMemoryType) *static_cast<unsigned*>(value) = cuda::kTypeOfDevice;
  if (attribute == cuda::kDeviceOrdinal) *static_cast<int*>(value) = block.device;
  return cuda::kSuccess;
}

Code allocate_from_pool(Address* at, size_t bytes, cuda::MemoryPool, cuda::StreamHandle stream) {
  constexpr const char* kWhat = "cuMemAllocFromPoolAsync";
  const int device = stream_of(stream, kWhat)->device();
  require_no_capture(kWhat);
  if (const Code failed = fails(Call::kAllocate); failed != 0) return failed;
  if (bytes > kMemory - static_cast<size_t>(allocated_bytes(device))) return cuda::kOutOfMemory;
  return *at = allocate(bytes, device), cuda::kSuccess;
}

// To the end of the block; 0: it is in none.
uint64_t bytes_from(Address at) {
  const Block block = block_at(at);
  return block.device == kNowhere ? 0 : block.end - (at & ~cuda::kDoubleMark);
}

Code free_to_pool(Address at, cuda::StreamHandle handle) {
  Stream* const stream = stream_of(handle, "cuMemFreeAsync");
  require_no_capture("cuMemFreeAsync");
  if (const Code failed = fails(Call::kFree); failed != 0) return failed;
  begin_release(at, stream->device());
  stream->tell([at, stream] {
    stream->order().check_unused(at, bytes_from(at), "cuMemFreeAsync");
    end_release(at);
  });
  return cuda::kSuccess;
}

void add_memory(cuda::DriverApi& api) {
  api.memory_info = memory_info;
  api.pointer_attribute = pointer_attribute;
  api.pool_create = [](cuda::MemoryPool* pool, const cuda::PoolProps* props) {
    require_no_capture("cuMemPoolCreate");
    return *pool = &the_pools[static_cast<size_t>(props->location)], cuda::kSuccess;
  };
  api.pool_destroy = [](cuda::MemoryPool) { return cuda::kSuccess; };
  api.pool_set = [](cuda::MemoryPool, cuda::PoolAttribute, void*) { return cuda::kSuccess; };
  api.pool_trim = [](cuda::MemoryPool, size_t) {
    require_no_capture("cuMemPoolTrimTo");
    return fails(Call::kTrim);
  };
  api.allocate = allocate_from_pool;
  api.free = free_to_pool;
  api.host_allocate = [](void** at, size_t bytes, unsigned) {
    require_context("cuMemHostAlloc");
    require_no_capture("cuMemHostAlloc");
    if (const Code failed = fails(Call::kPin); failed != 0) return failed;
    return *at = allocate_pinned(bytes), cuda::kSuccess;
  };
  api.host_free = [](void* at) {
    require_no_capture("cuMemFreeHost");
    if (const Code failed = fails(Call::kFree); failed != 0) return failed;
    const auto address = reinterpret_cast<Address>(at);
    check_unused(address, bytes_from(address), "cuMemFreeHost");
    return release_pinned(at), cuda::kSuccess;
  };
}

Code query_stream(cuda::StreamHandle handle) {
  Stream* const asked = stream_of(handle, "cuStreamQuery");
  require_no_capture("cuStreamQuery");
  asked->require_uncaptured("cuStreamQuery");
  if (const Code failed = fails(Call::kQuery); failed != 0) return failed;
  return asked->idle() ? cuda::kSuccess : cuda::kNotReady;
}

Code synchronize_stream(cuda::StreamHandle handle) {
  Stream* const waited = stream_of(handle, "cuStreamSynchronize");
  require_no_capture("cuStreamSynchronize");
  waited->require_uncaptured("cuStreamSynchronize");
  if (const Code failed = fails(Call::kSynchronize); failed != 0) return failed;
  return waited->wait_idle(), cuda::kSuccess;
}

void add_streams(cuda::DriverApi& api) {
  api.stream_create = [](cuda::StreamHandle* stream, unsigned) {
    return *stream = new Stream(current_device("cuStreamCreate")), cuda::kSuccess;
  };
  api.stream_destroy = [](cuda::StreamHandle stream) {
    delete stream_of(stream, "cuStreamDestroy");
    return cuda::kSuccess;
  };
  api.stream_query = query_stream;
  api.stream_synchronize = synchronize_stream;
  api.stream_wait = stream_wait;
  api.stream_write = stream_write;
  api.event_create = create_event;
  api.event_destroy = [](cuda::EventHandle event) {
    delete static_cast<Event*>(event);
    return cuda::kSuccess;
  };
  api.event_record = event_record;
  api.event_elapsed = event_elapsed;
  api.event_query = [](cuda::EventHandle event) {
    require_no_capture("cuEventQuery");
    return event_query(event);
  };
}

// Modules of chains, each its only kernel. They live as long as the process, as streams may.
const LoadedKernel* add_chain(const HostKernel* chain, int device) {
  static auto& all = *new Guarded<std::vector<std::unique_ptr<LoadedKernel>>, Rank::kPool>;
  auto made = std::make_unique<LoadedKernel>(LoadedKernel{chain, device});
  const LoadedKernel* const kernel = made.get();
  all.lock()->push_back(std::move(made));
  return kernel;
}

Code load_module(cuda::ModuleHandle* module, const void* image) {
  const int device = current_device("cuModuleLoadData");
  require_no_capture("cuModuleLoadData");
  if (const Code failed = fails(Call::kLoadModule); failed != 0) return failed;
  if (const HostKernel* const chain = load_chain(image))
    return *module = const_cast<LoadedKernel*>(add_chain(chain, device)), cuda::kSuccess;
  const auto is = [&](std::string_view which) {
    return std::strncmp(static_cast<const char*>(image), which.data(), which.size()) == 0;
  };
  if (is(kOlderImage)) return *module = &the_older_modules[static_cast<size_t>(device)], cuda::kSuccess;
  if (!is(kImage)) return cuda::kNoBinaryForGpu;
  return *module = &the_modules[static_cast<size_t>(device)], cuda::kSuccess;
}

Code find_function(cuda::Function* function, cuda::ModuleHandle module, const char* symbol) {
  const LoadedKernel* found = nullptr;
  const auto device_of = [&](std::array<int, kMostDevices>& all) {
    const auto at = std::find_if(all.begin(), all.end(), [&](int& m) { return &m == module; });
    return at == all.end() ? -1 : static_cast<int>(at - all.begin());
  };
  if (const int device = device_of(the_modules); device >= 0) {
    found = find_kernel(symbol, device);
  } else if (const int older = device_of(the_older_modules); older >= 0) {
    found = find_kernel(symbol, older);
    if (found != nullptr && !found->kernel->everywhere) found = nullptr;
  } else if (std::string_view(symbol) == "heddle_chain") {
    found = static_cast<const LoadedKernel*>(module);
  }
  if (found == nullptr) return cuda::kNotFound;
  return *function = const_cast<LoadedKernel*>(found), cuda::kSuccess;
}

Atomic<bool> has_clusters{true};  // set before devices are made

Code function_attribute(int* value, int attribute, cuda::Function function) {
  if (attribute != cuda::kClusterOfCode) return cuda::kInvalidValue;
  const int cluster = static_cast<const LoadedKernel*>(function)->kernel->cluster;
  return *value = cluster > 1 && has_clusters.load_relaxed() ? cluster : 0, cuda::kSuccess;
}

void add_kernels(cuda::DriverApi& api) {
  api.module_load = load_module;
  api.module_unload = [](cuda::ModuleHandle) {
    require_context("cuModuleUnload");
    require_no_capture("cuModuleUnload");
    return cuda::kSuccess;
  };
  api.module_function = find_function;
  api.function_attribute = function_attribute;
  api.launch = launch;
  api.launch_with = launch_with;
  api.copy = copy;
  api.capture_mode = [](int* mode) { return *mode = exchange_capture_mode(*mode), cuda::kSuccess; };
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

const cuda::DriverApi& api() {
  static const cuda::DriverApi table = make_api();
  return table;
}

const void* image() { return kImage.data(); }
const void* older_image() { return kOlderImage.data(); }

NoClusters::NoClusters() { has_clusters.store_relaxed(false); }
NoClusters::~NoClusters() { has_clusters.store_relaxed(true); }

// They live as long as the process: streams wait for them when their test is long over.
cuda::EventHandle make_held_event() {
  static auto& held = *new Guarded<std::vector<std::unique_ptr<Event>>, Rank::kPool>;
  auto event = std::make_unique<Event>(0);
  *event->moment.lock() = std::make_shared<Moment>();
  Event* const made = event.get();
  held.lock()->push_back(std::move(event));
  return made;
}

void reach(cuda::EventHandle event) {
  const Ref<Moment> moment = *static_cast<Event*>(event)->moment.lock();
  moment->reach(known_to_host(), blas_lt_clock().now());
}

bool is_reached(cuda::EventHandle event) { return event_query(event) == cuda::kSuccess; }

}  // namespace heddle::cuda_double
