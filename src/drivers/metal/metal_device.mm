#include "drivers/metal/metal_device.h"

#import <Metal/Metal.h>

#include <unistd.h>

#include <algorithm>

#include "drivers/metal/failure.h"
#include "drivers/metal/foreign_timeline.h"
#include "drivers/metal/known_faults.h"
#include "drivers/metal/memory.h"
#include "drivers/metal/module.h"
#include "drivers/metal/queue.h"

namespace heddle::metal {
namespace {

// While the GPU runs one batch, the host encodes the next; a third absorbs what either is late.
constexpr int kLanes = 3;

// One for each stream that a device has by default. Threads that submit operator by operator have several in
// flight each, and what is small overlaps on the GPU. Each one in flight has intermediates of its own.
constexpr int kQueueDepth = 32;
constexpr int kRunsTogether = 8;  // more would begin later, and keep what they read for longer

constexpr uint64_t kWorthMapping = 64 * 1024;

constexpr int64_t kOldestMacos = 14;

// Newest first.
struct Family {
  MTLGPUFamily family;
  const char* name;
  int64_t number;
};
constexpr Family kFamilies[] = {
    {MTLGPUFamilyApple9, "Apple9", 9},
    {MTLGPUFamilyApple8, "Apple8", 8},
    {MTLGPUFamilyApple7, "Apple7", 7},
    {MTLGPUFamilyMac2, "Mac2", 7},  // the oldest there is: every limit by family holds
};

Family family_of(id<MTLDevice> device) {
  for (const Family& family : kFamilies) {
    if ([device supportsFamily:family.family]) return family;
  }
  return {MTLGPUFamilyApple7, "none that is known here", 7};
}

Mac mac_of(id<MTLDevice> device, NSProcessInfo* process) {
  const NSOperatingSystemVersion version = [process operatingSystemVersion];
  return {version.majorVersion, version.minorVersion, family_of(device).number};
}

std::vector<device::Fact> facts_of(id<MTLDevice> device, NSProcessInfo* process) {
  return {{"system", utf8([process operatingSystemVersionString])},
          {"chip", utf8([device name])},
          {"Metal family", family_of(device).name},
          {"recommended working set", text([device recommendedMaxWorkingSetSize], " bytes")},
          {"largest buffer", text(uint64_t{[device maxBufferLength]}, " bytes")},
          {"threads per group", text(uint64_t{[device maxThreadsPerThreadgroup].width})},
          {"submissions in flight",
           text(uint64_t{MetalTimeline::kMostInFlight}, " a queue; Metal's limit is 64")}};
}

std::vector<device::Fact> defences_on(const Mac& mac) {
  std::vector<device::Fact> defences = known_faults(mac.macos_major);
  for (const LimitReport& report : limits_of(mac)) {
    if (report.applies) defences.push_back({text(report.name, ": ", report.limit), report.driver});
  }
  return defences;
}

class MetalDevice final : public device::Device {
 public:
  explicit MetalDevice(Ref<const OpenDevice> open) : open_(std::move(open)) {
    traits_.name = "metal";
    traits_.description = text(utf8([open_->device.get() name]), ", ", open_->memory_bytes >> 20, " MiB");
    // Mapping costs a system call and more: what is small is copied for less. MPSGraph takes whole buffers.
    traits_.binding = {true, static_cast<uint64_t>(sysconf(_SC_PAGESIZE)), kWorthMapping, false};
    traits_.unified_memory = true;
    traits_.precisions = {"f32", "f16"};
    traits_.lanes = kLanes;
    traits_.queue_depth = kQueueDepth;
    traits_.runs_together = kRunsTogether;
    traits_.memory_bytes = open_->memory_bytes;
    traits_.events = "id<MTLSharedEvent>";
    NSProcessInfo* const process = [NSProcessInfo processInfo];
    traits_.facts = facts_of(open_->device.get(), process);
    traits_.defences = defences_on(open_->mac);
  }

  const device::Traits& traits() const override { return traits_; }
  const void* maker() const override { return open_.get(); }
  Status lost() const override { return open_->loss->status(); }

  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind, NoLocksHeld) override {
    @autoreleasepool {
      HEDDLE_TRY_ASSIGN(auto buffer, make_buffer(open_->device.get(), bytes, traits_.memory_bytes,
                                                 open_->options.defences));
      return std::unique_ptr<device::Memory>(
          std::make_unique<MetalMemory>(open_.get(), std::move(buffer), bytes));
    }
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override { return MetalQueue::make(open_); }
  Result<device::Point> import_event(const device::ForeignEvent& event, NoLocksHeld) override {
    @autoreleasepool {
      if (event.handle == nullptr) return Status::invalid("there is no shared event to wait for");
      return device::Point{std::make_shared<ForeignTimeline>(event, open_->listener, MetalQueue::key()), 1};
    }
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions& options,
                                                Ref<device::Source> source, NoLocksHeld) override {
    @autoreleasepool {
      HEDDLE_TRY_ASSIGN(auto weights, Weights::make(open_->device.get(), *prepared.graph, *source));
      return Ref<const device::Module>(std::make_shared<MetalModule>(std::move(prepared), std::move(weights),
                                                                     open_, options.precision == "f16"));
    }
  }

 private:
  const Ref<const OpenDevice> open_;
  device::Traits traits_;
};

Status no_device() {
  return Status::unavailable("there is no Metal device: MTLCreateSystemDefaultDevice() gives none");
}

}  // namespace

Result<Ref<device::Device>> make_metal_device(const MetalOptions& options) {
  @autoreleasepool {
    auto open = std::make_shared<OpenDevice>();
    open->device = Owned<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice());
    if (!open->device) return no_device();
    const id<MTLDevice> device = open->device.get();
    if (![device hasUnifiedMemory]) {
      return Status::unsupported(utf8([device name]), " has memory of its own; the Metal driver needs ",
                                 "unified memory, as Apple silicon has");
    }
    NSProcessInfo* const process = [NSProcessInfo processInfo];
    open->mac = mac_of(device, process);
    if (open->mac.macos_major < kOldestMacos) {
      return Status::unsupported("the Metal driver needs macOS ", kOldestMacos, " or newer; this is ",
                                 utf8([process operatingSystemVersionString]));
    }
    HEDDLE_TRY_ASSIGN(open->kernels, Kernels::make(device, options.defences));
    open->options = options;
    open->limits = options.limits.value_or(Limits::of(open->mac));
    open->memory_bytes = [device recommendedMaxWorkingSetSize];
    open->staging = std::make_shared<Staging>(device, open->memory_bytes);
    open->listener = Owned<MTLSharedEventListener*>::adopt([[MTLSharedEventListener alloc] init]);
    return Ref<device::Device>(std::make_shared<MetalDevice>(std::move(open)));
  }
}

}  // namespace heddle::metal
