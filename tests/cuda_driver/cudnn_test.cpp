// Which convolutions cuDNN computes, and what our kernels do beside it.
#include <doctest/doctest.h>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "drivers/host/machine/folder_fixture.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;
using Ints = std::vector<int64_t>;

Ref<device::Device> device_with_cudnn(const std::string& folder = "",
                                      const CudnnApi& api = cuda_double::cudnn()) {
  const auto made = make_cuda_device({.api = &cuda_double::api(),
                                      .image = cuda_double::image(),
                                      .cudnn = &api,
                                      .tuning = {.folder = folder}});
  REQUIRE(made.ok());
  return *made;
}

struct Windowed {
  ir::Extents x{2, 6, 9, 11}, w{8, 6, 3, 3};
  DType dtype = DType::kF32;
  int64_t group = 1;
  Ints strides = {}, dilations = {}, pads = {};
  std::string activation = {};
  bool bias = true, residual = false;
};

struct Convolving {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
  ir::Tensor wanted;
};

Convolving convolving(const Windowed& row) {
  Convolving made{{}, {random_tensor(row.dtype, row.x, 1)}, {}};
  ir::Attributes attributes{{"group", row.group}, {"activation", row.activation}};
  if (!row.strides.empty()) attributes.set("strides", row.strides);
  if (!row.dilations.empty()) attributes.set("dilations", row.dilations);
  if (!row.pads.empty()) attributes.set("pads", row.pads);
  const auto build = [&](const std::vector<ir::Tensor>& inputs) {
    ir::Builder b;
    const ir::ValueId x = b.input("x", inputs[0].type());
    const ir::ValueId w = b.constant(random_tensor(row.dtype, row.w, 2));
    const ir::ValueId bias = row.bias ? b.constant(random_tensor(row.dtype, {row.w[0]}, 3)) : ir::kNoValue;
    const ir::ValueId more = inputs.size() > 1 ? b.input("more", inputs[1].type()) : ir::kNoValue;
    b.output(*b.node("Conv", {x, w, bias, more}, attributes));
    return *b.take();
  };
  made.graph = build(made.inputs);
  if (row.residual) {
    const ir::TensorType& type = made.graph.type(made.graph.outputs[0]);
    made.inputs.push_back(random_tensor(row.dtype, *type.extents(), 4));
    made.graph = build(made.inputs);
  }
  const auto wanted = ir::evaluate(made.graph, made.inputs);
  REQUIRE(wanted.ok());
  made.wanted = wanted->front();
  return made;
}

Ref<const device::Program> program_of(device::Device& device, const Convolving& made, bool exact = false) {
  const auto module = device.load(made.graph, {.exact = exact}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE(program.ok());
  return *program;
}

bool by_library(const device::Program& program) {
  const auto& steps = static_cast<const CudaProgram&>(program).lowered().steps;
  return std::holds_alternative<LibraryStep>(steps.front());
}

TEST_CASE("cuDNN computes the convolutions that it has, with what follows them") {
  const auto device = device_with_cudnn();
  struct Row {
    std::string name;
    Windowed window;
    bool library;
  };
  for (const Row& row : {
           Row{"plain", {.bias = false}, true},
           Row{"bias", {}, true},
           Row{"relu without a bias", {.activation = "relu", .bias = false}, true},
           Row{"bias, relu, residual", {.activation = "relu", .residual = true}, true},
           Row{"residual alone", {.bias = false, .residual = true}, true},
           Row{"strides, dilations, pads",
               {.strides = {2, 1}, .dilations = {1, 2}, .pads = {1, 2, 1, 2}},
               true},
           Row{"one axis", {.x = {3, 4, 17}, .w = {6, 4, 5}, .pads = {2, 2}}, true},
           Row{"three axes", {.x = {1, 2, 4, 5, 6}, .w = {3, 2, 2, 3, 2}}, true},
           Row{"groups", {.w = {9, 2, 3, 3}, .group = 3}, true},
           Row{"f16", {.dtype = DType::kF16, .activation = "relu"}, true},
           Row{"bf16", {.dtype = DType::kBF16}, true},
           Row{"two ends of an axis", {.pads = {0, 0, 1, 1}}, false},
           Row{"another activation", {.activation = "gelu"}, false},
           Row{"depthwise", {.w = {6, 1, 3, 3}, .group = 6}, false},  // it says it can, and cannot
           Row{"f64", {.dtype = DType::kF64}, false},
       }) {
    CAPTURE(row.name);
    const Convolving made = convolving(row.window);
    const auto program = program_of(*device, made);
    CHECK(by_library(*program) == row.library);
    const int64_t before = cuda_double::runs_of_cudnn();
    const auto got = conformance::Session(*device).run(program, made.inputs);
    REQUIRE(got.ok());
    const double tolerance = ir::size_of(row.window.dtype) > 2 ? 1e-4 : 5e-2;
    CHECK(conformance::difference(got->front(), made.wanted, {tolerance, tolerance}) == "");
    CHECK(cuda_double::runs_of_cudnn() - before == (row.library ? 1 : 0));
  }
}

TEST_CASE("an exact model, and one whose convolutions our kernels make as fast, do without cuDNN") {
  const auto device = device_with_cudnn();
  const Convolving made = convolving({});
  CHECK(by_library(*program_of(*device, made)));
  CHECK(!by_library(*program_of(*device, made, true)));
  const cuda_double::ProductTime faster(std::chrono::microseconds(11));  // and a second launch of 1 us
  CHECK(!by_library(*program_of(*device_with_cudnn(), made)));
}

TEST_CASE("a convolution is measured once, and its sums in chunks as well as those of tiles are its rivals") {
  const auto device = device_with_cudnn();
  const Convolving deep = convolving({.x = {1, 256, 6, 6}, .w = {16, 256, 3, 3}});
  const auto program = program_of(*device, deep);
  const int64_t measured = cuda_double::runs_of_cudnn();
  const auto again = program_of(*device, deep);
  CHECK(cuda_double::runs_of_cudnn() == measured);
  const auto& steps = static_cast<const CudaProgram&>(*program).lowered().steps;
  REQUIRE(steps.size() == 3);  // cuDNN's call stands for two launches
  CHECK(std::get<LibraryStep>(steps[0]).launches == 2);
  const auto got = conformance::Session(*device).run(again, deep.inputs);
  REQUIRE(got.ok());
  CHECK(conformance::difference(got->front(), deep.wanted, {1e-3, 1e-3}) == "");
}

TEST_CASE("convolutions of numbers of images that are alike are measured once, with the most of them") {
  const auto device = device_with_cudnn();
  conformance::Session session(*device);
  struct Row {
    int64_t images;
    bool measures;
  };
  // 7 images take part in those of 8, whose algorithm cuDNN refuses for them.
  for (const Row& row :
       {Row{6, true}, {5, false}, {8, false}, {7, true}, {7, false}, {9, true}, {12, false}}) {
    CAPTURE(row.images);
    const Convolving made = convolving({.x = {row.images, 6, 5, 5}, .bias = false});
    const int64_t before = cuda_double::runs_of_cudnn();
    const auto program = program_of(*device, made);
    CHECK((cuda_double::runs_of_cudnn() > before) == row.measures);
    CHECK(by_library(*program));
    const int64_t compiled = cuda_double::runs_of_cudnn();
    const auto got = session.run(program, made.inputs);
    REQUIRE(got.ok());
    CHECK(cuda_double::runs_of_cudnn() == compiled + 1);
    CHECK(conformance::difference(got->front(), made.wanted, {1e-4, 1e-4}) == "");
  }
}

TEST_CASE("where operands lie as cuDNN cannot read them our kernels compute") {
  const auto device = device_with_cudnn();
  const Convolving made = convolving({.dtype = DType::kF16});
  const auto program = program_of(*device, made);
  conformance::Session session(*device);
  const device::View wide = conformance::empty_like(*device, DType::kF16, {2 * 6 * 9 * 11 + 8});
  const device::View moved = device::View::contiguous(wide.buffer, DType::kF16, {2, 6, 9, 11}, 2);
  device::CommandList list;
  list.copy(conformance::upload(*device, made.inputs[0]), moved);
  REQUIRE(session.submit(list).ok());
  const int64_t before = cuda_double::runs_of_cudnn();
  const auto got = session.run(program, std::vector<device::View>{moved});
  REQUIRE(got.ok());
  CHECK(cuda_double::runs_of_cudnn() == before);
  CHECK(conformance::difference(got->front(), made.wanted, {5e-2, 5e-2}) == "");
}

TEST_CASE("threads that convolve at once have a handle of cuDNN's each") {
  const auto device = device_with_cudnn();
  const Convolving made = convolving({.x = {1, 4, 6, 6}, .w = {4, 4, 3, 3}});
  const auto program = program_of(*device, made);
  const int64_t before = cuda_double::runs_of_cudnn();
  constexpr int kTogether = 6, kRuns = 20;
  Atomic<int> right{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kTogether; ++t) {
      threads.emplace_back("convolves", [&] {
        conformance::Session session(*device);
        for (int i = 0; i < kRuns; ++i) {
          const auto got = session.run(program, made.inputs);
          if (got.ok() && conformance::difference(got->front(), made.wanted, {1e-4, 1e-4}).empty())
            right.add_relaxed(1);
        }
      });
    }
  }
  CHECK(right.load_relaxed() == kTogether * kRuns);
  CHECK(cuda_double::runs_of_cudnn() - before == kTogether * kRuns);
}

TEST_CASE("cuDNN has computed before a model with convolutions is given out, and not for others") {
  const auto device = device_with_cudnn();
  const int64_t before = cuda_double::runs_of_cudnn();
  ir::Builder b;
  b.output(*b.node("Relu", {b.input("x", {DType::kF32, {3}})}));
  REQUIRE(device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld()).ok());
  CHECK(cuda_double::runs_of_cudnn() == before);
  REQUIRE(device->load(convolving({}).graph, {}, device::plain_source(*device), NoLocksHeld()).ok());
  CHECK(cuda_double::runs_of_cudnn() > before);
}

TEST_CASE("what one device has measured of convolutions the next one takes from the file") {
  const host::TestFolder folder;
  const Convolving made = convolving({});
  const auto runs_of_compiling = [&](const Ref<device::Device>& device) {
    const auto module = device->load(made.graph, {}, device::plain_source(*device), NoLocksHeld());
    REQUIRE(module.ok());
    const int64_t before = cuda_double::runs_of_cudnn();
    REQUIRE(conformance::compile(**module, made.inputs).ok());
    return cuda_double::runs_of_cudnn() - before;
  };
  CHECK(runs_of_compiling(device_with_cudnn(folder.path())) > 0);
  const int64_t before = cuda_double::runs_of_cudnn();
  const auto second = device_with_cudnn(folder.path());
  CHECK(runs_of_compiling(second) == 0);
  CHECK(cuda_double::runs_of_cudnn() == before + 1);  // it has computed before the model could be called
  CHECK(by_library(*program_of(*second, made)));
  CudnnApi newer = cuda_double::cudnn();
  newer.version = [] { return size_t{91500}; };
  CHECK(runs_of_compiling(device_with_cudnn(folder.path(), newer)) > 0);
  {
    const cuda_double::ProductTime faster(std::chrono::microseconds(1));
    CHECK(by_library(*program_of(*device_with_cudnn(folder.path()), made)));  // what was kept holds
    CHECK(!by_library(*program_of(*device_with_cudnn(), made)));
  }
}

TEST_CASE("kernels of ours compute where cuDNN cannot even begin, and where it fails in a run") {
  const Convolving made = convolving({});
  CudnnApi lacking = cuda_double::cudnn();
  lacking.create = [](CudnnHandle*) { return kCudnnNotSupported; };
  const auto without = device_with_cudnn("", lacking);
  const auto own = program_of(*without, made);
  CHECK(!by_library(*own));

  static Atomic<bool> refuses{false};
  CudnnApi failing = cuda_double::cudnn();
  failing.convolve_and_finish = [](auto... arguments) -> CudnnCode {
    return refuses.load_relaxed() ? 5000 : cuda_double::cudnn().convolve_and_finish(arguments...);
  };
  const auto device = device_with_cudnn("", failing);
  const auto program = program_of(*device, made);
  REQUIRE(by_library(*program));
  refuses.store_relaxed(true);
  const auto got = conformance::Session(*device).run(program, made.inputs);
  REQUIRE(got.ok());
  CHECK(conformance::difference(got->front(), made.wanted, {1e-4, 1e-4}) == "");
  refuses.store_relaxed(false);
}

TEST_CASE("a plane of one place that lies in its padding is no plane of fewer axes") {
  const auto device = device_with_cudnn();
  const Convolving made = convolving(
      {.x = {2, 4, 1, 5, 5}, .w = {3, 4, 1, 3, 3}, .strides = {3, 1, 1}, .pads = {1, 0, 0, 1, 0, 0}});
  const auto got = conformance::Session(*device).run(program_of(*device, made), made.inputs);
  REQUIRE(got.ok());
  CHECK(conformance::difference(got->front(), made.wanted, {1e-4, 1e-4}) == "");
}

}  // namespace
}  // namespace heddle::cuda
