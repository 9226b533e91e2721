// Graphs of programs that call cuBLASLt and cuDNN: what they compute, and what a capture may cost.
#include <doctest/doctest.h>

#include "tests/cuda_driver/graphs_fixture.h"

namespace heddle::cuda {
namespace {

using namespace graphs_fixture;  // NOLINT

constexpr heddle::cuda::Code kCaptureInvalidated = 901;
constexpr int64_t kRows = 256;

bool others_are_there;

Ref<device::Device> device_with_libraries(CudaOptions options = {}) {
  options.blas = &cuda_double::blas_lt();
  options.cudnn = &cuda_double::cudnn();
  if (options.others_use_cuda == CudaOptions().others_use_cuda)
    options.others_use_cuda = [] { return false; };
  return device_of(options);
}

struct GraphedModel {
  Ref<const device::Program> program;
  ir::Tensor x;
};

Ref<const device::Program> compiled(device::Device& device, ir::Builder& b, const ir::Tensor& x) {
  const auto module = device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = conformance::compile(**module, {x});
  REQUIRE(program.ok());
  return *program;
}

GraphedModel softmaxes(device::Device& device) {
  ir::Builder b;
  const ir::Tensor x = rows_of(kRows, 1);
  ir::ValueId y = b.input("x", x.type());
  for (int64_t i = 0; i < 4; ++i) y = *b.node("Softmax", {y}, {{"axis", i % 2}});
  b.output(y);
  const GraphedModel made{compiled(device, b, x), x};
  REQUIRE_FALSE(of_cuda(made.program).calls_library());
  return made;
}

GraphedModel products(device::Device& device) {
  ir::Builder b;
  const ir::Tensor x = rows_of(kRows, 1);
  ir::ValueId y = b.input("x", x.type());
  for (uint32_t i = 0; i < 3; ++i) {
    const ir::Tensor w = random_tensor(ir::DType::kF32, {kWidth, kWidth}, 7 + i);
    y = *b.node("Softmax", {*b.node("MatMul", {y, b.constant(w)})}, {{"axis", int64_t{-1}}});
  }
  b.output(y);
  return {compiled(device, b, x), x};
}

GraphedModel convolutions(device::Device& device) {
  ir::Builder b;
  const ir::Tensor x = random_tensor(ir::DType::kF32, {2, 4, 9, 9}, 3);
  ir::ValueId y = b.input("x", x.type());
  for (uint32_t i = 0; i < 3; ++i) {
    const ir::Tensor w = random_tensor(ir::DType::kF32, {4, 4, 3, 3}, 11 + i);
    y = *b.node("Relu", {*b.node("Conv", {y, b.constant(w)})});
  }
  b.output(y);
  return {compiled(device, b, x), x};
}

std::vector<int> counts() {
  return {calls_of(Call::kBeginCapture), calls_of(Call::kInstantiate), calls_of(Call::kGraphLaunch)};
}

TEST_CASE("a program that calls a library becomes a graph, with the bits of its direct calls") {
  for (const auto& make : {products, convolutions}) {
    const auto direct = device_with_libraries({.graph_bytes = 0});
    const GraphedModel plain = make(*direct);
    Session first(*direct);
    const ir::Tensor wanted =
        result_at(*direct, first, plain.program, place_of(*direct, *plain.program, {plain.x}));
    const auto device = device_with_libraries();
    const GraphedModel model = make(*device);
    REQUIRE(of_cuda(model.program).calls_library());
    REQUIRE(of_cuda(model.program).fits_graph());
    const Place place = place_of(*device, *model.program, {model.x});
    Session session(*device);
    cuda_double::forget_faults();
    const int live = cuda_double::live_graphs();
    for (int i = 0; i < 6; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, model.program, place), wanted));
    CHECK(counts() == std::vector{3, 1, 5});
    CHECK(cuda_double::live_graphs() == live + 1);  // what was captured is gone
  }
}

TEST_CASE("a capture that cannot begin or that another thread ends costs a graph, and no run") {
  for (const Call call : {Call::kBeginCapture, Call::kEndCapture}) {
    CAPTURE(static_cast<int>(call));
    const auto device = device_with_libraries();
    const GraphedModel model = products(*device);
    const Place place = place_of(*device, *model.program, {model.x});
    Session session(*device);
    const ir::Tensor wanted = result_at(*device, session, model.program, place);
    const auto check_runs = [&](int runs) {
      for (int i = 0; i < runs; ++i)
        CHECK(conformance::same_bits(result_at(*device, session, model.program, place), wanted));
    };
    const int live = cuda_double::live_graphs();
    cuda_double::refuse(call, kCaptureInvalidated, 1, 1);  // the second call's
    check_runs(4);
    CHECK(counts() == std::vector{5, 1, 3});
    CHECK(of_cuda(model.program).graph_failures() == 1);
    CHECK(cuda_double::live_graphs() == live + 1);
    CHECK(device->lost().ok());

    const GraphedModel other = products(*device);
    cuda_double::refuse(call, kCaptureInvalidated, 0, 1000);
    const Place elsewhere = place_of(*device, *other.program, {other.x});
    for (int i = 0; i < 8; ++i)
      CHECK(conformance::same_bits(result_at(*device, session, other.program, elsewhere), wanted));
    CHECK(of_cuda(other.program).graph_failures() == Graphs::kMostFailures);
    CHECK(counts()[2] == 3);
    CHECK(cuda_double::live_graphs() == live + 1);
    cuda_double::forget_faults();
  }
}

TEST_CASE("a library that fails while it is captured costs a graph, and its stream is left uncaptured") {
  static thread_local int failures_left;
  failures_left = 0;
  BlasLtApi blas = cuda_double::blas_lt();
  blas.multiply = [](auto... arguments) -> BlasCode {
    if (failures_left-- > 0) return 14;
    return cuda_double::blas_lt().multiply(arguments...);
  };
  cuda_double::forget_faults();
  const auto device = make_cuda_device(
      {.api = &cuda_double::api(), .image = cuda_double::image(), .blas = &blas, .others_use_cuda = [] {
         return false;
       }});
  REQUIRE(device.ok());
  const GraphedModel model = products(**device);
  const Place place = place_of(**device, *model.program, {model.x});
  Session session(**device);
  const ir::Tensor wanted = result_at(**device, session, model.program, place);
  cuda_double::forget_faults();
  failures_left = 1;
  for (int i = 0; i < 4; ++i)
    CHECK(conformance::same_bits(result_at(**device, session, model.program, place), wanted));
  CHECK(counts() == std::vector{4, 1, 3});
}

TEST_CASE("beside others that use CUDA nothing is captured, unless that is allowed") {
  struct Row {
    const char* what;
    bool allowed, before, later;  // whether others are there when the first and when the second graph is made
    int captures;
  };
  for (const Row& row : {Row{"alone", false, false, false, 6}, Row{"beside others", false, true, true, 0},
                         Row{"others come", false, false, true, 3}, Row{"others stay", false, true, false, 0},
                         Row{"allowed", true, true, true, 6}}) {
    CAPTURE(std::string(row.what));
    const auto device = device_with_libraries(
        {.capture_beside_others = row.allowed, .others_use_cuda = [] { return others_are_there; }});
    const GraphedModel one = products(*device), two = products(*device);
    Session session(*device);
    cuda_double::forget_faults();
    others_are_there = row.before;
    for (const GraphedModel* model : {&one, &two}) {
      const Place place = place_of(*device, *model->program, {model->x});
      for (int i = 0; i < 3; ++i) REQUIRE(run_at(session, model->program, place).ok());
      others_are_there = row.later;
    }
    CHECK(calls_of(Call::kBeginCapture) == row.captures);
    // Kernels of ours are no capture, and become graphs there too.
    const GraphedModel plain = softmaxes(*device);
    const Place place = place_of(*device, *plain.program, {plain.x});
    const int before = calls_of(Call::kGraphLaunch);
    for (int i = 0; i < 3; ++i) REQUIRE(run_at(session, plain.program, place).ok());
    CHECK(calls_of(Call::kGraphLaunch) == before + 2);
  }
}

TEST_CASE("what a device says of graphs names why programs with a library's calls have none") {
  const auto said = [](const CudaOptions& options) {
    const auto device = device_with_libraries(options);
    for (const auto& fact : device->traits().facts) {
      if (fact.name == "graphs") return fact.value;
    }
    return std::string();
  };
  const auto there = [] { return true; };
  CHECK(said({.graph_bytes = 0}) == "off");
  CHECK(said({}) == "up to 64 MiB");
  CHECK(said({.others_use_cuda = there}) ==
        "up to 64 MiB, none with a library's calls: CUDA's runtime is loaded");
  CHECK(said({.capture_beside_others = true, .others_use_cuda = there}) ==
        "up to 64 MiB, also beside others that use CUDA");
}

}  // namespace
}  // namespace heddle::cuda
