#include "drivers/host/host_device.h"

#include <algorithm>
#include <dnnl.hpp>
#include <memory>
#include <utility>

#include "base/first_uses.h"
#include "base/no_memory.h"
#include "base/seam.h"
#include "device/device.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/machine/core_affinity.h"
#include "drivers/host/machine/cpu_budget.h"
#include "drivers/host/machine/team.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/product_tuning.h"
#include "drivers/host/program.h"

namespace heddle::host {
namespace {

constexpr int kThreads = 1024;
constexpr int kFewestRuns = 8;  // half of what a primitive is ready for: callers may ask for more lanes

class HostMemory final : public device::Memory {
 public:
  HostMemory(const void* maker, AlignedBytes block)
      : Memory({maker, device::MemoryKind::device, block.data(), reinterpret_cast<uintptr_t>(block.data()),
                block.size()}),
        block_(std::move(block)) {}

 private:
  AlignedBytes block_;
};

class HostQueue final : public device::Queue {
 public:
  explicit HostQueue(Team& team) : Queue(std::make_shared<device::Timeline>()), team_(team) {}

  Status submit(const device::CommandList& list, uint64_t value, NoLocksHeld) override {
    if (timeline()->failed()) return timeline()->failure();
    const Status status = execute_all(list);
    // What neither the data nor a lack of memory explains is a fault of the device: nothing after it can be
    // trusted.
    if (status.code() == Code::internal || status.code() == Code::device_lost) {
      timeline()->fail(Status::device_lost("the host device failed: ", status.message()), completion());
      return {};
    }
    timeline()->advance(value, completion());
    return status;
  }

 private:
  // No exception leaves: the submission's value would never be reached.
  Status execute_all(const device::CommandList& list) {
    try {
      return or_exhausted("a submission", [&] {
        for (const device::Command& command : list)
          HEDDLE_TRY(std::visit([&](const auto& c) { return execute(c); }, command));
        return Status();
      });
    } catch (const std::exception& error) {
      return Status::internal("an exception, ", error.what());
    }
  }
  Status execute(const device::Wait& wait) {
    if (wait.point.done()) return {};
    const Status status = wait.point.timeline->wait(wait.point.value, Deadline::never());
    // The other queue is lost, ours is not: this submission is refused.
    if (!status.ok())
      return Status::unavailable("a submission that this one waits for has failed: ", status.message());
    return {};
  }
  Status execute(const device::Run& run) {
    return static_cast<const HostProgram&>(*run.program).run(run, team_);
  }
  Status execute(const device::Copy& copy) {
    if (copy.from.dtype != copy.to.dtype || !(copy.from.extents == copy.to.extents)) {
      return Status::invalid("a copy from ", copy.from.dtype, copy.from.extents, " to ", copy.to.dtype,
                             copy.to.extents, "; both have to be of one dtype and shape");
    }
    copy_view(copy.from, copy.to);
    return {};
  }
  Status execute(const device::Fill& fill) {
    fill_view(fill.to, fill.value);
    return {};
  }

  Status execute(const device::Signal&) {
    return Status::unsupported("the host device has no events that others could wait for");
  }

  Team& team_;
};

// More calls than threads, where every processor computes already. When a call ends, the next caller first
// has to wake up, and the kernel may put it behind the other call while the processor that became free stays
// idle: with as many calls as processors 13 % of the time with calls of 8 ms, 40 % with 0.1 ms.
// As many again keep them busy. Where processors are left over they would only use up the quota, or threads
// the user did not give.
int queue_depth_for(int threads, int processors) { return threads < processors ? threads : 2 * threads; }

std::string nodes_text(const Nodes& nodes, bool copies_weights) {
  if (nodes.count() == 1) return "1";
  if (!copies_weights) return text(nodes.count(), ": weights are read from where they were packed");
  return text(nodes.count(),
              ": weights beyond a node's last cache are copied to it where a quarter of its free "
              "memory has room");
}

class HostDevice final : public device::Device {
 public:
  HostDevice(int threads, const Budget& budget, const Nodes& nodes, const HostOptions& options)
      : nodes_(options.copies_weights && nodes.count() > 1 ? std::make_shared<const Nodes>(nodes) : nullptr),
        // Its helpers read the nodes for as long as it lives, which may be longer than the device.
        team_(new Team(threads, Clock::real(), nodes_.get()),
              [nodes = nodes_](const Team* team) { delete team; }) {
    if (const HostTuning& tuning = options.tuning; tuning.on) {
      tuning_ = std::make_shared<ProductTuning>(Tuner::Options{.all = tuning.all,
                                                               .folder = tuning.folder,
                                                               .identity = tuning_identity(budget.processors),
                                                               .warn = tuning.warn,
                                                               .clock = tuning.clock},
                                                team_);
    }
    const dnnl_version_t* version = dnnl_version();
    traits_.name = "host";
    traits_.description = text(threads, threads == 1 ? " thread" : " threads", ", oneDNN ", version->major,
                               ".", version->minor, ".", version->patch);
    traits_.facts = {
        {"arithmetic", text("oneDNN ", version->major, ".", version->minor, ".", version->patch)},
        {"processors", budget.why()},
        {"memory nodes", nodes_text(nodes, options.copies_weights)},
        {"products", tuning_ == nullptr         ? "cut by rule"
                     : tuning_->where().empty() ? "cut as measured, for this process only"
                                                : text("cut as measured, kept in ", tuning_->where())}};
    traits_.binding.caller_memory = true;
    traits_.unified_memory = true;
    traits_.synchronous = true;
    traits_.grouped_products = true;
    traits_.precisions = {"f32", "bf16"};
    traits_.threads = threads;
    traits_.lanes = threads;
    traits_.queue_depth = queue_depth_for(threads, budget.processors);
    traits_.memory_bytes = budget.memory_bytes;
  }

  const device::Traits& traits() const override { return traits_; }

  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind, NoLocksHeld) override {
    HEDDLE_TRY_ASSIGN(AlignedBytes block, AlignedBytes::make(bytes, traits_.memory_bytes));
    return std::unique_ptr<device::Memory>(std::make_unique<HostMemory>(this, std::move(block)));
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override {
    return std::unique_ptr<device::Queue>(std::make_unique<HostQueue>(*team_));
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions& options,
                                                Ref<device::Source> source, NoLocksHeld) override {
    HEDDLE_TRY_ASSIGN(auto engine, make_engine(options.precision == "bf16", options.exact, tuning_,
                                               2 * std::max(traits_.threads, kFewestRuns)));
    return Ref<const device::Module>(std::make_shared<HostModule>(std::move(prepared), std::move(engine),
                                                                  std::move(source), team_->width(), nodes_));
  }

 private:
  device::Traits traits_;
  const Ref<const Nodes> nodes_;  // null: there is one, or weights are not copied
  Ref<Team> team_;
  Ref<ProductTuning> tuning_;  // null: off
};

}  // namespace

Result<Ref<device::Device>> make_host_device(const HostOptions& options) {
  if (options.threads < 0 || options.threads > kThreads) {
    return Status::invalid("threads is ", options.threads, "; it has to be 0 (all cores of the budget) to ",
                           kThreads);
  }
  const Budget budget = read_budget(options.root);
  int threads = options.threads > 0 ? options.threads : budget.cores;
  // One thread runs at a time there, and the machine's cores are no decision of the seed's.
  if (seam::simulated()) threads = 1;
  int (*const core)() = options.core != nullptr ? options.core : this_core;
  const Nodes nodes = Nodes::read(seam::simulated() ? Budget{} : budget, options.root, core);
  // What oneDNN keeps for the whole process is older than the handler of exit() then, and outlives it.
  HEDDLE_TRY(make_engine(false, false, nullptr, 1).status());
  FirstUses::of_process().note({"made an engine"});  // another device may have registered that handler
  return Ref<device::Device>(std::make_shared<HostDevice>(threads, budget, nodes, options));
}

}  // namespace heddle::host
