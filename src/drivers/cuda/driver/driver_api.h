// driver_api.h: the functions of NVIDIA's driver that we call, found in libcuda.so.1 at run time.
//
//   What       DriverApi is a table of them, with the types and values of cuda.h that they take, so that no
//              header of NVIDIA's is needed to build. tests/cuda_double has a table of its own.
//   Threads    Any: a table never changes once it is made.
//   Errors     unavailable, naming the file or the function that is missing.
//   Lifetime   The library stays loaded for as long as the process lives.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "base/sync.h"

namespace heddle::cuda {

using Code = int;  // CUresult
inline constexpr Code kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kDeinitialized = 4, kNoDevice = 100,
                      kInvalidContext = 201, kNoBinaryForGpu = 209, kNotFound = 500, kNotReady = 600,
                      kIllegalAddress = 700, kUnknown = 999;

using DeviceNumber = int;     // CUdevice
using Address = uint64_t;     // CUdeviceptr
using Context = void*;        // CUcontext
using StreamHandle = void*;   // CUstream
using EventHandle = void*;    // CUevent
using ModuleHandle = void*;   // CUmodule
using Function = void*;       // CUfunction
using MemoryPool = void*;     // CUmemoryPool
using GraphHandle = void*;    // CUgraph
using GraphNode = void*;      // CUgraphNode
using GraphExec = void*;      // CUgraphExec
using PoolAttribute = int;    // CUmemPool_attribute
using DeviceAttribute = int;  // CUdevice_attribute

inline constexpr DeviceAttribute kMultiprocessors = 16, kComputeMajor = 75, kComputeMinor = 76,
                                 kMemoryPools = 115, kWritesOfWords = 122;
inline constexpr int kClusterOfCode = 11;  // CUfunction_attribute: blocks of a cluster, as it was compiled
inline constexpr PoolAttribute kReleaseThreshold = 4;
inline constexpr int kMemoryType = 2, kDeviceOrdinal = 9;  // CUpointer_attribute
inline constexpr unsigned kTypeOfDevice = 2;               // CUmemorytype
inline constexpr unsigned kNonBlockingStream = 1, kEventWithoutTiming = 2, kPortable = 1, kDeviceMap = 2;
inline constexpr int kRelaxedCapture = 2;

struct PoolProps {          // CUmemPoolProps
  int allocation_type = 1;  // pinned
  int handle_types = 0;
  int location_type = 1;  // a device
  int location = 0;
  void* security = nullptr;
  size_t max_size = 0;
  unsigned short usage = 0;
  unsigned char reserved[54] = {};
};
static_assert(sizeof(PoolProps) == 88);

struct KernelNode {  // CUDA_KERNEL_NODE_PARAMS_v2
  Function function = nullptr;
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;  // in the place of the function
  Context context = nullptr;
};
static_assert(sizeof(KernelNode) == 72);

struct LaunchAttribute {  // CUlaunchAttribute
  int id = 0;
  int pad = 0;
  int value = 0;
  int rest[15] = {};
};
static_assert(sizeof(LaunchAttribute) == 72);
// As kEarlyEdge says, of a launch and the one before it in its stream.
inline constexpr LaunchAttribute kEarlyLaunch = {6, 0, 1, {}};

struct LaunchConfig {  // CUlaunchConfig
  unsigned grid_x = 1, grid_y = 1, grid_z = 1, block_x = 1, block_y = 1, block_z = 1, shared_bytes = 0;
  StreamHandle stream = nullptr;
  const LaunchAttribute* attributes = nullptr;
  unsigned count = 0;  // of attributes
};
static_assert(sizeof(LaunchConfig) == 56);

struct GraphEdge {  // CUgraphEdgeData
  unsigned char from_port = 0, to_port = 0, type = 0;
  unsigned char reserved[5] = {};
};
static_assert(sizeof(GraphEdge) == 8);
// From a kernel that says when the next may begin (kernels/block.h), to one that waits itself for its end.
inline constexpr GraphEdge kEarlyEdge = {1, 0, 1, {}};

// name in the table, function of CUDA 12.0, arguments
#define HEDDLE_CUDA_FUNCTIONS(X)                                                                            \
  X(init, "cuInit", (unsigned flags))                                                                       \
  X(driver_version, "cuDriverGetVersion", (int* version))                                                   \
  X(device_count, "cuDeviceGetCount", (int* count))                                                         \
  X(device_get, "cuDeviceGet", (DeviceNumber * device, int ordinal))                                        \
  X(device_name, "cuDeviceGetName", (char* name, int length, DeviceNumber device))                          \
  X(device_memory, "cuDeviceTotalMem", (size_t* bytes, DeviceNumber device))                                \
  X(device_attribute, "cuDeviceGetAttribute", (int* value, DeviceAttribute attribute, DeviceNumber d))      \
  X(primary_retain, "cuDevicePrimaryCtxRetain", (Context * context, DeviceNumber device))                   \
  X(primary_release, "cuDevicePrimaryCtxRelease", (DeviceNumber device))                                    \
  X(push_context, "cuCtxPushCurrent", (Context context))                                                    \
  X(pop_context, "cuCtxPopCurrent", (Context * context))                                                    \
  X(memory_info, "cuMemGetInfo", (size_t* free, size_t* total))                                             \
  X(pointer_attribute, "cuPointerGetAttribute", (void* value, int attribute, Address at))                   \
  X(pool_create, "cuMemPoolCreate", (MemoryPool * pool, const PoolProps* props))                            \
  X(pool_destroy, "cuMemPoolDestroy", (MemoryPool pool))                                                    \
  X(pool_set, "cuMemPoolSetAttribute", (MemoryPool pool, PoolAttribute attribute, void* value))             \
  X(pool_trim, "cuMemPoolTrimTo", (MemoryPool pool, size_t bytes))                                          \
  X(allocate, "cuMemAllocFromPoolAsync", (Address * at, size_t bytes, MemoryPool pool, StreamHandle s))     \
  X(free, "cuMemFreeAsync", (Address at, StreamHandle stream))                                              \
  X(host_allocate, "cuMemHostAlloc", (void** at, size_t bytes, unsigned flags))                             \
  X(host_free, "cuMemFreeHost", (void* at))                                                                 \
  X(stream_create, "cuStreamCreate", (StreamHandle * stream, unsigned flags))                               \
  X(stream_destroy, "cuStreamDestroy", (StreamHandle stream))                                               \
  X(stream_query, "cuStreamQuery", (StreamHandle stream))                                                   \
  X(stream_synchronize, "cuStreamSynchronize", (StreamHandle stream))                                       \
  X(stream_wait, "cuStreamWaitEvent", (StreamHandle stream, EventHandle event, unsigned flags))             \
  X(stream_write, "cuStreamWriteValue64", (StreamHandle s, Address at, uint64_t value, unsigned f))         \
  X(event_create, "cuEventCreate", (EventHandle * event, unsigned flags))                                   \
  X(event_destroy, "cuEventDestroy", (EventHandle event))                                                   \
  X(event_record, "cuEventRecord", (EventHandle event, StreamHandle stream))                                \
  X(event_elapsed, "cuEventElapsedTime", (float* milliseconds, EventHandle begin, EventHandle end))         \
  X(event_query, "cuEventQuery", (EventHandle event))                                                       \
  X(module_load, "cuModuleLoadData", (ModuleHandle * module, const void* image))                            \
  X(module_unload, "cuModuleUnload", (ModuleHandle module))                                                 \
  X(module_function, "cuModuleGetFunction", (Function * function, ModuleHandle module, const char* name))   \
  X(function_attribute, "cuFuncGetAttribute", (int* value, int attribute, Function function))               \
  X(launch, "cuLaunchKernel",                                                                               \
    (Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,                \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, StreamHandle stream, void** params,         \
     void** extra))                                                                                         \
  X(launch_with, "cuLaunchKernelEx",                                                                        \
    (const LaunchConfig* config, Function function, void** params, void** extra))                           \
  X(copy, "cuMemcpyAsync", (Address to, Address from, size_t bytes, StreamHandle stream))                   \
  X(graph_create, "cuGraphCreate", (GraphHandle * graph, unsigned flags))                                   \
  X(graph_destroy, "cuGraphDestroy", (GraphHandle graph))                                                   \
  X(graph_add_kernel, "cuGraphAddKernelNode",                                                               \
    (GraphNode * node, GraphHandle graph, const GraphNode* before, size_t count, const KernelNode* kernel)) \
  X(graph_add_child, "cuGraphAddChildGraphNode",                                                            \
    (GraphNode * node, GraphHandle graph, const GraphNode* before, size_t count, GraphHandle child))        \
  X(begin_capture, "cuStreamBeginCapture", (StreamHandle stream, int mode))                                 \
  X(end_capture, "cuStreamEndCapture", (StreamHandle stream, GraphHandle * graph))                          \
  X(graph_instantiate, "cuGraphInstantiateWithFlags", (GraphExec * exec, GraphHandle g, uint64_t flags))    \
  X(graph_set_kernel, "cuGraphExecKernelNodeSetParams",                                                     \
    (GraphExec exec, GraphNode node, const KernelNode* kernel))                                             \
  X(graph_launch, "cuGraphLaunch", (GraphExec exec, StreamHandle stream))                                   \
  X(graph_exec_destroy, "cuGraphExecDestroy", (GraphExec exec))                                             \
  X(capture_mode, "cuThreadExchangeStreamCaptureMode", (int* mode))                                         \
  X(error_name, "cuGetErrorName", (Code code, const char** name))                                           \
  X(error_text, "cuGetErrorString", (Code code, const char** text))

// The same, of CUDA 12.3: null with an older driver.
#define HEDDLE_CUDA_NEWER_FUNCTIONS(X)         \
  X(graph_add_edges, "cuGraphAddDependencies", \
    (GraphHandle graph, const GraphNode* from, const GraphNode* to, const GraphEdge* edges, size_t count))

struct DriverApi {
#define HEDDLE_CUDA_MEMBER(member, symbol, arguments) Code(*member) arguments = nullptr;
  HEDDLE_CUDA_FUNCTIONS(HEDDLE_CUDA_MEMBER)
  HEDDLE_CUDA_NEWER_FUNCTIONS(HEDDLE_CUDA_MEMBER)
#undef HEDDLE_CUDA_MEMBER
};

// By which the library gives its functions: of the version that is asked for, whatever its own.
using FindFunction = Code (*)(const char* name, void** function, int version, uint64_t flags, int* why);
inline constexpr char kFindFunction[] = "cuGetProcAddress_v2";
inline constexpr int kInterface = 12000, kNewerInterface = 12030;  // the versions whose functions these are

// Loads the library once; later calls give the same answer. Blocks for as long as the loader does.
Result<const DriverApi*> nvidia_driver();

// ok; device_lost where no later call can work; exhausted for memory; unavailable where there is no GPU, the
// driver does not work or the process ends; unsupported for kernels that are not the GPU's.
// `what` says what was asked: "CUDA_ERROR_ILLEGAL_ADDRESS: an illegal memory access ... (launch of map_add)".
Status status_of(const DriverApi& api, Code code, std::string_view what);
bool loses_device(Code code);

}  // namespace heddle::cuda
