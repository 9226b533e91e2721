#include <chrono>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "driver_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

using ir::DType;
using ir::Extents;

ir::Tensor numbers(const Extents& extents, double first, double step = 1) {
  ir::Tensor tensor = ir::Tensor::zeros(DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, first + step * static_cast<double>(i));
  return tensor;
}

Result<Ref<const device::Module>> load_scaling(device::Device& device, double factor) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 4}});
  b.output(*b.node("Mul", {x, b.constant(ir::Tensor::scalar(DType::kF32, factor))}));
  return device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
}

// Gather with indices from outside: only the data can show that one is out of range.
Result<Ref<const device::Module>> load_lookup(device::Device& device) {
  ir::Builder b;
  const ir::ValueId table = b.constant(numbers({5, 2}, 0)), indices = b.input("indices", {DType::kI64, {3}});
  b.output(*b.node("Gather", {table, indices}, {}, "lookup"));
  return device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
}

DRIVER_TEST(commands_in_order, "a queue does its commands in order") {
  HEDDLE_TRY_ASSIGN(const auto module, load_scaling(device, 3));
  const ir::Tensor ones = numbers({2, 4}, 1, 0);
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {ones}));
  Session session(device);
  const device::View a = upload(device, ones), b = empty_like(device, DType::kF32, {2, 4}),
                     c = empty_like(device, DType::kF32, {2, 4});
  device::CommandList list;
  list.fill(a, 2);
  list.run(program, *session.arena_for(*program), {a}, {b});
  list.copy(b, a);
  list.run(program, *session.arena_for(*program), {a}, {c});
  list.fill(b, 0);
  HEDDLE_TRY(session.submit(list));
  CHECK(download(device, c).get(7) == 18);
  CHECK(download(device, b).get(7) == 0);
  CHECK(download(device, a).get(7) == 6);
  return {};
}

DRIVER_TEST(values_grow_by_one, "a timeline reaches each submission's value in turn") {
  Session session(device);
  const device::View a = empty_like(device, DType::kI32, {3});
  for (uint64_t value = 1; value <= 20; ++value) {
    device::CommandList list;
    list.fill(a, static_cast<double>(value));
    HEDDLE_TRY(session.submit(list));
    CHECK(session.queue().timeline()->done(value));
    CHECK_FALSE(session.queue().timeline()->done(value + 1));
    CHECK(download(device, a).get_i64(2) == static_cast<int64_t>(value));
  }
  return {};
}

DRIVER_TEST(strided_copies, "copies between strided views move each element to its place") {
  Session session(device);
  for (DType dtype : {DType::kU8, DType::kF16, DType::kF32, DType::kI64}) {
    const ir::Tensor tensor = random_tensor(dtype, {3, 4, 5}, 1, 0, 100);
    const device::View from = upload_strided(device, tensor),
                       to = upload_strided(device, random_tensor(dtype, {3, 4, 5}, 2, 0, 100));
    device::CommandList list;
    list.copy(from, to);
    HEDDLE_TRY(session.submit(list));
    CHECK(same_bits(download(device, to), tensor));
  }
  return {};
}

DRIVER_TEST(a_wait_orders_two_queues,
            "a wait for another queue's point sees what was written before that point") {
  constexpr int kRounds = 100;
  Session first(device), second(device);
  const device::View shared = empty_like(device, DType::kI32, {64}),
                     seen = empty_like(device, DType::kI32, {64});
  Atomic<int> wrong{0};
  // Each side waits for the other's last point, so the two threads take turns however they are scheduled.
  const auto writes = [&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      device::CommandList list;
      list.wait({second.queue().timeline(), i - 1});
      list.fill(shared, static_cast<double>(i));
      if (!first.submit(list).ok()) wrong.add_relaxed(1);
    }
  };
  const auto reads = [&] {
    for (uint64_t i = 1; i <= kRounds; ++i) {
      device::CommandList list;
      list.wait({first.queue().timeline(), i});
      list.copy(shared, seen);
      if (!second.submit(list).ok()) wrong.add_relaxed(1);
      if (download(device, seen).get_i64(63) != static_cast<int64_t>(i)) wrong.add_relaxed(1);
    }
  };
  {
    const Thread reader("reader", reads);
    writes();
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(second.queue().timeline()->reached() == kRounds);
  return {};
}

DRIVER_TEST(data_failure_goes_on, "what only the data shows to be wrong is named, and the queue goes on") {
  HEDDLE_TRY_ASSIGN(const auto module, load_lookup(device));
  const ir::Tensor good = ir::Tensor::of_i64({4, 0, -1});
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {good}));
  Session session(device);
  for (int round = 0; round < 3; ++round) {
    for (const int64_t bad : {int64_t{5}, int64_t{-6}, INT64_MAX}) {
      const auto refused = session.run(program, std::vector<ir::Tensor>{ir::Tensor::of_i64({1, bad, 2})});
      CHECK(refused.status().code() == Code::invalid);
      CHECK_MESSAGE(refused.status().message().find("lookup") != std::string::npos,
                    refused.status().message());
      CHECK_FALSE(session.queue().timeline()->failed());
    }
    HEDDLE_TRY_ASSIGN(const auto got, session.run(program, std::vector<ir::Tensor>{good}));
    CHECK(got[0].get(0) == 8);
    CHECK(got[0].get(5) == 9);
  }
  return {};
}

DRIVER_TEST(wrong_operands_are_refused,
            "a run whose operands are not what the program was compiled for is refused") {
  HEDDLE_TRY_ASSIGN(const auto module, load_scaling(device, 3));
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {numbers({2, 4}, 1)}));
  Session session(device);
  CHECK(session.run(program, std::vector<ir::Tensor>{numbers({3, 4}, 1)}).status().code() == Code::invalid);
  CHECK(session.run(program, std::vector<ir::Tensor>{}).status().code() == Code::invalid);
  CHECK(
      session.run(program, std::vector<ir::Tensor>{random_tensor(DType::kI32, {2, 4}, 1)}).status().code() ==
      Code::invalid);
  CHECK(session.run(program, std::vector<ir::Tensor>{numbers({2, 4}, 1)}).ok());
  return {};
}

DRIVER_TEST(shapes_that_contradict_are_refused, "extents that the graph cannot take are invalid at compile") {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("n"), 4}}),
                    y = b.input("y", {DType::kF32, {ir::Dim::symbol("n"), 4}});
  b.output(*b.node("Add", {x, y}));
  HEDDLE_TRY_ASSIGN(const auto module,
                    device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld()));
  CHECK(compile(*module, {numbers({2, 4}, 0), numbers({3, 4}, 0)}).status().code() == Code::invalid);
  CHECK(compile(*module, {numbers({2, 4}, 0), numbers({2, 4}, 0)}).ok());
  return {};
}

DRIVER_TEST(memory_is_bounded, "memory that is not there is exhausted, and does not harm what is") {
  CHECK(device.allocate(device.traits().memory_bytes + 1, device::MemoryKind::device, NoLocksHeld())
            .status()
            .code() == Code::exhausted);
  CHECK(device.allocate(UINT64_MAX, device::MemoryKind::device, NoLocksHeld()).status().code() ==
        Code::exhausted);
  const auto memory = device.allocate(1 << 20, device::MemoryKind::device, NoLocksHeld());
  REQUIRE(memory.ok());
  CHECK((*memory)->bytes() == 1 << 20);
  CHECK((*memory)->address() % 64 == 0);
  return {};
}

DRIVER_TEST(programs_outlive_modules,
            "a program runs after its module's last reference is gone, and gives all back after its own") {
  std::weak_ptr<const device::Module> module_seen;
  std::weak_ptr<const device::Program> program_seen;
  {
    Ref<const device::Program> program;
    ir::Builder b;
    const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), 64}});
    const ir::Tensor weight = random_tensor(DType::kF32, {64, 96}, 3);
    b.output(*b.node("MatMul", {x, b.constant(weight)}));
    const ir::Graph graph = *b.take();
    const std::vector<ir::Tensor> inputs = {random_tensor(DType::kF32, {5, 64}, 4)};
    {
      HEDDLE_TRY_ASSIGN(auto module, device.load(graph, {}, device::plain_source(device), NoLocksHeld()));
      module_seen = module;
      HEDDLE_TRY_ASSIGN(program, compile(*module, inputs));
      module.reset();
    }
    program_seen = program;
    HEDDLE_TRY_ASSIGN(const auto got, Session(device).run(program, inputs));
    HEDDLE_TRY_ASSIGN(const auto wanted, ir::evaluate(graph, inputs));
    CHECK(difference(got[0], wanted[0], {1e-4, 1e-4}) == "");
  }
  CHECK(program_seen.expired());
  CHECK(module_seen.expired());
  return {};
}

DRIVER_TEST(an_unknown_precision_is_refused,
            "a precision that the driver does not have is unsupported, by name") {
  ir::Builder b;
  b.output(*b.node("Relu", {b.input("x", {DType::kF32, {2}})}));
  device::LoadOptions options;
  options.precision = "q3";
  const auto module = device.load(*b.take(), options, device::plain_source(device), NoLocksHeld());
  CHECK(module.status().code() == Code::unsupported);
  CHECK(module.status().message().find("q3") != std::string::npos);
  return {};
}

}  // namespace
}  // namespace heddle::conformance
