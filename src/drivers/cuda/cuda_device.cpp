#include "drivers/cuda/cuda_device.h"

#include "base/thread.h"
#include "drivers/cuda/foreign_timeline.h"
#include "drivers/cuda/module.h"
#include "drivers/cuda/queue.h"

namespace heddle::cuda {
namespace {

// With four the GPU always has a batch to begin (../shared probes: 64 callers and more).
constexpr int kLanes = 4;
constexpr int kQueueDepth = 32;

std::string version(int number) { return text(number / 1000, ".", number % 1000 / 10); }

class CudaDevice final : public device::Device {
 public:
  CudaDevice(Ref<const OpenDevice> open, int ordinal)
      : open_(std::move(open)), watcher_(std::make_shared<Watcher>()) {
    traits_.name = "cuda";
    traits_.description = text(open_->name, ", ", open_->memory_bytes >> 20, " MiB");
    traits_.lanes = kLanes;
    traits_.queue_depth = kQueueDepth;
    traits_.row_sizes = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256};
    traits_.memory_bytes = open_->memory_bytes;
    traits_.events = "cudaEvent_t";
    traits_.facts = {
        {"GPU", text(ordinal, ": ", open_->name)},
        {"compute capability", text(open_->compute_major, ".", open_->compute_minor)},
        {"multiprocessors", text(open_->multiprocessors)},
        {"CUDA of the driver", version(open_->driver_version)},
    };
  }
  ~CudaDevice() override { watcher_->stop(); }
  Status start() {
    HEDDLE_TRY_ASSIGN(thread_, Thread::start("heddle-cuda", [watcher = watcher_] { watcher->run(); }));
    return {};
  }

  const device::Traits& traits() const override { return traits_; }
  const void* maker() const override { return open_.get(); }
  Status lost() const override { return open_->lost.status(); }

  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind kind,
                                                   NoLocksHeld) override {
    HEDDLE_TRY(lost());
    return cuda::allocate(open_, bytes, kind);
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override {
    HEDDLE_TRY(lost());
    return CudaQueue::make(open_, watcher_);
  }
  Result<device::Point> import_event(const device::ForeignEvent& event, NoLocksHeld) override {
    if (event.handle == nullptr) return Status::invalid("there is no event to wait for");
    return device::Point{std::make_shared<ForeignTimeline>(open_, event, watcher_, CudaQueue::key()), 1};
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions&,
                                                Ref<device::Source> source, NoLocksHeld) override {
    HEDDLE_TRY(lost());
    HEDDLE_TRY_ASSIGN(Ref<const Weights> weights, Weights::make(open_, *prepared.graph, nullptr, *source));
    return Ref<const device::Module>(
        std::make_shared<CudaModule>(std::move(prepared), std::move(weights), open_, std::move(source)));
  }

 private:
  const Ref<const OpenDevice> open_;
  device::Traits traits_;
  const Ref<Watcher> watcher_;
  Thread thread_;
};

}  // namespace

Result<Ref<device::Device>> make_cuda_device(const CudaOptions& options) {
  const void* const image = options.image != nullptr ? options.image : built_in_image();
  if (image == nullptr) {
    return Status::unavailable(
        "this build of Heddle has no kernels for GPUs: it was made without nvcc. "
        "Configure with -DHEDDLE_NVCC=/usr/local/cuda/bin/nvcc");
  }
  const DriverApi* api = options.api;
  if (api == nullptr) {
    HEDDLE_TRY_ASSIGN(api, nvidia_driver());
  }
  HEDDLE_TRY_ASSIGN(Ref<const OpenDevice> open, OpenDevice::open(*api, options.ordinal, image));
  auto device = std::make_shared<CudaDevice>(std::move(open), options.ordinal);
  HEDDLE_TRY(device->start());
  return Ref<device::Device>(std::move(device));
}

}  // namespace heddle::cuda
