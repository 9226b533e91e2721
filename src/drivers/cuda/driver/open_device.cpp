#include "drivers/cuda/driver/open_device.h"

#include <algorithm>
#include <array>

namespace heddle::cuda {
namespace {

constexpr int kOldestCompute = 70;

Result<int> attribute(const OpenDevice& device, DeviceAttribute which) {
  int value = 0;
  HEDDLE_TRY(device.check(device.api.device_attribute(&value, which, device.number), "cuDeviceGetAttribute"));
  return value;
}

Status read_facts(OpenDevice& device) {
  const DriverApi& api = device.api;
  std::array<char, 128> name{};
  size_t bytes = 0;
  HEDDLE_TRY(device.check(api.device_name(name.data(), name.size() - 1, device.number), "cuDeviceGetName"));
  HEDDLE_TRY(device.check(api.device_memory(&bytes, device.number), "cuDeviceTotalMem"));
  HEDDLE_TRY(device.check(api.driver_version(&device.driver_version), "cuDriverGetVersion"));
  HEDDLE_TRY_ASSIGN(device.multiprocessors, attribute(device, kMultiprocessors));
  HEDDLE_TRY_ASSIGN(device.compute_major, attribute(device, kComputeMajor));
  HEDDLE_TRY_ASSIGN(device.compute_minor, attribute(device, kComputeMinor));
  HEDDLE_TRY_ASSIGN(const int pools, attribute(device, kMemoryPools));
  HEDDLE_TRY_ASSIGN(const int writes, attribute(device, kWritesOfWords));
  device.name = name.data();
  device.memory_bytes = bytes;
  if (10 * device.compute_major + device.compute_minor < kOldestCompute || pools == 0 || writes == 0) {
    return Status::unsupported(device.name, " has compute capability ", device.compute_major, ".",
                               device.compute_minor, pools == 0 ? ", no memory pools" : "",
                               writes == 0 ? ", no streams that write 64-bit words" : "",
                               "; Heddle needs 7.0 or newer, with both");
  }
  return {};
}

Status make_pool(OpenDevice& device) {
  const DriverApi& api = device.api;
  PoolProps props;
  props.location = device.number;
  HEDDLE_TRY(device.check(api.pool_create(&device.pool, &props), "cuMemPoolCreate"));
  uint64_t keep = UINT64_MAX;  // what is freed stays here until it is asked for
  HEDDLE_TRY(device.check(api.pool_set(device.pool, kReleaseThreshold, &keep), "cuMemPoolSetAttribute"));
  return device.check(api.stream_create(&device.stream, kNonBlockingStream), "cuStreamCreate");
}

}  // namespace

Result<int> OpenDevice::count(const DriverApi& api) {
  HEDDLE_TRY(status_of(api, api.init(0), "cuInit"));
  int count = 0;
  HEDDLE_TRY(status_of(api, api.device_count(&count), "cuDeviceGetCount"));
  return count;
}

Result<Ref<const OpenDevice>> OpenDevice::open(const DriverApi& api, int ordinal, const void* image) {
  HEDDLE_TRY_ASSIGN(const int count, OpenDevice::count(api));
  if (ordinal < 0 || ordinal >= count) {
    return Status::unavailable("there is no CUDA device ", ordinal, "; this machine has ", count,
                               count == 0 ? "" : text(", numbered from 0 to ", count - 1));
  }
  DeviceNumber number = 0;
  HEDDLE_TRY(status_of(api, api.device_get(&number, ordinal), "cuDeviceGet"));
  auto device = std::make_shared<OpenDevice>(api, number);
  HEDDLE_TRY(read_facts(*device));
  HEDDLE_TRY(device->check(api.primary_retain(&device->context, number), "cuDevicePrimaryCtxRetain"));
  const Current current(*device);
  HEDDLE_TRY(make_pool(*device));
  HEDDLE_TRY_ASSIGN(device->kernels, Kernels::load(api, image));
  return Ref<const OpenDevice>(std::move(device));
}

// What fails here fails because the process ends or the device is lost; nothing can be done about either.
OpenDevice::~OpenDevice() {
  if (context == nullptr || !is_ours()) return;
  {
    const Current current(*this);
    if (kernels.module() != nullptr) api.module_unload(kernels.module());
    const std::vector<ModuleHandle> beside = std::move(*modules.lock());
    for (const ModuleHandle each : beside) api.module_unload(each);
    if (pool != nullptr) api.pool_destroy(pool);
    if (stream != nullptr) api.stream_destroy(stream);
  }
  api.primary_release(number);
}

Status OpenDevice::check(Code code, std::string_view what) const {
  if (code == kSuccess) [[likely]]
    return {};
  Status status = status_of(api, code, what);
  if (loses_device(code)) lost.record(status);
  return status;
}

Status OpenDevice::check_work(Code code, std::string_view what) const {
  Status status = check(code, what);
  if (status.ok() || loses_device(code)) return status;
  lost.record(
      Status::device_lost(status.message(), "; the end of that work is unknown: restart the process"));
  return lost.status();
}

std::string OpenDevice::identity() const {
  constexpr int kKernels = 5;  // goes up when kernels of ours, or how they are measured, change
  return text(name, "; compute capability ", compute_major, '.', compute_minor, "; ", multiprocessors,
              " multiprocessors; kernels ", kKernels);
}

Current::Current(const OpenDevice& device)
    : api_(device.api), pushed_(device.api.push_context(device.context) == kSuccess) {
  api_.capture_mode(&capture_mode_);
}

Current::~Current() {
  api_.capture_mode(&capture_mode_);
  if (!pushed_) return;
  Context before = nullptr;
  api_.pop_context(&before);
}

}  // namespace heddle::cuda
