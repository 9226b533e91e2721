// Models whose values lie channels last between convolutions of cuDNN have the reference's values.
#include <cstring>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/lowering/channels_last.h"
#include "drivers/cuda/program.h"
#include "drivers/host/machine/folder_fixture.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_driver/channels_last_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;
using ir::ValueId;
using Ints = std::vector<int64_t>;

Ref<device::Device> device_that_turns(const CudnnApi* api = &cuda_double::cudnn(),
                                      const std::string& folder = "") {
  const auto made = make_cuda_device({.api = &cuda_double::api(),
                                      .image = cuda_double::image(),
                                      .cudnn = api,
                                      .tuning = {.folder = folder}});
  REQUIRE(made.ok());
  return *made;
}

// Launches of the kernels that turn: "3 x turn_2" are three.
int turns_in(const std::string& path) {
  int turns = 0;
  for (const char* kernel : {"move_2", "turn_2"}) {
    const size_t at = path.find(kernel);
    if (at != std::string::npos) turns += at < 4 || path[at - 2] != 'x' ? 1 : path[at - 4] - '0';
  }
  return turns;
}

struct Paths {
  std::string all;
  int turns = 0, convolutions = 0;  // copies that turn; what cuDNN computes channels last
};

Paths paths_of(const device::Module& module, const std::vector<ir::Tensor>& inputs) {
  std::vector<ir::Extents> shapes;
  for (const ir::Tensor& each : inputs) shapes.push_back(each.extents());
  const auto plan = module.plan(shapes, UINT64_MAX, NoLocksHeld());
  REQUIRE_MESSAGE(plan.ok(), to_string(plan.status()));
  Paths paths;
  for (const plan::PlannedNode& node : plan->nodes) {
    paths.all += text(node.op, ": ", node.path, '\n');
    if (node.op != "Concat" && node.op != "Split" && node.op != "Transpose")
      paths.turns += turns_in(node.path);
    if (node.path.find("cuDNN (channels last)") != std::string::npos) ++paths.convolutions;
  }
  return paths;
}

struct TurnedModel {
  const char* name;
  void (*draw)(Drawing&);
  int turns, convolutions;
};

ValueId drawn_relu(Drawing& d, ValueId x, const std::string& name) { return d.op("Relu", {x}, name); }

// The beginning and the end of a ResNet, and a block between them.
void draw_resnet(Drawing& d) {
  const ValueId x = d.in({2, 3, 13, 14});
  const ValueId stem = d.op("Conv", {x, d.weight({8, 3, 7, 7}), d.weight({8})}, "stem",
                            {{"pads", Ints{3, 3, 3, 3}}, {"strides", Ints{2, 2}}});
  const ValueId pool = d.max_pool(drawn_relu(d, stem, "stem_relu"), "pool");
  const ValueId a = drawn_relu(d, d.conv(pool, "a"), "a_relu");
  const ValueId first = drawn_relu(d, d.op("Add", {d.conv(a, "b"), pool}, "first"), "first_relu");
  const ValueId c = drawn_relu(d,
                               d.op("Conv", {first, d.weight({16, 8, 3, 3}), d.weight({16})}, "c",
                                    {{"pads", Ints{1, 1, 1, 1}}, {"strides", Ints{2, 2}}}),
                               "c_relu");
  const ValueId down =
      d.op("Conv", {first, d.weight({16, 8, 1, 1}), d.weight({16})}, "down", {{"strides", Ints{2, 2}}});
  const ValueId last =
      drawn_relu(d, d.op("Add", {d.conv(c, "e", ir::kNoValue, 16), down}, "second"), "second_relu");
  const ValueId mean = d.op("GlobalAveragePool", {last}, "mean");
  d.out(d.op("MatMul", {d.reshape(mean, {2, 16}, "flat"), d.weight({16, 5})}, "y"));
}

const TurnedModel kModels[] = {
    {"a ResNet turns its images", draw_resnet, 1, 6},
    {"convolutions in a row turn at both ends",
     [](Drawing& d) { d.out(d.conv(d.conv(d.in(kImages), "a"), "b")); }, 2, 2},
    {"one axis",
     [](Drawing& d) {
       ValueId x = d.in({2, 8, 9});
       for (const char* name : {"a", "b", "c"})
         x = d.op("Conv", {x, d.weight({8, 8, 3})}, name, {{"pads", Ints{1, 1}}});
       d.out(x);
     },
     2, 3},
    {"the end is a chain, which turns what it reads",
     [](Drawing& d) {
       const ValueId y = d.conv(d.conv(d.in(kImages), "a"), "b");
       d.out(d.op("Sub", {d.op("Tanh", {y}, "bent"), y}, "y"));
     },
     1, 2},
    {"a chain converts and turns at the entrance",
     [](Drawing& d) {
       const ValueId x =
           d.op("Cast", {d.in(kImages, DType::kF32)}, "cast", {{"to", std::string(ir::name(d.dtype()))}});
       d.out(d.op("ReduceMean", {d.conv(d.conv(x, "a"), "b")}, "mean", {{"keepdims", int64_t{0}}}));
     },
     0, 2},
    {"a chain of many orders",
     [](Drawing& d) {
       const ValueId x = d.in(kImages), a = d.conv(x, "a");
       const ValueId scaled = d.op("Mul", {a, d.weight({8, 1, 1})}, "scaled");
       const ValueId plain = d.op("Add", {scaled, d.in({8, 6, 7})}, "plain");
       const ValueId column = d.op("Mul", {plain, d.in({1, 1, 6, 1})}, "column");
       d.out(d.conv(d.op("Tanh", {column}, "bent"), "b"));
     },
     2, 2},
    {"a chain of more operands than a launch has, read in its middle as well",
     [](Drawing& d) {
       ValueId y = d.conv(d.in(kImages), "a"), middle = y;
       for (int i = 0; i < 16; ++i) {
         y = d.op("Tanh", {d.op("Add", {y, d.in({1, 8, 1, 1})}, text("sum", i))}, text("bent", i));
         if (i == 6) middle = y;
       }
       d.out(d.conv(d.conv(y, "b"), "c", middle));
     },
     2, 3},
    {"a chain of which one result is the model's",
     [](Drawing& d) {
       const ValueId a = d.conv(d.conv(d.in(kImages), "a"), "b"), bent = d.op("Tanh", {a}, "bent");
       d.out(bent);
       d.out(d.conv(d.conv(d.op("Exp", {bent}, "more"), "c"), "d"));
     },
     -1, -1},
    {"halves of the channels",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       const auto halves = d.builder().nodes("Split", {a}, 2, {{"axis", int64_t{1}}}, "halves");
       REQUIRE(halves.ok());
       const ValueId b = d.conv((*halves)[0], "b"), c = d.conv((*halves)[1], "c", b);
       d.out(d.conv(c, "d"));
     },
     2, 4},
    {"squeeze and excite",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       const ValueId mean = d.op("GlobalAveragePool", {a}, "mean");
       const ValueId less = d.op("Conv", {mean, d.weight({4, 8, 1, 1})}, "less");
       const ValueId gate = d.op("Sigmoid", {d.op("Conv", {less, d.weight({8, 4, 1, 1})}, "more")}, "gate");
       d.out(d.conv(d.op("Mul", {a, gate}, "excited"), "b"));
     },
     2, 2},
    {"parts and their whole",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a"), b = d.conv(a, "b", ir::kNoValue, 4);
       const ValueId whole = d.op("Concat", {a, b, d.in({2, 3, 6, 7})}, "whole", {{"axis", int64_t{1}}});
       d.out(d.op("ReduceMax", {d.conv(whole, "c")}, "most"));
     },
     1, 3},
    {"branches that leave by a transpose, a softmax, a flat name and an output",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a"), b = d.conv(a, "b");
       d.out(d.op("Transpose", {a}, "turned", {{"perm", Ints{0, 2, 3, 1}}}));
       d.out(d.op("Softmax", {a}, "shares"));
       d.out(d.reshape(b, {2, -1}, "flat"));
       const ValueId c = d.conv(d.conv(b, "c"), "d");
       d.out(c);
       d.out(d.conv(c, "e"));
     },
     -1, -1},
    {"pools and a depthwise convolution between",
     [](Drawing& d) {
       const ValueId a = d.conv(d.conv(d.in({2, 8, 12, 13}), "a"), "b");
       const ValueId mean = d.op("AveragePool", {a}, "mean", {{"kernel_shape", Ints{2, 2}}});
       const ValueId c = d.conv(d.max_pool(mean, "most"), "c");
       const ValueId deep = d.conv(c, "deep", ir::kNoValue, 8, 8);
       d.out(d.conv(d.conv(deep, "e"), "f"));
     },
     -1, -1},
    {"groups, dilations and a plane that becomes one place",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in({2, 8, 5, 5}), "a", ir::kNoValue, 12, 2);
       const ValueId wide = d.op("Conv", {a, d.weight({6, 12, 3, 3})}, "wide",
                                 {{"dilations", Ints{2, 2}}, {"strides", Ints{2, 1}}});
       d.out(wide);
     },
     -1, -1},
};

TEST_CASE("models whose values lie channels last have the reference's values") {
  const auto device = device_that_turns();
  conformance::Session session(*device);
  for (const TurnedModel& each : kModels) {
    for (const DType dtype : {DType::kBF16, DType::kF16}) {
      CAPTURE(each.name);
      CAPTURE(dtype);
      Drawing drawing(dtype);
      each.draw(drawing);
      const ir::Graph graph = drawing.take();
      const auto wanted = ir::evaluate(graph, drawing.inputs());
      REQUIRE(wanted.ok());
      const auto module = device->load(graph, {}, device::plain_source(*device), NoLocksHeld());
      REQUIRE(module.ok());
      const Paths paths = paths_of(**module, drawing.inputs());
      INFO(paths.all);
      if (each.turns >= 0) CHECK(paths.turns == each.turns);
      if (each.convolutions >= 0) CHECK(paths.convolutions == each.convolutions);
      CHECK(paths.convolutions >= 2);
      const auto program = conformance::compile(**module, drawing.inputs());
      REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
      const auto got = session.run(*program, drawing.inputs());
      REQUIRE(got.ok());
      REQUIRE(got->size() == wanted->size());
      for (size_t i = 0; i < got->size(); ++i)
        CHECK(conformance::difference((*got)[i], (*wanted)[i], {5e-2, 5e-2}) == "");
    }
  }
}

Ref<const device::Module> loaded_drawing(device::Device& device, const Drawing& drawing,
                                         const ir::Graph& graph, bool exact = false) {
  const auto module = device.load(graph, {.exact = exact}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  REQUIRE(!drawing.inputs().empty());
  return *module;
}

TEST_CASE("exact models, and devices without cuDNN, keep their channels where they are") {
  Drawing drawing(DType::kBF16);
  draw_resnet(drawing);
  const ir::Graph graph = drawing.take();
  const auto with = device_that_turns(), without = device_that_turns(nullptr);
  CHECK(paths_of(*loaded_drawing(*with, drawing, graph), drawing.inputs()).convolutions == 6);
  for (const auto& module :
       {loaded_drawing(*with, drawing, graph, true), loaded_drawing(*without, drawing, graph)}) {
    const Paths paths = paths_of(*module, drawing.inputs());
    INFO(paths.all);
    CHECK(paths.all.find(kChannelsLast) == std::string::npos);
    CHECK(paths.turns == 0);
  }
}

TEST_CASE("a plan says what computes channels last, and what turns") {
  Drawing drawing(DType::kBF16);
  const ValueId pool = drawing.max_pool(drawing.conv(drawing.in(kImages), "a"), "pool");
  drawing.out(drawing.op("GlobalAveragePool", {drawing.conv(pool, "b")}, "mean"));
  const auto device = device_that_turns();
  const std::string convolution = "cuDNN (channels last), else convolution_f32\n";
  CHECK(paths_of(*loaded_drawing(*device, drawing, drawing.take()), drawing.inputs()).all ==
        "Conv: turn_2; " + convolution + "MaxPool: max_pool_f32 (channels last)\nConv: " + convolution +
            "GlobalAveragePool: reduce_mean_f32\n");
}

// The addresses of the weights that cuDNN reads.
std::vector<uint64_t> turned_weights_of(const device::Program& program) {
  const Lowered& lowered = static_cast<const CudaProgram&>(program).lowered();
  std::vector<uint64_t> weights;
  for (const Step& step : lowered.steps) {
    if (const auto* call = std::get_if<LibraryStep>(&step)) {
      ConvolutionOperands operands;
      std::memcpy(&operands, lowered.params.data() + call->arguments.params, sizeof operands);
      weights.push_back(operands.w);
    }
  }
  return weights;
}

TEST_CASE("a weight is turned once for all shapes of a model") {
  ir::Builder b;
  const auto weight = [&](uint32_t seed) {
    return b.constant(random_tensor(DType::kBF16, {8, 8, 3, 3}, seed));
  };
  const ValueId x = b.input("x", {DType::kBF16, {ir::Dim::symbol("batch"), 8, 6, 7}});
  b.output(*b.node("Conv", {*b.node("Conv", {x, weight(1)}, {}), weight(2)}, {}));
  const auto device = device_that_turns();
  const auto module = device->load(*b.take(), {}, device::plain_source(*device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto compiled = [&](int64_t batch) {
    const auto program = (*module)->compile(std::vector<ir::Extents>{{batch, 8, 6, 7}}, NoLocksHeld());
    REQUIRE(program.ok());
    return *program;
  };
  const auto one = compiled(1), five = compiled(5);
  const std::vector<uint64_t> weights = turned_weights_of(*one);
  REQUIRE(weights.size() == 2);
  CHECK(weights[0] != weights[1]);
  CHECK(weights == turned_weights_of(*five));
}

TEST_CASE("a kernel of ours stands in where cuDNN fails in a run, channels last as well") {
  static Atomic<bool> refuses{false};
  CudnnApi failing = cuda_double::cudnn();
  failing.convolve_and_finish = [](auto... arguments) -> CudnnCode {
    return refuses.load_relaxed() ? 5000 : cuda_double::cudnn().convolve_and_finish(arguments...);
  };
  Drawing drawing(DType::kF16);
  const ValueId a = drawing.conv(drawing.in(kImages), "a"), b = drawing.conv(a, "b", ir::kNoValue, 12, 2);
  drawing.out(drawing.conv(b, "c", a));
  const ir::Graph graph = drawing.take();
  const auto wanted = ir::evaluate(graph, drawing.inputs());
  REQUIRE(wanted.ok());
  const auto device = device_that_turns(&failing);
  const auto module = loaded_drawing(*device, drawing, graph);
  CHECK(paths_of(*module, drawing.inputs()).convolutions == 3);
  const auto program = conformance::compile(*module, drawing.inputs());
  REQUIRE(program.ok());
  refuses.store_relaxed(true);
  const int64_t before = cuda_double::runs_of_cudnn();
  const auto got = conformance::Session(*device).run(*program, drawing.inputs());
  refuses.store_relaxed(false);
  REQUIRE(got.ok());
  CHECK(cuda_double::runs_of_cudnn() == before);
  CHECK(conformance::difference(got->front(), wanted->front(), {5e-2, 5e-2}) == "");
}

TEST_CASE("what was measured of planes in one order decides nothing about the other") {
  const host::TestFolder folder;
  const auto runs_of_compiling = [&](void (*draw)(Drawing&)) {
    Drawing drawing(DType::kBF16);
    draw(drawing);
    const auto device = device_that_turns(&cuda_double::cudnn(), folder.path());
    const auto module = loaded_drawing(*device, drawing, drawing.take());
    const int64_t before = cuda_double::runs_of_cudnn();
    REQUIRE(conformance::compile(*module, drawing.inputs()).ok());
    return cuda_double::runs_of_cudnn() - before;
  };
  const auto one = [](Drawing& d) { d.out(d.conv(d.in(kImages), "a")); };
  const auto two = [](Drawing& d) { d.out(d.conv(d.conv(d.in(kImages), "a"), "b")); };
  CHECK(runs_of_compiling(two) > 0);
  CHECK(runs_of_compiling(two) == 0);
  CHECK(runs_of_compiling(one) > 0);  // the same, but that it lies plain
  CHECK(runs_of_compiling(one) == 0);
}

}  // namespace
}  // namespace heddle::cuda
