#include <array>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "driver_fixture.h"
#include "ir/builder.h"
#include "session_fixture.h"
#include "tests/emulated_fixture.h"
#include "tests/sanitized_fixture.h"

namespace heddle::conformance {
namespace {

using ir::DType;
using ir::Extents;

// The host shares a lone caller's products with idle cores, and promises the same bits however they are cut
// to exact models only: not every processor's kernels of oneDNN have them otherwise.
bool has_to_be_exact(const Driver& driver) { return driver.name == std::string_view("host"); }

// Large enough that a lone caller shares its loops with helpers, small enough for the sanitizers.
Result<Ref<const device::Module>> load_encoder(device::Device& device, bool exact = false) {
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
  return device.load(*b.take(), {.exact = exact}, device::plain_source(device), NoLocksHeld());
}

ir::Tensor sentence(int64_t batch, int64_t seq, uint32_t seed) {
  return random_tensor(DType::kF32, {batch, seq, 128}, seed);
}

// Eight threads run one program on inputs in turn; each run gives the bits of the sequential run.
Status check_eight_threads(device::Device& device, const device::Module& module,
                           const std::vector<std::vector<ir::Tensor>>& inputs) {
  constexpr int kThreads = 8, kRuns = test::kEmulated ? 2 : test::kSanitized ? 5 : 12;
  HEDDLE_TRY_ASSIGN(const auto program, compile(module, inputs[0]));
  std::vector<std::vector<ir::Tensor>> wanted;
  Session alone(device);
  for (const std::vector<ir::Tensor>& each : inputs) {
    HEDDLE_TRY_ASSIGN(auto got, alone.run(program, each));
    wanted.push_back(std::move(got));
  }
  Atomic<int> runs{0}, wrong{0};
  {
    std::vector<Thread> threads;
    for (size_t t = 0; t < kThreads; ++t) {
      threads.emplace_back("caller", [&, t] {
        Session own(device);
        for (size_t i = 0; i < kRuns; ++i) {
          const size_t kind = (t + i) % inputs.size();
          const auto got = own.run(program, inputs[kind]);
          bool same = got.ok();
          for (size_t k = 0; same && k < got->size(); ++k) same = same_bits((*got)[k], wanted[kind][k]);
          if (!same) wrong.add_relaxed(1);
          runs.add_relaxed(1);
        }
      });
    }
  }
  CHECK(wrong.load_acquire() == 0);
  CHECK(runs.load_acquire() == kThreads * kRuns);
  return {};
}

DRIVER_TEST(eight_threads_one_program, "8 threads that run one program get the bits of the sequential run") {
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device, has_to_be_exact(driver)));
  std::vector<std::vector<ir::Tensor>> inputs;
  for (uint32_t kind = 0; kind < 5; ++kind) inputs.push_back({sentence(2, 32, kind)});
  return check_eight_threads(device, *module, inputs);
}

using Body = std::shared_ptr<const ir::Graph>;

// x[2, 32] -> tanh(x w) or relu(x) / 2; a loop around it that chooses by the sum of x each time
Result<Body> choosing_body() {
  const auto branch = [](bool first) -> Result<Body> {
    ir::Builder b("branch");
    const ir::ValueId x = b.input("x", {DType::kF32, {2, 32}}), w = b.input("w", {DType::kF32, {32, 32}});
    const ir::ValueId half = b.constant(ir::Tensor::scalar(DType::kF32, 0.5));
    b.output(first ? *b.node("Tanh", {*b.node("MatMul", {x, w})})
                   : *b.node("Mul", {*b.node("Relu", {x}), half}));
    HEDDLE_TRY_ASSIGN(ir::Graph graph, b.take());
    return Body(std::make_shared<const ir::Graph>(std::move(graph)));
  };
  HEDDLE_TRY_ASSIGN(Body yes, branch(true));
  HEDDLE_TRY_ASSIGN(Body no, branch(false));
  ir::Builder b("body");
  b.input("i", {DType::kI64, {}});
  const ir::ValueId go = b.input("go", {DType::kBool, {}});
  const ir::ValueId x = b.input("x", {DType::kF32, {2, 32}}), w = b.input("w", {DType::kF32, {32, 32}});
  const ir::ValueId sum = *b.node("ReduceSum", {x}, {{"keepdims", int64_t{0}}});
  const ir::ValueId positive = *b.node("Greater", {sum, b.constant(ir::Tensor::scalar(DType::kF32, 0))});
  b.output(*b.node("Identity", {go}));
  b.output(*b.node("If", {positive, x, w}, {{"then_branch", yes}, {"else_branch", no}}));
  b.output(sum);
  HEDDLE_TRY_ASSIGN(ir::Graph graph, b.take());
  return Body(std::make_shared<const ir::Graph>(std::move(graph)));
}

DRIVER_TEST(eight_threads_with_state,
            "8 threads that run recurrent nodes, loops and branches that data chooses share nothing") {
  HEDDLE_TRY_ASSIGN(const Body body, choosing_body());
  ir::Builder b;
  const auto constant = [&](const Extents& e, uint32_t seed) {
    return b.constant(random_tensor(DType::kF32, e, seed, -0.3, 0.3));
  };
  const ir::ValueId x = b.input("x", {DType::kF32, {20, 2, 16}}), h = b.input("h", {DType::kF32, {2, 2, 16}}),
                    c = b.input("c", {DType::kF32, {2, 2, 16}});
  const auto last = *b.nodes(
      "LSTM", {x, constant({2, 64, 16}, 1), constant({2, 64, 16}, 2), ir::kNoValue, ir::kNoValue, h, c}, 3,
      {{"direction", std::string("bidirectional")}});
  for (ir::ValueId id : last) b.output(id);
  const ir::ValueId both = *b.node("Transpose", {last[1]}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  const ir::ValueId state = *b.node("Reshape", {both, b.constant(ir::Tensor::of_i64({2, 32}))}),
                    w = constant({32, 32}, 3);
  const ir::ValueId yes = b.constant(ir::Tensor::scalar(DType::kBool, 1));
  for (const int64_t trips : {7, 70}) {  // unrolled, and not
    const ir::ValueId count = b.constant(ir::Tensor::scalar(DType::kI64, static_cast<double>(trips)));
    const auto made = *b.nodes("Loop", {count, yes, state, w}, 2, {{"body", body}, {"carried", int64_t{1}}});
    for (ir::ValueId id : made) b.output(id);
  }
  HEDDLE_TRY_ASSIGN(const auto module,
                    device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld()));
  std::vector<std::vector<ir::Tensor>> inputs;
  for (uint32_t kind = 0; kind < 5; ++kind) {
    inputs.push_back({random_tensor(DType::kF32, {20, 2, 16}, 3 * kind + 1),
                      random_tensor(DType::kF32, {2, 2, 16}, 3 * kind + 2),
                      random_tensor(DType::kF32, {2, 2, 16}, 3 * kind + 3)});
  }
  return check_eight_threads(device, *module, inputs);
}

DRIVER_TEST(threads_compile_beside_runs,
            "threads that compile and run different shapes of one module do not disturb each other") {
  constexpr int kThreads = 6, kShapes = 8;
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device, has_to_be_exact(driver)));
  std::vector<ir::Tensor> wanted;
  {
    HEDDLE_TRY_ASSIGN(
        const auto reference,
        load_encoder(device, has_to_be_exact(driver)));  // a module of its own: `module` starts cold
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
  HEDDLE_TRY_ASSIGN(const auto module, load_encoder(device, true));
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

// Sums long and odd enough for any library to cut, and as many rows as end a block of its kernels anywhere.
DRIVER_TEST(bits_at_every_place, "a row's bits are those of the row alone at every place in a batch") {
  constexpr int64_t kWide = test::kEmulated ? 272 : 528, kNarrow = 48, kMost = test::kSanitized ? 10 : 67;
  ir::Builder b;
  const auto constant = [&](const Extents& e, uint32_t seed) {
    return b.constant(random_tensor(DType::kF32, e, seed, -0.2, 0.2));
  };
  const ir::ValueId x = b.input("x", {DType::kF32, {ir::Dim::symbol("batch"), kNarrow}});
  const ir::ValueId wide = *b.node("Linear", {x, constant({kNarrow, kWide}, 1), constant({kWide}, 2)},
                                   {{"activation", std::string("gelu")}});
  const ir::ValueId square = *b.node("Linear", {wide, constant({kWide, kWide}, 3), ir::kNoValue, wide});
  b.output(*b.node("Linear", {square, constant({kWide, kNarrow}, 4), constant({kNarrow}, 5)}));
  HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
  HEDDLE_TRY_ASSIGN(const auto module,
                    device.load(graph, {.exact = true}, device::plain_source(device), NoLocksHeld()));
  Session session(device);
  const ir::Tensor rows = random_tensor(DType::kF32, {kMost, kNarrow}, 6);
  const auto run = [&](int64_t first, int64_t count) -> Result<ir::Tensor> {
    ir::Tensor taken = ir::Tensor::zeros(DType::kF32, {count, kNarrow});
    for (int64_t i = 0; i < taken.elements(); ++i) taken.set(i, rows.get(first * kNarrow + i));
    HEDDLE_TRY_ASSIGN(const auto program, compile(*module, {taken}));
    HEDDLE_TRY_ASSIGN(const auto got, session.run(program, std::vector<ir::Tensor>{taken}));
    return got[0];
  };
  std::vector<ir::Tensor> alone;
  for (int64_t row = 0; row < kMost; ++row) {
    HEDDLE_TRY_ASSIGN(ir::Tensor one, run(row, 1));
    alone.push_back(std::move(one));
  }
  for (const int64_t count : {2, 3, 4, 5, 6, 7, 8, 9, 10, 33, 64, 67}) {
    if (count > kMost) break;
    HEDDLE_TRY_ASSIGN(const ir::Tensor joined, run(0, count));
    int different = 0;
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t i = 0; i < kNarrow; ++i) {
        const ir::Tensor& one = alone[static_cast<size_t>(row)];
        different += joined.as<float>()[row * kNarrow + i] != one.as<float>()[i] ? 1 : 0;
      }
    }
    CAPTURE(count);
    CHECK(different == 0);
  }
  return {};
}

DRIVER_TEST(bits_beside_a_computed_weight,
            "a row's bits are those of the row alone where the weight is computed") {
  constexpr int64_t kColumns = 4096;  // so many that rounding to half does not hide all differences
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    ir::Builder b;
    const ir::ValueId x = b.input("x", {dtype, {ir::Dim::symbol("batch"), 512}}),
                      w = b.input("w", {dtype, {kColumns, 512}});
    b.output(*b.node("Linear", {x, *b.node("Neg", {w})}, {{"trans_w", int64_t{1}}}));
    HEDDLE_TRY_ASSIGN(const ir::Graph graph, b.take());
    HEDDLE_TRY_ASSIGN(const auto module,
                      device.load(graph, {.exact = true}, device::plain_source(device), NoLocksHeld()));
    Session session(device);
    const ir::Tensor weight = random_tensor(dtype, {kColumns, 512}, 3),
                     rows = random_tensor(dtype, {9, 512}, 4);
    const auto first = [&](int64_t count) {
      ir::Tensor taken = ir::Tensor::zeros(dtype, {count, 512});
      for (int64_t i = 0; i < taken.elements(); ++i) taken.set(i, rows.get(i));
      return taken;
    };
    const auto run = [&](int64_t count) -> Result<std::vector<ir::Tensor>> {
      const std::vector<ir::Tensor> inputs = {first(count), weight};
      HEDDLE_TRY_ASSIGN(const auto program, compile(*module, inputs));
      return session.run(program, inputs);
    };
    HEDDLE_TRY_ASSIGN(const auto alone, run(1));
    HEDDLE_TRY_ASSIGN(const auto joined, run(9));
    int different = 0;
    for (int64_t i = 0; i < kColumns; ++i) different += alone[0].get(i) != joined[0].get(i) ? 1 : 0;
    CHECK(different == 0);
  }
  return {};
}

}  // namespace
}  // namespace heddle::conformance
