#include "drivers/sim/sim_device.h"

#include <algorithm>
#include <cstring>

#include "base/thread.h"
#include "drivers/sim/event_loop.h"
#include "drivers/sim/memory.h"
#include "drivers/sim/program.h"
#include "drivers/sim/queue.h"

namespace heddle::sim {

using device::MemoryKind;

namespace {

constexpr uint64_t kPoisonedWhenNew = 64 << 10;

class WrappingDevice final : public SimDevice {
 public:
  WrappingDevice(Ref<device::Device> inner, const SimOptions& options, std::unique_ptr<InnerQueue> queue)
      : inner_(std::move(inner)),
        options_(options),
        loop_(std::make_shared<EventLoop>(options, std::move(queue), SimQueue::key())) {
    const device::Traits& traits = inner_->traits();
    traits_.name = options.name;
    traits_.description =
        text("simulated with seed ", options.seed, " on ", traits.name, ": ", traits.description);
    traits_.binding.offsets = options.offsets;
    traits_.precisions = traits.precisions;
    traits_.lanes = options.lanes;
    traits_.queue_depth = options.queue_depth;
    traits_.runs_together = options.runs_together;
    traits_.row_sizes = options.row_sizes;
    traits_.grouped_products = inner_->traits().grouped_products;
    traits_.events = "heddle::sim::SimEvent";
    const uint64_t bytes = options.memory_bytes != 0 ? options.memory_bytes : traits.memory_bytes;
    traits_.memory_bytes = traits_.staging_bytes = bytes;
    traits_.facts = traits.facts;
    traits_.facts.push_back({"seed", text(options.seed)});
  }
  ~WrappingDevice() override { loop_->stop(); }
  Status start() {
    HEDDLE_TRY_ASSIGN(thread_, Thread::start("heddle-sim", [loop = loop_] { loop->run(); }));
    return {};
  }

  const device::Traits& traits() const override { return traits_; }
  Status lost() const override { return loop_->lost(); }
  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, MemoryKind kind, NoLocksHeld) override {
    HEDDLE_TRY(loop_->enter_call());
    const bool refused =
        loop_->faults().take(kind == MemoryKind::staging ? Fault::kStagingMemory : Fault::kDeviceMemory);
    if (loop_->faults().take(Fault::kAllocation) || refused)
      return Status::exhausted("an allocation of ", bytes, " bytes was refused, as was asked for");
    HEDDLE_TRY_ASSIGN(Ref<device::Buffer> own, make_inner(bytes));
    Ref<device::Buffer> hosts;
    if (kind == MemoryKind::staging) {
      HEDDLE_TRY_ASSIGN(hosts, make_inner(bytes));
    }
    return std::unique_ptr<device::Memory>(std::make_unique<SimMemory>(
        maker(), kind, std::make_shared<Block>(std::move(own), std::move(hosts)), loop_));
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override {
    HEDDLE_TRY(loop_->enter_call());
    HEDDLE_TRY(lost());
    if (loop_->faults().take(Fault::kQueue))
      return Status::exhausted("a queue was refused, as was asked for");
    return std::unique_ptr<device::Queue>(std::make_unique<SimQueue>(maker(), loop_, options_));
  }
  Result<device::Point> import_event(const device::ForeignEvent& event, NoLocksHeld) override {
    if (event.handle == nullptr) return Status::invalid("there is no event to wait for");
    HEDDLE_TRY(loop_->enter_call());
    return loop_->import_event(static_cast<SimEvent*>(event.handle)->shared_from_this());
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions& options,
                                                Ref<device::Source> source, NoLocksHeld) override {
    HEDDLE_TRY(loop_->enter_call());
    if (loop_->faults().take(Fault::kLoad))
      return Status::unavailable("the model was not loaded, as was asked for");
    return make_sim_module(*inner_, std::move(prepared), options, std::move(source), loop_);
  }

  std::vector<Found> violations() const override { return loop_->violations(); }
  Faults<Fault>& faults() override { return loop_->faults(); }
  void hold() override { loop_->hold(); }
  void release() override { loop_->release(); }
  void deliver_lost() override { loop_->deliver_lost(); }
  void await_idle() override { loop_->await_idle(); }
  void check_host_read(const device::Buffer& buffer) override {
    if (const auto* memory = dynamic_cast<const SimMemory*>(&buffer.memory()))
      loop_->check_host_read(*memory->block());
  }
  SimStats stats() const override { return loop_->stats(); }
  std::vector<Happened> history() const override { return loop_->history(); }
  const Clock& clock() const override { return loop_->clock(); }

 private:
  Result<Ref<device::Buffer>> make_inner(uint64_t bytes) {
    HEDDLE_TRY_ASSIGN(auto memory, inner_->allocate(bytes, MemoryKind::device, NoLocksHeld{}));
    if (bytes > 0) std::memset(memory->host(), kPoison, std::min(bytes, kPoisonedWhenNew));
    return std::make_shared<device::Buffer>(std::move(memory), bytes, nullptr);
  }

  const Ref<device::Device> inner_;
  const SimOptions options_;
  device::Traits traits_;
  const Ref<EventLoop> loop_;
  Thread thread_;
};

}  // namespace

Result<Ref<SimDevice>> make_sim_device(Ref<device::Device> inner, const SimOptions& options) {
  const device::Traits& traits = inner->traits();
  if (!traits.synchronous || !traits.unified_memory) {
    return Status::invalid("device '", traits.name,
                           "' cannot be simulated on: it is not synchronous, or has memory of its own");
  }
  HEDDLE_TRY_ASSIGN(auto queue, inner->make_queue(NoLocksHeld{}));
  auto device =
      std::make_shared<WrappingDevice>(inner, options, std::make_unique<InnerQueue>(inner, std::move(queue)));
  HEDDLE_TRY(device->start());
  return Ref<SimDevice>(std::move(device));
}

}  // namespace heddle::sim
