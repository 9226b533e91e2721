// Which products cuBLASLt computes, with which of its algorithms, and what our kernels do beside it.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/libraries/alike.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;
using Steps = std::vector<std::string>;

Ref<device::Device> device_with_library() {
  const auto made = make_cuda_device(
      {.api = &cuda_double::api(), .image = cuda_double::image(), .blas = &cuda_double::blas_lt()});
  REQUIRE(made.ok());
  return *made;
}

// Tiles are one kind of step, whatever their shape.
Steps steps_of(const device::Program& program) {
  Steps names;
  for (const Step& step : static_cast<const CudaProgram&>(program).lowered().steps) {
    const auto* launch = std::get_if<Launch>(&step);
    const std::string name = launch == nullptr ? "library" : launch->kernel->name;
    names.push_back(name.starts_with("product_") ? "tiles" : name);
  }
  return names;
}

int64_t all_runs() {
  return cuda_double::blas_lt_runs(0) + cuda_double::blas_lt_runs(1) + cuda_double::blas_lt_runs(2);
}

struct Made {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
};

Made matmul(DType dtype, const ir::Extents& x, const ir::Extents& y) {
  ir::Builder b;
  Made made{{}, {random_tensor(dtype, x, 1), random_tensor(dtype, y, 2)}};
  b.output(*b.node("MatMul", {b.input("a", made.inputs[0].type()), b.input("b", made.inputs[1].type())}));
  made.graph = *b.take();
  return made;
}

Ref<const device::Program> program_of(device::Device& device, const Made& made, bool exact = false,
                                      const std::string& precision = "f32") {
  const auto module = device.load(made.graph, {.precision = precision, .exact = exact},
                                  device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE(program.ok());
  return *program;
}

TEST_CASE("a product that needs no workspace runs in a program that has no arena") {
  const auto device = device_with_library();
  const Made made = matmul(DType::kF16, {5, 8}, {8, 2});
  const auto program = program_of(*device, made);
  CHECK(program->arena_bytes() == 0);
  CHECK(steps_of(*program).front() == "library");
  const int64_t before = cuda_double::blas_lt_runs(2);
  const auto got = conformance::Session(*device).run(program, made.inputs);
  REQUIRE(got.ok());
  CHECK(cuda_double::blas_lt_runs(2) == before + 1);
  const auto wanted =
      ir::evaluate(made.graph.nodes.back(), std::vector<const ir::Tensor*>{&made.inputs[0], &made.inputs[1]});
  REQUIRE(wanted.ok());
  CHECK(conformance::difference((*got)[0], (*wanted)[0], {4e-3, 4e-3}).empty());
}

TEST_CASE("the library multiplies what it has an algorithm for, unless bits are fixed") {
  const auto device = device_with_library();
  struct Row {
    DType dtype;
    ir::Extents x, y;
    bool exact, library;
  };
  for (const Row& row : {
           Row{DType::kF32, {1, 8}, {8, 4}, false, true},
           Row{DType::kF32, {128, 8}, {8, 4}, false, true},
           Row{DType::kF32, {128, 8}, {8, 4}, true, false},
           Row{DType::kF32, {64, 2, 8}, {8, 4}, false, true},  // rows are rows, whatever axes they lie on
           Row{DType::kF16, {1, 8}, {8, 4}, false, true},
           Row{DType::kBF16, {5, 8}, {8, 4}, false, true},
           Row{DType::kBF16, {5, 8}, {8, 4}, true, false},
           Row{DType::kBF16, {5, 7}, {7, 4}, false, false},          // it has no algorithm
           Row{DType::kF16, {3, 5, 8}, {3, 8, 4}, false, true},      // a batch
           Row{DType::kF16, {3, 5, 8}, {1, 8, 4}, false, true},      // of one matrix
           Row{DType::kF16, {2, 1, 5, 8}, {3, 8, 4}, false, false},  // two axes of batches
           Row{DType::kF16, {5, 0}, {0, 4}, false, false},
           Row{DType::kF64, {300, 8}, {8, 4}, false, false},
       }) {
    CAPTURE(text(row.dtype, row.x, row.y));
    const Made made = matmul(row.dtype, row.x, row.y);
    const auto program = program_of(*device, made, row.exact);
    CHECK((steps_of(*program).front() == "library") == row.library);
    const int64_t before = all_runs();
    const auto got = conformance::Session(*device).run(program, made.inputs);
    REQUIRE(got.ok());
    const auto wanted = ir::evaluate(made.graph, made.inputs);
    REQUIRE(wanted.ok());
    CHECK(conformance::difference(got->front(), wanted->front(), {2e-2, 2e-2}) == "");
    CHECK(all_runs() - before == (row.library ? 1 : 0));
  }
}

TEST_CASE(
    "an exact model beside a library whose bits depend on the number of rows has those of a row alone") {
  constexpr int64_t kK = 300, kN = 24;
  const auto device = device_with_library();
  const ir::Tensor first = random_tensor(DType::kF32, {1, kK}, 3);
  const auto first_row = [&](int64_t rows, bool exact) {
    Made made = matmul(DType::kF32, {rows, kK}, {kK, kN});
    for (int64_t i = 0; i < kK; ++i) made.inputs[0].set(i, first.get(i));
    const auto got = conformance::Session(*device).run(program_of(*device, made, exact), made.inputs);
    REQUIRE(got.ok());
    const float* const from = got->front().as<float>();
    return std::vector<float>(from, from + kN);
  };
  int others = 0;
  for (const int64_t rows : {2, 5, 16, 96, 97, 256}) {
    CAPTURE(rows);
    CHECK(first_row(rows, true) == first_row(1, true));
    others += first_row(rows, false) == first_row(1, false) ? 0 : 1;
  }
  CHECK(others > 0);  // or the double's library has the same bits, too
}

TEST_CASE("a lower precision rounds the factors of f32 products, and nothing else") {
  const auto device = device_with_library();
  CHECK(device->traits().precisions == std::vector<std::string>{"f32", "tf32", "bf16", "f16"});
  const Made made = matmul(DType::kF32, {16, 64}, {64, 16});
  const auto wanted = ir::evaluate(made.graph, made.inputs);
  REQUIRE(wanted.ok());
  struct Row {
    std::string precision;
    double least, most;  // of its largest error
  };
  for (const Row& row :
       {Row{"f32", 0, 1e-5}, Row{"tf32", 1e-5, 2e-2}, Row{"f16", 1e-5, 2e-2}, Row{"bf16", 1e-3, 1e-1}}) {
    CAPTURE(row.precision);
    const auto got =
        conformance::Session(*device).run(program_of(*device, made, false, row.precision), made.inputs);
    REQUIRE(got.ok());
    double error = 0;
    for (int64_t i = 0; i < 16 * 16; ++i)
      error = std::max(
          error, std::abs(static_cast<double>(got->front().as<float>()[i]) - wanted->front().as<float>()[i]));
    CHECK((error >= row.least && error <= row.most));
    const Made narrow = matmul(DType::kF16, {5, 8}, {8, 4});
    const auto as_ever = conformance::Session(*device).run(program_of(*device, narrow), narrow.inputs),
               rounded = conformance::Session(*device).run(program_of(*device, narrow, false, row.precision),
                                                           narrow.inputs);
    REQUIRE((as_ever.ok() && rounded.ok()));
    CHECK(conformance::same_bits(as_ever->front(), rounded->front()));
  }
}

TEST_CASE("an exact model in a lower precision is refused in words, and so is one without the library") {
  const Made made = matmul(DType::kF32, {2, 8}, {8, 4});
  const auto device = device_with_library();
  const auto exact = device->load(made.graph, {.precision = "tf32", .exact = true},
                                  device::plain_source(*device), NoLocksHeld());
  CHECK(exact.status().code() == heddle::Code::invalid);
  CHECK(exact.status().message() == "an exact model computes in precision f32, not 'tf32'");
  const auto without = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(without.ok());
  const auto alone =
      (*without)->load(made.graph, {.precision = "tf32"}, device::plain_source(**without), NoLocksHeld());
  CHECK(alone.status().code() == heddle::Code::unsupported);
  CHECK(alone.status().message() == "device 'cuda' computes in precision f32, not 'tf32'");
}

TEST_CASE("what follows a product the library does if it can do all of it, else a kernel behind it") {
  const auto device = device_with_library();
  struct Row {
    std::string activation;
    bool bias, bias_is_input, residual;
    Steps steps;
  };
  const Steps whole = {"library", "tiles"}, parts = {"library", "tiles", "end_of_product"};
  for (const Row& row : {
           Row{"", false, false, false, whole},
           Row{"relu", true, false, false, whole},
           Row{"", true, false, true, whole},
           Row{"relu", false, false, false, whole},
           Row{"relu", true, false, true, parts},  // it adds before the activation, not after it
           Row{"gelu", true, false, true, parts},
           Row{"clip", false, false, false, parts},
           Row{"", true, true, false, parts},  // where it lies the run decides
       }) {
    CAPTURE(row.activation);
    ir::Builder b;
    Made made;
    const auto input = [&](const ir::Extents& extents) {
      const auto number = static_cast<uint32_t>(made.inputs.size());
      made.inputs.push_back(random_tensor(DType::kF32, extents, number));
      return b.input("in" + std::to_string(number), made.inputs.back().type());
    };
    const auto weight = [&](const ir::Extents& extents) {
      return b.constant(random_tensor(DType::kF32, extents, 9));
    };
    const ir::ValueId x = input({130, 24}), w = weight({24, 12});
    const ir::ValueId bias = row.bias_is_input ? input({12}) : row.bias ? weight({12}) : ir::kNoValue;
    const ir::ValueId residual = row.residual ? input({130, 12}) : ir::kNoValue;
    b.output(*b.node("Linear", {x, w, bias, residual},
                     {{"activation", row.activation}, {"activation_alpha", -1.0}, {"activation_beta", 1.0}}));
    made.graph = *b.take();
    const auto program = program_of(*device, made);
    CHECK(steps_of(*program) == row.steps);
    const int64_t before = all_runs();
    const auto got = conformance::Session(*device).run(program, made.inputs);
    REQUIRE(got.ok());
    const auto wanted = ir::evaluate(made.graph, made.inputs);
    REQUIRE(wanted.ok());
    CHECK(conformance::difference(got->front(), wanted->front(), {1e-4, 1e-4}) == "");
    CHECK(all_runs() - before == 1);
  }
}

TEST_CASE("what the library has computed no kernel computes again") {
  const auto device = device_with_library();
  const Made made = matmul(DType::kF32, {128, 600}, {600, 16});
  conformance::Session session(*device);
  const auto by_library = session.run(program_of(*device, made), made.inputs),
             by_kernels = session.run(program_of(*device, made, true), made.inputs);
  REQUIRE((by_library.ok() && by_kernels.ok()));
  CHECK(conformance::difference(by_library->front(), by_kernels->front(), {1e-4, 1e-4}) == "");
  CHECK(!conformance::same_bits(by_library->front(), by_kernels->front()));  // it adds in another order
}

TEST_CASE("our own kernels multiply where they are as fast as the library and what has to follow it") {
  using std::chrono::nanoseconds;
  struct Row {
    nanoseconds ours;
    std::string activation;
    bool library;
  };
  for (const Row& row : {
           Row{nanoseconds(10'500), "", true},
           Row{nanoseconds(10'200), "", false},  // as good, and without the library's workspace
           Row{nanoseconds(10'000), "", false},
           Row{nanoseconds(11'500), "gelu", true},
           Row{nanoseconds(10'500), "gelu", false},  // a kernel of 1 us follows the library
       }) {
    CAPTURE(text(row.ours.count(), " ns ", row.activation));
    const cuda_double::ProductTime time(row.ours);
    const auto device = device_with_library();
    ir::Builder b;
    Made made{{}, {random_tensor(DType::kF32, {9, 24}, 1)}};
    const ir::ValueId w = b.constant(random_tensor(DType::kF32, {24, 12}, 2));
    b.output(*b.node("Linear", {b.input("x", made.inputs[0].type()), w, ir::kNoValue, ir::kNoValue},
                     {{"activation", row.activation}}));
    made.graph = *b.take();
    const auto program = program_of(*device, made);
    CHECK((steps_of(*program).front() == "library") == row.library);
    const auto got = conformance::Session(*device).run(program, made.inputs);
    REQUIRE(got.ok());
    const auto wanted = ir::evaluate(made.graph, made.inputs);
    REQUIRE(wanted.ok());
    CHECK(conformance::difference(got->front(), wanted->front(), {1e-4, 1e-4}) == "");
  }
}

// What it makes when it first computes dies before what was made earlier, while calls may still run.
TEST_CASE("the library has computed before a device with it is given out") {
  const int64_t before = all_runs();
  static_cast<void>(device_with_library());
  CHECK(all_runs() == before + 3);  // once in each type
}

TEST_CASE("the fastest algorithm is taken, and measured once for a problem") {
  const auto device = device_with_library();
  const Made made = matmul(DType::kF16, {21, 18}, {18, 14});
  const auto counts = [] {
    return std::vector<int64_t>{cuda_double::blas_lt_runs(0), cuda_double::blas_lt_runs(1),
                                cuda_double::blas_lt_runs(2)};
  };
  const auto at_first = counts();
  const auto program = program_of(*device, made);
  const auto measured = counts();
  for (size_t i = 0; i < 3; ++i) CHECK(measured[i] > at_first[i]);
  const auto again = program_of(*device, made);
  CHECK(counts() == measured);
  conformance::Session session(*device);
  REQUIRE(session.run(program, made.inputs).ok());
  REQUIRE(session.run(again, made.inputs).ok());
  CHECK(counts() == std::vector<int64_t>{measured[0], measured[1] + 2, measured[2]});
}

TEST_CASE("products of numbers of rows that are alike are measured once, with the most of them") {
  const auto device = device_with_library();
  conformance::Session session(*device);
  struct Row {
    ir::Extents x, y;
    bool measures;
    int algorithm = 1;
  };
  for (const Row& row : {
           Row{{6, 10}, {10, 4}, true},
           Row{{5, 10}, {10, 4}, false},
           Row{{8, 10}, {10, 4}, false},
           Row{{7, 10}, {10, 4}, true, 2},  // for which the library refuses the algorithm of 8
           Row{{7, 10}, {10, 4}, false, 2},
           Row{{9, 10}, {10, 4}, true},
           Row{{12, 10}, {10, 4}, false},
           Row{{13, 10}, {10, 4}, true},
           Row{{3, 6, 10}, {3, 10, 4}, true},  // of a batch, each number of rows is a problem of its own
           Row{{3, 5, 10}, {3, 10, 4}, true},
       }) {
    CAPTURE(text(row.x, row.y));
    const Made made = matmul(DType::kF16, row.x, row.y);
    const int64_t before = all_runs();
    const auto program = program_of(*device, made);
    CHECK((all_runs() > before) == row.measures);
    const int64_t runs = cuda_double::blas_lt_runs(row.algorithm);
    const auto got = session.run(program, made.inputs);
    REQUIRE(got.ok());
    CHECK(cuda_double::blas_lt_runs(row.algorithm) == runs + 1);
    const auto wanted = ir::evaluate(made.graph, made.inputs);
    REQUIRE(wanted.ok());
    CHECK(conformance::difference(got->front(), wanted->front(), {4e-3, 4e-3}) == "");
  }
}

TEST_CASE("rows are alike up to a power of two, or to three quarters of one") {
  const std::vector<int64_t> ends = {1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384};
  for (size_t i = 0; i < ends.size(); ++i) {
    CHECK(most_alike(ends[i]) == ends[i]);
    if (i > 0) CHECK(most_alike(ends[i - 1] + 1) == ends[i]);
  }
}

TEST_CASE("without memory to measure with the library's own first choice is taken") {
  const auto device = device_with_library();
  const Made made = matmul(DType::kF16, {22, 18}, {18, 14});
  const auto module = device->load(made.graph, {}, std::make_shared<device::CountingSource>(), NoLocksHeld());
  REQUIRE(module.ok());
  const int64_t before = all_runs(), first = cuda_double::blas_lt_runs(0);
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE(program.ok());
  CHECK(all_runs() == before);
  REQUIRE(conformance::Session(*device).run(*program, made.inputs).ok());
  CHECK(cuda_double::blas_lt_runs(0) == first + 1);
}

TEST_CASE("operands that lie where the library cannot read them our kernels multiply") {
  const auto device = device_with_library();
  const Made made = matmul(DType::kBF16, {6, 8}, {8, 4});
  const auto program = program_of(*device, made);
  conformance::Session session(*device);
  const auto wanted = ir::evaluate(made.graph, made.inputs);
  REQUIRE(wanted.ok());
  for (const uint64_t first : {1, 8}) {
    const device::View wide = conformance::empty_like(*device, DType::kBF16, {6 * 8 + 8});
    const device::View moved = device::View::contiguous(wide.buffer, DType::kBF16, {6, 8}, first * 2);
    device::CommandList list;
    list.copy(conformance::upload(*device, made.inputs[0]), moved);
    REQUIRE(session.submit(list).ok());
    const int64_t before = all_runs();
    const auto got =
        session.run(program, std::vector<device::View>{moved, conformance::upload(*device, made.inputs[1])});
    REQUIRE(got.ok());
    CHECK(conformance::difference(got->front(), wanted->front(), {2e-2, 2e-2}) == "");
    CHECK(all_runs() - before == (first == 8 ? 1 : 0));  // 16 bytes on it is aligned again
  }
}

TEST_CASE("a device says which cuBLASLt it has, or why it has none") {
  const auto fact = [](const device::Device& device) {
    for (const device::Fact& each : device.traits().facts) {
      if (each.name == "cuBLASLt") return each.value;
    }
    return std::string();
  };
  CHECK(fact(*device_with_library()) == "13.1.1");
  const auto without = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(without.ok());
  CHECK(fact(**without) == "none: the driver is not NVIDIA's");
}

}  // namespace
}  // namespace heddle::cuda
