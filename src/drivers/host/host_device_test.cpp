#include "drivers/host/host_device.h"
#include "device/plain_source_fixture.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "base/thread.h"
#include "drivers/host/machine/cpu_budget.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"

#if !defined(HEDDLE_NO_OPENMP)
extern "C" void omp_set_num_threads(int count);
#endif

namespace heddle::host {
namespace {

using device::View;

// Every kind of oneDNN work: a product, a convolution, a pool, attention.
ir::Graph mixed_graph() {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {ir::DType::kF32, {8, 64, 48}});
  const ir::ValueId conv = *b.node("Conv", {x, b.constant(ir::Tensor::zeros(ir::DType::kF32, {96, 64, 3}))},
                                   {{"pads", std::vector<int64_t>{1, 1}}});
  const ir::ValueId pool = *b.node("MaxPool", {conv}, {{"kernel_shape", std::vector<int64_t>{1}}});
  const ir::ValueId wide =
      *b.node("Linear", {pool, b.constant(ir::Tensor::zeros(ir::DType::kF32, {48, 384}))});
  b.output(*b.node("Attention", {wide}, {{"num_heads", int64_t{4}}, {"packed", int64_t{1}}}));
  return *b.take();
}

struct Running {
  explicit Running(int threads)
      : device(require(make_host_device({.threads = threads}))),
        module(require(device->load(mixed_graph(), {}, device::plain_source(*device), NoLocksHeld()))),
        x(ir::Tensor::zeros(ir::DType::kF32, {8, 64, 48})),
        queue(require(device->make_queue(NoLocksHeld()))) {
    program = require(module->compile({{x.extents()}}, NoLocksHeld()));
    y = ir::Tensor::zeros(ir::DType::kF32, program->outputs()[0].extents);
    arena = require(device::arena_for(*device, *program));
    list.run(program, arena, {view_of(x)}, {view_of(y)});
  }
  void run() { REQUIRE(queue->submit(list, ++value, NoLocksHeld()).ok()); }

  Ref<device::Device> device;
  Ref<const device::Module> module;
  Ref<const device::Program> program;
  ir::Tensor x, y;
  std::unique_ptr<device::Queue> queue;
  Ref<device::Buffer> arena;
  device::CommandList list;
  uint64_t value = 0;
};

#if !defined(HEDDLE_NO_OPENMP)
size_t threads_of_process() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& task : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

TEST_CASE("compiling and running leave the caller's OpenMP setting as it was") {
  Thread("caller", [] {
    for (const int setting : {1, 2, 5}) {
      omp_set_num_threads(setting);
      Running running(2);
      CHECK(omp_threads_here() == setting);
      running.run();
      CHECK(omp_threads_here() == setting);
    }
  }).join();
}

TEST_CASE("no OpenMP worker is ever started, whatever the caller's setting") {
  Thread("caller", [] {
    omp_set_num_threads(4);
    const size_t before = threads_of_process();
    Running running(1);
    for (int i = 0; i < 3; ++i) running.run();
    CHECK(threads_of_process() <= before);  // the system may still count one that has ended
  }).join();
}
#endif

TEST_CASE("the device's description and traits say what it is") {
  const auto device = require(make_host_device({.threads = 3}));
  CHECK(device->traits().name == "host");
  CHECK(device->traits().synchronous);
  CHECK(device->traits().threads == 3);
  CHECK(device->traits().description.find("3 threads, oneDNN 3.") == 0);
}

TEST_CASE("calls in flight keep all processors busy, and compute on no more than the given threads") {
  const int processors = read_budget().processors;
  CHECK(require(make_host_device({.threads = processors}))->traits().queue_depth > processors);
  if (processors > 1) CHECK(require(make_host_device({.threads = 1}))->traits().queue_depth == 1);
}

TEST_CASE("a number of threads that makes no sense is invalid") {
  for (const int threads : {-1, 1'000'000})
    CHECK(make_host_device({.threads = threads}).status().code() == Code::invalid);
}

TEST_CASE("a run without its arena, or with a strided operand, is refused, and nothing is written") {
  Running running(1);
  View strided = view_of(running.x);
  strided.strides = {0, 0, 0};
  device::CommandList lists[2];
  lists[0].run(running.program, nullptr, {view_of(running.x)}, {view_of(running.y)});
  lists[1].run(running.program, running.arena, {strided}, {view_of(running.y)});
  for (const device::CommandList& list : lists) {
    CHECK(running.queue->submit(list, ++running.value, NoLocksHeld()).code() == Code::invalid);
    CHECK(running.queue->timeline()->done(running.value));
  }
  for (int64_t i = 0; i < running.y.elements(); ++i) CHECK(running.y.get(i) == 0);
}

TEST_CASE("a submission that waits for a failed queue is refused, and its own queue goes on") {
  class FailedQueue final : public device::Queue {
   public:
    FailedQueue() : Queue(std::make_shared<device::Timeline>()) {
      timeline()->fail(Status::device_lost("unplugged"), completion());
    }
    Status submit(const device::CommandList&, uint64_t, NoLocksHeld) override { return {}; }
  };
  const FailedQueue failed;
  Running running(1);
  device::CommandList list;
  list.wait({failed.timeline(), 1});
  const Status status = running.queue->submit(list, ++running.value, NoLocksHeld());
  CHECK(status.code() == Code::unavailable);
  CHECK(status.message().find("unplugged") != std::string::npos);
  running.run();
  CHECK_FALSE(running.queue->timeline()->failed());
}

// A product that is never told where its weight lies: oneDNN refuses to run it.
class Headless final : public Step {
 public:
  Headless() : engine_(require(make_engine(false))) {
    using Desc = dnnl::matmul::primitive_desc;
    const Desc desc(engine_->cpu, f32_desc({1, 4}), f32_desc({4, 4}), f32_desc({1, 4}),
                    engine_->attributes());
    product_ = require(Primitive::make<Desc, dnnl::matmul>(
        *engine_, desc, {{DNNL_ARG_SRC, desc.src_desc()}, {DNNL_ARG_DST, desc.dst_desc()}}));
  }
  Status run(const RunContext& /*context*/) const override {
    std::array<float, 4> x{}, y{};
    runs.add_relaxed(1);
    return product_->run(std::array<const void*, 3>{x.data(), y.data(), nullptr});
  }
  static Ref<const device::Program> program() {
    std::vector<HostProgram::Named> steps;
    steps.push_back({"Headless", std::make_unique<Headless>()});
    return std::make_shared<const HostProgram>(std::move(steps));
  }
  static inline Atomic<int> runs{0};

 private:
  Ref<const Engine> engine_;
  Ref<const Primitive> product_;
};

TEST_CASE("a failure inside oneDNN loses its queue by name, wakes its waiters, and spares other queues") {
  Running running(2);
  running.run();
  const auto broken = require(running.device->make_queue(NoLocksHeld()));
  const Ref<device::Timeline> timeline = broken->timeline();
  const auto named = [](const Status& status) {
    return status.code() == Code::device_lost && status.message().find("Headless") != std::string::npos &&
           status.message().find("oneDNN failed with status") != std::string::npos;
  };
  device::CommandList fine, fails;
  fine.run(running.program, running.arena, {view_of(running.x)}, {view_of(running.y)});
  fails.run(Headless::program(), nullptr, {}, {});
  const int runs_before = Headless::runs.load_acquire();
  REQUIRE(broken->submit(fine, 1, NoLocksHeld()).ok());

  // One submits, the others wait for what it submits, on either side of the failure.
  Atomic<int> woken{0}, wrong{0};
  run_together(4, [&](int thread) {
    if (thread == 0) {
      if (!broken->submit(fails, 2, NoLocksHeld()).ok()) wrong.add_relaxed(1);  // it was accepted
      return;
    }
    if (!named(timeline->wait(thread == 1 ? 2 : 7, Deadline::never()))) wrong.add_relaxed(1);
    woken.add_relaxed(1);
  });
  CHECK(woken.load_acquire() == 3);
  CHECK(wrong.load_acquire() == 0);
  CHECK(timeline->failed());
  CHECK(timeline->done(1));
  CHECK_FALSE(timeline->done(2));
  CHECK(timeline->wait(1, Deadline::never()).ok());

  CHECK(named(broken->submit(fine, 3, NoLocksHeld())));
  CHECK(named(broken->submit(fails, 4, NoLocksHeld())));
  CHECK(Headless::runs.load_acquire() == runs_before + 1);
  CHECK_FALSE(timeline->done(3));

  running.y.set(0, 99);
  running.run();
  CHECK(running.y.get(0) == 0);
  CHECK_FALSE(running.queue->timeline()->failed());
}

}  // namespace
}  // namespace heddle::host
