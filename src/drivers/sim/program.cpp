#include "drivers/sim/program.h"

#include <algorithm>

#include "drivers/sim/event_loop.h"

namespace heddle::sim {
namespace {

// Keeps a charge for as long as the memory that it is for.
class Charged final : public device::Recycler {
 public:
  explicit Charged(Ref<const void> charge) : charge_(std::move(charge)) {}
  void recycle(std::unique_ptr<device::Memory>, std::vector<device::Point>) noexcept override {}

 private:
  const Ref<const void> charge_;
};

// Memory of the wrapped device, counted by the source of the one that wraps it.
class InnerSource final : public device::Source {
 public:
  InnerSource(device::Device& inner, Ref<device::Source> source)
      : inner_(inner), source_(std::move(source)) {}
  using Source::allocate;
  Result<Ref<device::Buffer>> allocate(uint64_t bytes, device::MemoryKind kind) override {
    HEDDLE_TRY_ASSIGN(Ref<const void> charge, source_->charge(bytes));
    HEDDLE_TRY_ASSIGN(auto memory, inner_.allocate(std::max<uint64_t>(bytes, 64), kind, NoLocksHeld{}));
    return std::make_shared<device::Buffer>(std::move(memory), bytes,
                                            std::make_shared<Charged>(std::move(charge)));
  }
  Result<Ref<const void>> charge(uint64_t bytes) override { return source_->charge(bytes); }

 private:
  device::Device& inner_;
  const Ref<device::Source> source_;
};

std::vector<ir::Extents> extents_of(const ir::Graph& specialised) {
  std::vector<ir::Extents> extents;
  for (const ir::ValueId id : specialised.inputs) extents.push_back(*specialised.type(id).extents());
  return extents;
}

class SimModule final : public device::Module {
 public:
  SimModule(plan::Prepared prepared, Ref<const device::Module> inner, Ref<EventLoop> loop)
      : Module(std::move(prepared)), inner_(std::move(inner)), loop_(std::move(loop)) {}

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph& specialised, uint64_t bytes_max,
                                           NoLocksHeld none) const override {
    HEDDLE_TRY(loop_->enter_call());
    if (loop_->faults().take(Fault::kSlowCompile)) loop_->spend(kSlow);
    if (loop_->faults().take(Fault::kCompile))
      return Status::unavailable("the program was not compiled, as was asked for");
    HEDDLE_TRY_ASSIGN(Ref<const device::Program> program,
                      inner_->compile(extents_of(specialised), bytes_max, none));
    return Ref<const device::Program>(std::make_shared<SimProgram>(std::move(program)));
  }
  Result<plan::ProgramPlan> describe(const ir::Graph& specialised, uint64_t bytes_max,
                                     NoLocksHeld none) const override {
    return inner_->plan(extents_of(specialised), bytes_max, none);
  }

  const Ref<const device::Module> inner_;
  const Ref<EventLoop> loop_;
};

}  // namespace

SimProgram::SimProgram(Ref<const device::Program> inner) : inner_(std::move(inner)) {
  inputs_ = inner_->inputs();
  outputs_ = inner_->outputs();
  arena_bytes_ = inner_->arena_bytes();
  resident_bytes_ = inner_->resident_bytes();
}

Result<Ref<const device::Module>> make_sim_module(device::Device& inner, plan::Prepared prepared,
                                                  const device::LoadOptions& options,
                                                  Ref<device::Source> source, Ref<EventLoop> loop) {
  HEDDLE_TRY_ASSIGN(
      Ref<const device::Module> module,
      inner.make_module(prepared, options, std::make_shared<InnerSource>(inner, std::move(source)),
                        NoLocksHeld{}));
  return Ref<const device::Module>(
      std::make_shared<SimModule>(std::move(prepared), std::move(module), std::move(loop)));
}

}  // namespace heddle::sim
