// Which values lie channels last, and what the double's cuDNN takes so.
#include <array>

#include "drivers/cuda/libraries/library_call.h"
#include "drivers/cuda/lowering/channels_last.h"
#include "ir/op.h"
#include "tests/cuda_driver/channels_last_fixture.h"
#include "tests/cuda_driver/double_fixture.h"

namespace heddle::cuda {
namespace {

using ir::DType;
using ir::ValueId;
using Ints = std::vector<int64_t>;

struct Choice {
  const char* name;
  void (*draw)(Drawing&);
  const char* lies;      // the nodes whose values lie channels last
  const char* computes;  // the convolutions and pools that compute so
  DType dtype = DType::kBF16;
};

const Choice kChoices[] = {
    {"two convolutions in a row", [](Drawing& d) { d.out(d.conv(d.conv(d.in(kImages), "a"), "b")); }, "a",
     "a b"},
    {"one alone turns as much as it saves", [](Drawing& d) { d.out(d.conv(d.in(kImages), "a")); }, "", ""},
    {"one that cuDNN does not compute between two",
     [](Drawing& d) {
       const ValueId own = d.conv(d.conv(d.in(kImages), "a"), "own", ir::kNoValue, 8, 8);
       d.out(d.conv(own, "b"));
     },
     "", ""},
    {"f32", [](Drawing& d) { d.out(d.conv(d.conv(d.in(kImages), "a"), "b")); }, "", "", DType::kF32},
    {"a chain and a pool between",
     [](Drawing& d) {
       const ValueId bent = d.op("Sigmoid", {d.conv(d.in(kImages), "a")}, "bent");
       d.out(d.conv(d.max_pool(bent, "pool"), "b"));
     },
     "a bent pool", "a pool b"},
    {"a residual",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       d.out(d.conv(d.conv(a, "b"), "c", a));
     },
     "a b", "a b c"},
    {"the mean of the planes is read as they lie",
     [](Drawing& d) { d.out(d.op("GlobalAveragePool", {d.conv(d.in(kImages), "a")}, "mean")); }, "a", "a"},
    {"a conversion turns at the entrance",
     [](Drawing& d) {
       const ValueId cast =
           d.op("Cast", {d.in(kImages, DType::kF32)}, "cast", {{"to", std::string(ir::name(d.dtype()))}});
       d.out(d.op("GlobalAveragePool", {d.conv(cast, "a")}, "mean"));
     },
     "cast a", "a"},
    {"one between chains that turn would save nothing",
     [](Drawing& d) {
       const ValueId x = d.op("Tanh", {d.in(kImages)}, "x");
       d.out(d.op("Tanh", {d.conv(x, "a")}, "y"));
     },
     "", ""},
    {"a value that is an output lies plain",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       d.out(a);
       d.out(d.conv(a, "b"));
     },
     "", ""},
    {"a value with another name lies plain",
     [](Drawing& d) {
       const ValueId b = d.conv(d.conv(d.in(kImages), "a"), "b");
       d.out(d.reshape(b, {2, -1}, "flat"));
       d.out(d.conv(b, "c"));
     },
     "a", "a b"},
    {"many who read plain are not worth it",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       for (const char* name : {"p", "q"}) d.out(d.op("Softmax", {a}, name));
       d.out(d.conv(a, "b"));
     },
     "", ""},
    {"one who reads plain gets a copy",
     [](Drawing& d) {
       const ValueId a = d.conv(d.in(kImages), "a");
       d.out(d.op("Softmax", {a}, "p"));
       d.out(d.conv(a, "b"));
     },
     "a", "a b"},
    {"parts and their whole",
     [](Drawing& d) {
       const ValueId x = d.in(kImages), a = d.conv(x, "a"), b = d.conv(a, "b");
       d.out(d.conv(d.op("Concat", {a, b}, "whole", {{"axis", int64_t{1}}}), "c"));
     },
     "a b whole", "a b c"},
    {"a pool that says places lies plain",
     [](Drawing& d) {
       const ValueId a = d.conv(d.conv(d.in(kImages), "a"), "b");
       const auto made = d.builder().nodes("MaxPool", {a}, 2, {{"kernel_shape", Ints{2, 2}}}, "pool");
       REQUIRE(made.ok());
       d.out((*made)[1]);
       d.out(d.conv((*made)[0], "c"));
     },
     "a", "a b"},
};

TEST_CASE("values between convolutions of cuDNN lie channels last where that turns less") {
  for (const Choice& each : kChoices) {
    CAPTURE(each.name);
    Drawing drawing(each.dtype);
    each.draw(drawing);
    const ir::Graph graph = drawing.take();
    std::vector<char> convolves;
    for (const ir::Node& node : graph.nodes)
      convolves.push_back(node.is("Conv") && node.name != "own" && each.dtype != DType::kF32 ? 1 : 0);
    const ChannelsLast made = choose_channels_last(graph, convolves);
    std::string lies, computes;
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      const ir::Node& node = graph.nodes[i];
      const auto add = [&](std::string& to) { to += (to.empty() ? "" : " ") + node.name; };
      if (made.values[node.outputs[0]] != 0) add(lies);
      if (made.nodes[i] != 0) add(computes);
    }
    CHECK(lies == each.lies);
    CHECK(computes == each.computes);
  }
}

TEST_CASE("the double's cuDNN takes a filter that lies channels last with tensors of 16 bits that do") {
  const cuda_double::Ground ground;
  const CudnnApi& api = cuda_double::cudnn();
  CudnnHandle handle = nullptr;
  api.create(&handle);
  api.set_stream(handle, ground.stream);
  // An image of 4 channels and planes of 3 x 4, and 1 x 1 kernels.
  const std::array<int, 4> extents = {1, 4, 3, 4}, w_extents = {4, 4, 1, 1};
  const std::array<int, 4> plain = {48, 12, 4, 1}, last = {48, 1, 16, 4};
  struct Row {
    int filter;
    std::array<int, 4> x, out;
    int type;
    CudnnCode code;
  };
  for (const Row& row : {Row{kCudnnNHWC, last, last, kCudnnBF16, kCudnnSuccess},
                         {kCudnnNHWC, last, last, kCudnnF16, kCudnnSuccess},
                         {kCudnnNCHW, plain, plain, kCudnnF32, kCudnnSuccess},
                         {kCudnnNHWC, plain, last, kCudnnBF16, kCudnnNotSupported},
                         {kCudnnNHWC, last, plain, kCudnnBF16, kCudnnNotSupported},
                         {kCudnnNCHW, last, last, kCudnnBF16, kCudnnNotSupported},
                         {kCudnnNHWC, last, last, kCudnnF32, kCudnnNotSupported}}) {
    CudnnTensor x = nullptr, out = nullptr;
    CudnnFilter w = nullptr;
    CudnnWindow window = nullptr;
    api.tensor_create(&x);
    api.tensor_create(&out);
    api.filter_create(&w);
    api.window_create(&window);
    CHECK(api.tensor_set(x, row.type, 4, extents.data(), row.x.data()) == kCudnnSuccess);
    CHECK(api.tensor_set(out, row.type, 4, extents.data(), row.out.data()) == kCudnnSuccess);
    CHECK(api.filter_set(w, row.type, row.filter, 4, w_extents.data()) == kCudnnSuccess);
    const std::array<int, 2> none = {0, 0}, one = {1, 1};
    api.window_set(window, 2, none.data(), one.data(), one.data(), kCudnnCrossCorrelation, kCudnnF32);
    const auto memory = [&] { return pointer_to(ground.written(256)); };
    const float alpha = 1, beta = 0;
    CHECK(api.convolve(handle, &alpha, x, memory(), w, memory(), window, kCudnnImplicitGemm, nullptr, 0,
                       &beta, out, memory()) == row.code);
    cuda_double::api().stream_synchronize(ground.stream);
    api.tensor_destroy(x);
    api.tensor_destroy(out);
    api.filter_destroy(w);
    api.window_destroy(window);
  }
  api.destroy(handle);
}

}  // namespace
}  // namespace heddle::cuda
