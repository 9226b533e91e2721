#include <array>

#include "base/thread.h"
#include "driver.h"
#include "ir/builder.h"
#include "session.h"

namespace heddle::conformance {
namespace {

using ir::DType;
using ir::Extents;

// Large enough that a lone caller shares its loops with helpers, small enough for the sanitizers.
Result<Ref<const device::Module>> load_encoder(device::Device& device) {
  constexpr int64_t kWidth = 128;
  ir::Builder b;
  uint32_t seed = 1;
  const auto constant = [&](const Extents& e) {
    return b.constant(random_tensor(DType::kF32, e, seed++, -0.2, 0.2));
  };
  ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), ir::Dim::symbol("seq"), kWidth}});
  for (int layer = 0; layer < 2; ++layer) {
    const ir::ValueId qkv = *b.node("Linear", {x, constant({kWidth, 3 * kWidth}), constant({3 * kWidth})});
    const ir::ValueId attended =
        *b.node("Attention", {qkv}, {{"num_heads", int64_t{4}}, {"packed", int64_t{1}}});
    const ir::ValueId joined = *b.node("Linear", {attended, constant({kWidth, kWidth}), ir::kNoValue, x});
    const ir::ValueId normal =
        *b.node("LayerNormalization", {joined, constant({kWidth}), constant({kWidth})});
    const ir::ValueId wide =
        *b.node("Linear", {normal, constant({kWidth, 2 * kWidth}), constant({2 * kWidth})},
                {{"activation", std::string("gelu")}});
    x = *b.node("Linear", {wide, constant({2 * kWidth, kWidth}), ir::kNoValue, normal});
  }
  b.output(x);
  return device.load(*b.take(), {}, NoLocksHeld());
}

ir::Tensor sentence(int64_t batch, int64_t seq, uint32_t seed) {
  return random_tensor(DType::kF32, {batch, seq, 128}, seed);
}

DRIVER_TEST(eight_threads_one_program, "8 threads that run one program get the bits of the sequential run") {
  constexpr int kThreads = 8, kRuns = 12, kKinds = 5;
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device));
  HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {sentence(2, 32, 0)}));
  std::vector<ir::Tensor> wanted;
  Session alone(device);
  for (uint32_t kind = 0; kind < kKinds; ++kind) {
    HEDDLE_TRY_ASSIGN(const auto got, alone.run(program, std::vector<ir::Tensor>{sentence(2, 32, kind)}));
    wanted.push_back(got[0]);
  }
  Atomic<int> runs{0}, wrong{0};
  {
    std::vector<Thread> threads;
    for (uint32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back("caller", [&, t] {
        Session own(device);
        for (uint32_t i = 0; i < kRuns; ++i) {
          const uint32_t kind = (t + i) % kKinds;
          const auto got = own.run(program, std::vector<ir::Tensor>{sentence(2, 32, kind)});
          if (!got.ok() || !same_bits((*got)[0], wanted[kind])) wrong.add_relaxed(1);
          runs.add_relaxed(1);
        }
      });
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(runs.load_acquire() == kThreads * kRuns);
  return {};
}

DRIVER_TEST(threads_compile_beside_runs,
            "threads that compile and run different shapes of one module do not disturb each other") {
  constexpr int kThreads = 6, kShapes = 8;
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device));
  std::vector<ir::Tensor> wanted;
  {
    HEDDLE_TRY_ASSIGN(const auto reference,
                      load_encoder(device));  // a module of its own: `module` starts cold
    for (int64_t shape = 0; shape < kShapes; ++shape) {
      const std::vector<ir::Tensor> inputs = {
          sentence(1 + shape % 3, 5 + 7 * shape, static_cast<uint32_t>(shape))};
      HEDDLE_TRY_ASSIGN(const auto program, compile(*reference, inputs));
      HEDDLE_TRY_ASSIGN(const auto got, Session(device).run(program, inputs));
      wanted.push_back(got[0]);
    }
  }
  Atomic<int> runs{0}, wrong{0};
  {
    std::vector<Thread> threads;
    for (int64_t t = 0; t < kThreads; ++t) {
      threads.emplace_back("caller", [&, t] {
        Session own(device);
        for (int64_t i = 0; i < kShapes; ++i) {
          const int64_t shape = (t * 3 + i) % kShapes;
          const std::vector<ir::Tensor> inputs = {
              sentence(1 + shape % 3, 5 + 7 * shape, static_cast<uint32_t>(shape))};
          const auto program = compile(*module, inputs);
          if (!program.ok()) {
            wrong.add_relaxed(1);
            continue;
          }
          const auto got = own.run(*program, inputs);
          if (!got.ok() || !same_bits((*got)[0], wanted[static_cast<size_t>(shape)])) wrong.add_relaxed(1);
          runs.add_relaxed(1);
        }
      });
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(runs.load_acquire() == kThreads * kShapes);
  return {};
}

DRIVER_TEST(bits_of_a_row_do_not_depend_on_its_neighbours, "a row's bits are those of the row alone") {
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device));
  Session session(device);
  const ir::Tensor row = sentence(1, 24, 7);
  HEDDLE_TRY_ASSIGN(const auto single, compile(*module, {row}));
  HEDDLE_TRY_ASSIGN(const auto wanted, session.run(single, std::vector<ir::Tensor>{row}));
  for (const int64_t batch : {2, 5, 16}) {
    ir::Tensor joined = ir::Tensor::zeros(DType::kF32, {batch, 24, 128});
    for (int64_t i = 0; i < joined.elements(); ++i)
      joined.set(i, row.get(i % row.elements()) * (i < row.elements() ? 1 : 0.5));
    HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {joined}));
    HEDDLE_TRY_ASSIGN(const auto got, session.run(program, std::vector<ir::Tensor>{joined}));
    int different = 0;
    for (int64_t i = 0; i < row.elements(); ++i)
      different += got[0].as<float>()[i] != wanted[0].as<float>()[i] ? 1 : 0;
    CHECK(different == 0);
  }
  return {};
}

}  // namespace
}  // namespace heddle::conformance
