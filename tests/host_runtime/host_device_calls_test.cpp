// The host device under the real runtime, with a step of the test's: callers run at once, and a fault reaches
// the calls it concerns and no other.
#include <doctest/doctest.h>

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "drivers/host/program.h"
#include "ir/builder.h"
#include "runtime/runtime.h"
#include "runtime/test_device_fixture.h"

namespace heddle::host {
namespace {

using device::View;
using runtime::test::Latch;
using runtime::test::Meeting;
using runtime::test::Rows;

struct Fault {
  Latch latch;  // the fault happens when it opens
  Atomic<int> runs{0};
  Atomic<bool> memory_lacks{false}, throws{false};
};

class FaultStep final : public Step {
 public:
  explicit FaultStep(Ref<Fault> fault) : fault_(std::move(fault)) {}
  Status run(const RunContext& /*context*/) const override {
    fault_->runs.add_relaxed(1);
    fault_->latch.wait();
    if (fault_->memory_lacks.load_acquire()) throw std::bad_alloc();
    if (fault_->throws.load_acquire()) throw std::runtime_error("of a library's own kind");
    return Status::internal("the adder gave way");
  }

 private:
  Ref<Fault> fault_;
};

class MeetingStep final : public Step {
 public:
  explicit MeetingStep(Ref<Meeting> meeting) : meeting_(std::move(meeting)) {}
  Status run(const RunContext& /*context*/) const override {
    meeting_->arrive();
    return {};
  }

 private:
  Ref<Meeting> meeting_;
};

// A module without operands, of one step of the test's.
template <class TestStep, class Shared>
class TestModule final : public device::Module {
 public:
  TestModule(plan::Prepared prepared, Ref<Shared> shared)
      : Module(std::move(prepared)), shared_(std::move(shared)) {}

 private:
  Result<Ref<const device::Program>> lower(const ir::Graph&, uint64_t, NoLocksHeld) const override {
    std::vector<HostProgram::Named> steps;
    steps.push_back({graph().name == "fault" ? "Fault" : "Meeting", std::make_unique<TestStep>(shared_)});
    return Ref<const device::Program>(std::make_shared<const HostProgram>(std::move(steps)));
  }

  Ref<Shared> shared_;
};
using FaultModule = TestModule<FaultStep, Fault>;
using MeetingModule = TestModule<MeetingStep, Meeting>;

constexpr uint64_t kMeetings = 20;

// The host device, but for the graphs named "fault" and "meeting".
class FaultyDevice final : public device::Device {
 public:
  FaultyDevice() : host_(*make_host_device({.threads = 2})), traits_(host_->traits()) {
    static Atomic<int> next{0};  // a governor is shared by devices of one name
    traits_.name = text("faulty-host", next.add_relaxed(1));
  }
  const device::Traits& traits() const override { return traits_; }
  const void* maker() const override { return host_->maker(); }
  Result<std::unique_ptr<device::Memory>> allocate(uint64_t bytes, device::MemoryKind kind,
                                                   NoLocksHeld none) override {
    return host_->allocate(bytes, kind, none);
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld none) override {
    return host_->make_queue(none);
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared prepared, const device::LoadOptions& options,
                                                Ref<device::Source> source, NoLocksHeld none) override {
    const std::string& name = prepared.graph->name;
    if (name == "meeting") {
      return Ref<const device::Module>(std::make_shared<MeetingModule>(std::move(prepared), meeting));
    }
    if (name != "fault") return host_->make_module(std::move(prepared), options, std::move(source), none);
    return Ref<const device::Module>(std::make_shared<FaultModule>(std::move(prepared), fault));
  }
  Ref<Fault> fault = std::make_shared<Fault>();
  Ref<Meeting> meeting = std::make_shared<Meeting>(kMeetings);

 private:
  Ref<device::Device> host_;
  device::Traits traits_;
};

ir::Graph without_inputs(std::string name) {
  ir::Builder b(std::move(name));
  b.output(b.constant(ir::Tensor::scalar(ir::DType::kF32, 0)));
  return *b.take();
}

struct Fixture {
  Fixture() {
    fault = *runtime->load(without_inputs("fault"));
    ir::Builder b("identity");
    b.output(*b.node("Identity", {b.input("x", {ir::DType::kF32, {ir::Dim::symbol("batch"), ir::Dim(4)}})}));
    identity = *runtime->load(*b.take());
  }
  Status call(runtime::Model& model, runtime::Stream* stream, Rows* x = nullptr) {
    if (x == nullptr) return runtime->run(model, {.stream = stream}).status();
    const View view = x->view();
    const auto y = runtime->run(model, {.inputs = {&view, 1}, .stream = stream});
    if (!y.ok()) return y.status();
    return runtime::test::values_of(y->front()) == x->values ? Status() : Status::internal("wrong values");
  }

  Ref<FaultyDevice> device = std::make_shared<FaultyDevice>();
  Ref<runtime::Runtime> runtime = *runtime::Runtime::make(device);
  Ref<runtime::Model> fault, identity;
};

bool is_the_fault(const Status& status) {
  return status.code() == Code::device_lost &&
         status.message().find("Fault: the adder gave way") != std::string::npos;
}

TEST_CASE("two callers are inside the host device at once, on streams of their own and without") {
  for (const bool with_stream : {false, true}) {
    CAPTURE(with_stream);
    Fixture f;
    const Ref<runtime::Model> meeting = *f.runtime->load(without_inputs("meeting"));
    Atomic<uint64_t> fine{0};
    run_together(2, [&](int) {
      const auto own = *f.runtime->streams().lease();
      for (uint64_t i = 0; i < kMeetings; ++i)
        fine.add_relaxed(f.call(*meeting, with_stream ? &*own : nullptr).ok() ? 1 : 0);
    });
    CHECK(fine.load_acquire() == 2 * kMeetings);
    CHECK(f.device->meeting->met() == kMeetings);
    CHECK(f.device->meeting->missed() == 0);
  }
}

TEST_CASE("a fault on a stream reaches its caller and all who wait there; other streams go on") {
  Fixture f;
  const auto broken = *f.runtime->streams().lease(), good = *f.runtime->streams().lease();
  Atomic<int> woken{0}, wrong{0}, fine{0};
  run_together(5, [&](int thread) {
    if (thread == 0) {
      if (!is_the_fault(f.call(*f.fault, &*broken))) wrong.add_relaxed(1);
      return;
    }
    runtime::test::wait_until([&] { return f.device->fault->latch.arrived() == 1; });
    if (thread == 1) {  // beside the call that hangs, and after it failed
      Rows x(3, 5);
      for (int i = 0; i < 200; ++i) {
        if (i == 100) f.device->fault->latch.open();
        fine.add_relaxed(f.call(*f.identity, &*good, &x).ok() ? 1 : 0);
      }
      return;
    }
    Status status;
    if (thread == 2) status = broken->synchronize(Deadline::never());
    if (thread == 3) status = broken->record().wait(Deadline::never());
    if (thread == 4) {  // waits for the Turn
      Rows x(3, 7);
      status = f.call(*f.identity, &*broken, &x);
    }
    if (!is_the_fault(status)) wrong.add_relaxed(1);
    woken.add_relaxed(1);
  });
  CHECK(woken.load_acquire() == 3);
  CHECK(wrong.load_acquire() == 0);
  CHECK(fine.load_acquire() == 200);

  Rows x(3, 9);
  const Status refused = f.call(*f.identity, &*broken, &x);
  CHECK(is_the_fault(refused));
  CHECK(refused.message().find(to_string(broken->id()) + " has failed and takes no more work") !=
        std::string::npos);
  CHECK(f.device->fault->runs.load_acquire() == 1);
  CHECK(f.call(*f.identity, &*good, &x).ok());
  CHECK_FALSE(good->failed());
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

TEST_CASE("a call without a stream gets the fault, and the next one another stream") {
  Fixture f;
  f.device->fault->latch.open();
  Rows x(3, 5);
  for (int i = 0; i < 5; ++i) {
    CHECK(is_the_fault(f.call(*f.fault, nullptr)));
    CHECK(f.call(*f.identity, nullptr, &x).ok());
  }
  CHECK(f.device->fault->runs.load_acquire() == 5);
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

TEST_CASE("a step that finds no memory is refused, and its stream goes on") {
  for (const bool with_stream : {false, true}) {
    CAPTURE(with_stream);
    Fixture f;
    f.device->fault->latch.open();
    f.device->fault->memory_lacks.store_release(true);
    const auto lease = *f.runtime->streams().lease();
    runtime::Stream* const stream = with_stream ? &*lease : nullptr;
    for (int i = 0; i < 3; ++i) {
      CHECK(f.call(*f.fault, stream).code() == Code::exhausted);
      REQUIRE(f.runtime->synchronize(Deadline::in(std::chrono::seconds(5))).ok());
      Rows x(3, 5);
      CHECK(f.call(*f.identity, stream, &x).ok());
    }
    CHECK(f.runtime->governor().stats().in_flight == 0);
  }
}

TEST_CASE("an exception of a step's own kind is a fault of the device: waits for it end, others go on") {
  for (const bool with_stream : {false, true}) {
    CAPTURE(with_stream);
    Fixture f;
    f.device->fault->latch.open();
    f.device->fault->throws.store_release(true);
    const auto lease = *f.runtime->streams().lease();
    const Status status = f.call(*f.fault, with_stream ? &*lease : nullptr);
    CHECK(status.code() == Code::device_lost);
    CHECK_MESSAGE(status.message().find("of a library's own kind") != std::string::npos, status.message());
    if (with_stream)
      CHECK(lease->synchronize(Deadline::in(std::chrono::seconds(5))).code() == Code::device_lost);
    Rows x(3, 5);
    CHECK(f.call(*f.identity, nullptr, &x).ok());
    CHECK(f.runtime->governor().stats().in_flight == 0);
  }
}

}  // namespace
}  // namespace heddle::host
