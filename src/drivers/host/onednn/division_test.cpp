#include "drivers/host/onednn/division.h"
#include "device/plain_source_fixture.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "drivers/host/host_device.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"
#include "tests/emulated_fixture.h"
#include "tests/sanitized_fixture.h"

namespace heddle::host {
namespace {

constexpr int kDividers = test::kSanitized ? 3 : test::kEmulated ? 8 : 64;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

struct Pieces {
  int count;
  bool fast;
};

// An operation of 12 rows whose pieces are fast where `fast` says so.
template <class Fast>
int pieces_of(int most, Fast fast) {
  return require(finest_division<Pieces>(most,
                                         [&](int n) -> Result<std::optional<Pieces>> {
                                           if (12 % n != 0) return std::optional<Pieces>();
                                           return std::optional(Pieces{n, fast(n)});
                                         }))
      .count;
}

TEST_CASE("the finest division that is fast is chosen, and any where the whole is slow") {
  CHECK(pieces_of(6, [](int) { return true; }) == 6);
  CHECK(pieces_of(6, [](int n) { return n < 6; }) == 4);
  CHECK(pieces_of(6, [](int n) { return n == 1; }) == 1);
  CHECK(pieces_of(6, [](int) { return false; }) == 6);
  CHECK(pieces_of(5, [](int) { return true; }) == 4);
  CHECK(pieces_of(5, [](int) { return false; }) == 1);
  CHECK(pieces_of(1, [](int) { return false; }) == 1);
}

TEST_CASE("oneDNN's references are told from its kernels by their names") {
  for (const char* name : {"ref:any", "ref_int8:any", "conv:any+ref:any"}) CHECK(is_reference(name));
  for (const char* name : {"brgconv:avx512_core", "jit:avx2", "x64:gemm:jit", "gemm:jit:f32",
                           "conv:any+jit:avx2", "simple_nhwc:any"})
    CHECK_FALSE(is_reference(name));
}

using I = int64_t;
using Is = std::vector<int64_t>;
using S = std::string;

struct In {
  ir::Extents extents;
  bool constant = false;
  bool absent = false;
};
In w(ir::Extents extents) { return {extents, true}; }

struct DividedCase {
  std::string_view op;
  std::vector<In> in;
  ir::Attributes attributes = {};
};

std::string name_of(const DividedCase& c) {
  std::string name(c.op);
  for (const In& in : c.in) name += in.absent ? " -" : text(" ", in.extents);
  for (const char* key : {"strides", "pads", "dilations"}) {
    const Is numbers = c.attributes.ints(key);
    if (!numbers.empty()) name += text(" ", key);
    for (const I n : numbers) name += text(" ", n);
  }
  if (const I group = c.attributes.i64("group", 1); group > 1) name += text(" group ", group);
  return name;
}

ir::Tensor numbers(const ir::Extents& extents, uint32_t seed) {
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  auto* data = static_cast<float*>(tensor.mutable_data());
  const I count = tensor.elements();
  for (I i = 0; i < count; ++i) {
    seed = seed * 1664525 + 1013904223;
    data[i] = static_cast<float>(seed >> 8) / (1 << 24) - 0.5f;
  }
  return tensor;
}

bool is_recurrent(const DividedCase& c) { return c.op == "RNN" || c.op == "GRU" || c.op == "LSTM"; }

ir::Graph graph_of(const DividedCase& c) {
  ir::Builder b;
  std::vector<ir::ValueId> ids;
  for (const In& in : c.in) {
    if (in.absent) {
      ids.push_back(ir::kNoValue);
    } else if (in.constant) {
      ids.push_back(b.constant(numbers(in.extents, static_cast<uint32_t>(ids.size()))));
    } else {
      ids.push_back(b.input(text("in", ids.size()), ir::Tensor::zeros(ir::DType::kF32, in.extents).type()));
    }
  }
  if (!is_recurrent(c)) {
    b.output(require(b.node(c.op, ids, c.attributes)));
    return require(b.take());
  }
  // Its rows lie along axis 1 of the input, and along axis 2 of the output.
  ids[0] = require(b.node("Transpose", {ids[0]}, {{"perm", Is{1, 0, 2}}}));
  b.output(
      require(b.node("Transpose", {require(b.node(c.op, ids, c.attributes))}, {{"perm", Is{2, 0, 1, 3}}})));
  return require(b.take());
}

void add_sequence_convolutions(std::vector<DividedCase>& cases) {
  const auto add = [&](I length, I in, I out, I kernel, ir::Attributes attributes = {}, I batch = 1) {
    const I group = attributes.i64("group", 1);
    cases.push_back(
        {"Conv", {{{batch, in, length}}, w({out, in / group, kernel}), w({out})}, std::move(attributes)});
  };
  for (const I length : {97, 100, 104, 199}) add(length, 128, 128, 5);
  add(100, 64, 128, 5);
  add(100, 128, 128, 3, {{"pads", Is{1, 1}}, {"activation", S("relu")}});
  for (const I length : {101, 300, 1500}) add(length, 80, 384, 3, {{"pads", Is{1, 1}}});
  add(300, 384, 384, 3, {{"pads", Is{1, 1}}, {"strides", Is{2}}});
  add(160, 64, 64, 3, {{"dilations", Is{4}}});
  add(160, 64, 64, 3, {{"dilations", Is{4}}, {"pads", Is{8, 0}}});
  add(400, 3, 64, 7, {{"strides", Is{2}}, {"pads", Is{3, 3}}});
  add(1600, 1, 512, 10, {{"strides", Is{5}}});
  add(512, 1, 32, 33);
  add(400, 17, 31, 3);
  add(401, 33, 65, 3);
  for (const I length : {101, 126, 130}) add(length, 64, 128, 1);
  add(2003, 256, 256, 5, {{"group", I{256}}, {"pads", Is{2, 2}}});
  add(150, 128, 128, 3, {{"group", I{4}}});
  add(211, 96, 96, 5, {{"group", I{3}}, {"strides", Is{2}}});
  for (const I batch : {2, 7, 8, 12, 30, 64}) add(29, 64, 128, 5, {}, batch);
}

void add_image_convolutions(std::vector<DividedCase>& cases) {
  const auto add = [&](Is image, I in, I out, Is kernel, ir::Attributes attributes = {}, I batch = 1) {
    Is x = {batch, in}, weight = {out, in / attributes.i64("group", 1)};
    x.insert(x.end(), image.begin(), image.end());
    weight.insert(weight.end(), kernel.begin(), kernel.end());
    cases.push_back({"Conv",
                     {{ir::Extents(std::span<const I>(x))}, w(ir::Extents(std::span<const I>(weight)))},
                     std::move(attributes)});
  };
  const ir::Attributes same = {{"pads", Is{1, 1, 1, 1}}};
  const ir::Attributes halved = {{"pads", Is{1, 1, 1, 1}}, {"strides", Is{2, 2}}};
  // ResNet-18.
  add({224, 224}, 3, 64, {7, 7}, {{"pads", Is{3, 3, 3, 3}}, {"strides", Is{2, 2}}});
  add({56, 56}, 64, 64, {3, 3}, same);
  add({56, 56}, 64, 128, {3, 3}, halved);
  add({56, 56}, 64, 128, {1, 1}, {{"strides", Is{2, 2}}});
  add({28, 28}, 128, 128, {3, 3}, same);
  add({28, 28}, 128, 256, {3, 3}, halved);
  add({14, 14}, 256, 256, {3, 3}, same);
  add({14, 14}, 256, 512, {3, 3}, halved);
  add({7, 7}, 512, 512, {3, 3}, same);
  add({7, 7}, 512, 512, {3, 3}, same, 8);
  for (const I side : {37, 53, 61}) add({side, side + 2}, 32, 64, {3, 3}, same);
  add({61, 13}, 17, 19, {3, 3}, same);
  add({112, 112}, 32, 32, {3, 3}, {{"pads", Is{1, 1, 1, 1}}, {"group", I{32}}});
  add({112, 113}, 96, 96, {3, 3}, {{"pads", Is{1, 1, 1, 1}}, {"strides", Is{2, 2}}, {"group", I{96}}});
  add({57, 57}, 40, 40, {5, 5}, {{"pads", Is{2, 2, 2, 2}}, {"group", I{40}}});
  add({28, 28}, 128, 128, {3, 3}, {{"pads", Is{1, 1, 1, 1}}, {"group", I{32}}});
  add({33, 33}, 64, 64, {3, 3}, {{"pads", Is{2, 2, 2, 2}}, {"dilations", Is{2, 2}}});
  add({41, 40}, 64, 48, {1, 7}, {{"pads", Is{0, 3, 0, 3}}});
  add({41, 40}, 64, 48, {7, 1}, {{"pads", Is{3, 0, 3, 0}}});
  add({131, 1}, 64, 128, {3, 1}, {{"pads", Is{1, 0, 1, 0}}});
  add({64, 64}, 1, 32, {3, 3}, same);
  add({64, 64}, 3, 2, {3, 3}, same);
  for (const I batch : {3, 8, 24}) add({17, 19}, 32, 48, {3, 3}, same, batch);
  add({19, 20, 21}, 16, 32, {3, 3, 3});
  // y = relu(conv + residual), and a weight that is an input.
  cases.push_back({"Conv",
                   {{{1, 128, 100}}, w({128, 128, 3}), w({128}), {{1, 128, 100}}},
                   {{"pads", Is{1, 1}}, {"activation", S("relu")}}});
  cases.push_back({"Conv", {{{1, 128, 102}}, {{128, 128, 3}}}});
}

void add_transposed_convolutions(std::vector<DividedCase>& cases) {
  const auto add = [&](ir::Extents x, ir::Extents weight, ir::Attributes attributes) {
    cases.push_back({"ConvTranspose", {{x}, w(weight)}, std::move(attributes)});
  };
  for (const I length : {50, 97, 100}) {
    add({1, 64, length}, {64, 32, 4}, {{"strides", Is{2}}, {"pads", Is{1, 1}}});
    add({1, 128, length}, {128, 128, 5}, {});
    add({1, 128, length}, {128, 64, 16}, {{"strides", Is{8}}, {"pads", Is{4, 4}}});
  }
  add({1, 64, 200}, {64, 33, 3}, {{"dilations", Is{3}}});
  for (const I batch : {2, 8, 15}) add({batch, 64, 17, 9}, {64, 32, 3, 3}, {{"strides", Is{2, 2}}});
  add({1, 128, 28, 28}, {128, 64, 2, 2}, {{"strides", Is{2, 2}}});
  add({1, 64, 31, 29}, {64, 17, 4, 4}, {{"strides", Is{2, 2}}, {"pads", Is{1, 1, 1, 1}}});
  add({1, 64, 57, 57}, {64, 1, 4, 4}, {{"strides", Is{2, 2}}, {"group", I{64}}});
  add({1, 64, 40, 41}, {64, 16, 3, 3}, {{"group", I{4}}});
}

void add_products(std::vector<DividedCase>& cases) {
  for (const I m : {1, 2, 3, 5, 7, 13, 16, 31, 64, 97, 128, 257, 512}) {
    cases.push_back({"Linear", {{{m, 384}}, w({384, 1536}), w({1536})}, {{"activation", S("relu")}}});
    cases.push_back({"Linear", {{{m, 257}}, w({257, 129}), w({129}), {{m, 129}}}});
    cases.push_back({"Linear", {{{m, 1000}}, w({7, 1000})}, {{"trans_w", I{1}}}});
    cases.push_back({"Linear", {{{m, 512}}, {{512, 1000}}, {{1000}}}});
    cases.push_back({"MatMul", {{{m, 129}}, {{129, 255}}}});
    cases.push_back({"MatMul", {{{12, m, 33}}, {{12, 33, 127}}}});
    cases.push_back({"MatMul", {{{2, 3, m, 64}}, {{3, 64, 65}}}});
    cases.push_back({"Gemm", {{{m, 300}}, {{300, 77}}, {{77}}}, {{"beta", 2.0}}});
  }
  cases.push_back({"Linear", {{{1, 4096}}, w({4096, 1037})}});
}

void add_others(std::vector<DividedCase>& cases) {
  for (const auto& [op, gates] : {std::pair<const char*, I>{"RNN", 1}, {"GRU", 3}, {"LSTM", 4}}) {
    for (const I batch : {1, 3, 13, 32}) {
      for (const I hidden : {65, 128}) {
        cases.push_back({op,
                         {{{9, batch, 40}}, w({2, gates * hidden, 40}), w({2, gates * hidden, hidden})},
                         {{"direction", S("bidirectional")}}});
      }
    }
  }
  for (const I length : {1, 17, 128, 197}) {
    cases.push_back(
        {"Attention", {{{1, length, 384}}, {{1, length, 384}}, {{1, length, 384}}}, {{"num_heads", I{12}}}});
    cases.push_back({"Attention", {{{3, length, 3 * 99}}}, {{"num_heads", I{3}}, {"packed", I{1}}}});
  }
  for (const I batch : {1, 7, 12, 64}) {
    cases.push_back({"AveragePool",
                     {{{batch, 33, 19, 23}}},
                     {{"kernel_shape", Is{3, 3}}, {"strides", Is{2, 2}}, {"pads", Is{1, 1, 1, 1}}}});
    cases.push_back({"GlobalAveragePool", {{{batch, 64, 49}}}});
  }
}

std::vector<DividedCase> all_cases() {
  std::vector<DividedCase> cases;
  add_sequence_convolutions(cases);
  add_image_convolutions(cases);
  add_transposed_convolutions(cases);
  add_products(cases);
  add_others(cases);
  return cases;
}

bool is_slow(std::string_view path) { return path.find("slow reference") != std::string_view::npos; }

Ref<const Engine> engine_for(bool bf16) {
  auto engine = make_engine(bf16);
  return engine.ok() ? *engine : nullptr;  // this processor has no bf16
}

struct Swept {
  int programs = 0, divided = 0;
};

// Compiles for few threads and for a third of the larger numbers, another one for each of three neighbours.
Swept sweep(const DividedCase& c, size_t nth, const Ref<const Engine>& engine) {
  constexpr int kFew = 8, kPart = 3;
  const ir::Graph graph = graph_of(c);
  WeightStore store(engine, graph, source_of_tests());
  const auto path_with = [&](int threads) {
    return require(HostProgram::prepare(graph, store, threads, kNoLimit, true))->path();
  };
  const std::string whole = path_with(1);
  Swept swept;
  for (int threads = 2; threads <= kDividers; ++threads) {
    if (threads > kFew && (static_cast<size_t>(threads) + nth + nth / kPart) % kPart != 0) continue;
    const std::string path = path_with(threads);
    CHECK_MESSAGE((is_slow(whole) || !is_slow(path)), name_of(c), " with ", threads, " threads: ", path);
    ++swept.programs;
    if (path.find(" pieces") != std::string::npos) ++swept.divided;
  }
  return swept;
}

TEST_CASE("no division sends to oneDNN's reference what a kernel computes as a whole: operators") {
  const OmpScope team_of_one;
  const std::vector<DividedCase> cases = all_cases();
  for (const bool bf16 : {false, true}) {
    const auto engine = engine_for(bf16);
    if (engine == nullptr) continue;
    Swept all;
    for (size_t nth = 0; nth < cases.size(); ++nth) {
      const Swept swept = sweep(cases[nth], nth, engine);
      all.programs += swept.programs;
      all.divided += swept.divided;
    }
    CHECK(all.divided * 4 * (kDividers - 1) > all.programs * kDividers);
  }
}

#if defined(__x86_64__)
TEST_CASE("a path names the kernel and the pieces, and says so where only oneDNN's reference is left") {
  const OmpScope team_of_one;
  const auto path_of_case = [](const DividedCase& c, int threads) {
    const ir::Graph graph = graph_of(c);
    WeightStore store(engine_for(false), graph, source_of_tests());
    return require(HostProgram::prepare(graph, store, threads, kNoLimit, true))->path();
  };
  const DividedCase conv{"Conv", {{{1, 128, 100}}, w({128, 128, 3})}, {{"pads", Is{1, 1}}}};
  CHECK(path_of_case(conv, 1).find("{Conv: oneDNN ") == 0);
  CHECK(path_of_case(conv, 4).find(" in 4 pieces}") != std::string::npos);
  const DividedCase sums{"LpPool", {{{1, 4, 9}}}, {{"kernel_shape", Is{2}}}};
  CHECK(path_of_case(sums, 1) == "{LpPool: the operator's slow reference, on one core}");
}
#endif

std::vector<ir::Tensor> inputs_of(const DividedCase& c, uint32_t seed) {
  std::vector<ir::Tensor> inputs;
  for (const In& in : c.in) {
    if (!in.constant && !in.absent) inputs.push_back(numbers(in.extents, ++seed));
  }
  return inputs;
}

// Each of `runs` is the inputs of one run; all have the same shapes.
std::vector<ir::Tensor> run_each(const DividedCase& c, int threads, std::vector<std::vector<ir::Tensor>> runs,
                                 const device::LoadOptions& options = {}) {
  const auto device = require(make_host_device({.threads = threads}));
  const auto module =
      require(device->load(graph_of(c), options, device::plain_source(*device), NoLocksHeld()));
  std::vector<ir::Extents> extents;
  for (const ir::Tensor& input : runs[0]) extents.push_back(input.extents());
  const auto program = require(module->compile(extents, NoLocksHeld()));
  const Ref<device::Buffer> arena = require(device::arena_for(*device, *program));
  const auto queue = require(device->make_queue(NoLocksHeld()));
  std::vector<ir::Tensor> outputs;
  for (std::vector<ir::Tensor>& inputs : runs) {
    std::vector<device::View> views;
    for (ir::Tensor& input : inputs) views.push_back(view_of(input));
    ir::Tensor& y = outputs.emplace_back(ir::Tensor::zeros(ir::DType::kF32, program->outputs()[0].extents));
    device::CommandList list;
    list.run(program, arena, views, {view_of(y)});
    REQUIRE(queue->submit(list, outputs.size(), NoLocksHeld()).ok());
  }
  return outputs;
}

std::span<const float> floats(const ir::Tensor& tensor) {
  return {static_cast<const float*>(tensor.data()), static_cast<size_t>(tensor.elements())};
}

// Cases and threads whose finest division is passed over or has pieces of several kinds.
struct Divided {
  DividedCase c;
  std::vector<int> threads;
};
std::vector<Divided> divided_cases() {
  const ir::Attributes same = {{"pads", Is{1, 1}}};
  std::vector<Divided> cases;
  cases.push_back({{"Conv", {{{1, 64, 100}}, w({128, 64, 3}), w({128})}, same}, {7, 8, 13, 50}});
  cases.push_back({{"Conv", {{{1, 64, 104}}, w({128, 64, 5})}}, {8, 16}});
  cases.push_back({{"Conv", {{{1, 64, 160}}, w({64, 64, 3})}, {{"dilations", Is{4}}}}, {11, 12, 13}});
  cases.push_back({{"Conv", {{{1, 32, 53, 55}}, w({64, 32, 3, 3})}, {{"pads", Is{1, 1, 1, 1}}}}, {6}});
  const ir::Attributes doubled = {{"strides", Is{2}}, {"pads", Is{1, 1}}};
  cases.push_back({{"ConvTranspose", {{{1, 64, 97}}, w({64, 32, 4})}, doubled}, {3, 8, 31}});
  cases.push_back({{"ConvTranspose", {{{1, 64, 98}}, w({64, 32, 3})}, doubled}, {4, 8}});
  cases.push_back({{"ConvTranspose", {{{1, 64, 25}}, w({64, 16, 16})}, {{"strides", Is{8}}}}, {4, 12}});
  cases.push_back({{"ConvTranspose", {{{1, 64, 97}}, w({64, 64, 5})}}, {3, 5, 8}});
  return cases;
}

TEST_CASE("however it is divided, a convolution gives the reference's values") {
  for (const auto& [c, counts] : divided_cases()) {
    CAPTURE(name_of(c));
    const std::vector<ir::Tensor> inputs = inputs_of(c, 1);
    const ir::Tensor wanted = require(ir::evaluate(graph_of(c), inputs))[0];
    for (const int threads : counts) {
      if (test::kEmulated && threads > kDividers) continue;  // their spinning takes minutes
      CAPTURE(threads);
      const ir::Tensor y = run_each(c, threads, {inputs})[0];
      REQUIRE(y.extents() == wanted.extents());
      for (size_t i = 0; i < floats(wanted).size(); ++i)
        REQUIRE(floats(y)[i] == doctest::Approx(floats(wanted)[i]).epsilon(1e-4).scale(1));
    }
  }
}

// Cases of one row, along axis 0 of every input.
std::vector<DividedCase> rows_of_one() {
  std::vector<DividedCase> cases;
  if (!test::kSanitized && !test::kEmulated) cases = all_cases();
  for (const Divided& divided : divided_cases()) cases.push_back(divided.c);
  const auto add = [&](std::string_view op, ir::Extents x, ir::Extents weight, ir::Attributes attributes) {
    cases.push_back({op, {{x}, w(weight)}, std::move(attributes)});
  };
  // With and without enough work to be divided alone, and few rows.
  for (const I side : {2, 5, 9, 23}) {
    add("Conv", {1, 64, side, side}, {64, 64, 3, 3}, {{"pads", Is{1, 1, 1, 1}}});
    add("ConvTranspose", {1, 64, side, side}, {64, 32, 3, 3}, {{"strides", Is{2, 2}}});
  }
  add("Conv", {1, 384, 14, 14}, {384, 384, 3, 3}, {{"pads", Is{1, 1, 1, 1}}, {"strides", Is{2, 2}}});
  add("Conv", {1, 64, 40, 9}, {64, 64, 3, 1}, {{"pads", Is{8, 0, 0, 0}}, {"dilations", Is{4, 1}}});
  add("ConvTranspose", {1, 64, 40}, {64, 32, 3}, {{"strides", Is{2}}, {"group", I{2}}});
  for (const auto& [op, gates] : {std::pair("RNN", I{1}), std::pair("GRU", I{3}), std::pair("LSTM", I{4})}) {
    for (const I directions : {1, 2}) {
      const I rows = gates * 48;
      cases.push_back(
          {op,
           {{{1, 9, 40}}, w({directions, rows, 40}), w({directions, rows, 48}), w({directions, 2 * rows})},
           {{"hidden_size", I{48}}, {"direction", S(directions == 1 ? "forward" : "bidirectional")}}});
    }
  }
  // In slices of the hidden elements.
  cases.push_back({"LSTM", {{{1, 3, 8}}, w({1, 1024, 8}), w({1, 1024, 256})}, {{"hidden_size", I{256}}}});
  // Products of two inputs, and of an input and a constant.
  for (const I m : {1, 7, 16, 64, 197}) {
    cases.push_back({"MatMul", {{{1, 12, m, 33}}, {{1, 12, 33, 127}}}});
    cases.push_back({"MatMul", {{{1, m, 64}}, {{1, 64, m}}}});
    cases.push_back({"MatMul", {{{1, m, 640}}, w({640, 333})}});
    cases.push_back({"Gemm", {{{1, m * 10}}, w({m * 10, 77}), w({77})}, {{"beta", 2.0}}});
  }
  std::erase_if(cases, [](const DividedCase& c) {
    return std::ranges::any_of(c.in,
                               [](const In& in) { return !in.constant && !in.absent && in.extents[0] != 1; });
  });
  return cases;
}

ir::Tensor rows_of(const ir::Tensor& all, I first, I count) {
  ir::Extents extents = all.extents();
  const size_t row = floats(all).size() / static_cast<size_t>(extents[0]);
  extents[0] = count;
  ir::Tensor rows = ir::Tensor::zeros(ir::DType::kF32, extents);
  const auto from = floats(all).subspan(static_cast<size_t>(first) * row, static_cast<size_t>(count) * row);
  std::memcpy(rows.mutable_data(), from.data(), from.size_bytes());
  return rows;
}

DividedCase with_rows(DividedCase c, I rows) {
  for (In& in : c.in) {
    if (!in.constant && !in.absent) in.extents[0] = rows;
  }
  return c;
}

// The batches, as "rows", of which a row's bits differ from those of the row alone.
std::string differing_batches(const DividedCase& c, int threads, const device::LoadOptions& options) {
  constexpr I kMost = 5;
  const std::vector<ir::Tensor> all = inputs_of(with_rows(c, kMost), 1);
  const auto rows = [&](I first, I count) {
    std::vector<ir::Tensor> inputs;
    for (const ir::Tensor& input : all) inputs.push_back(rows_of(input, first, count));
    return inputs;
  };
  std::vector<std::vector<ir::Tensor>> each;
  for (I row = 0; row < kMost; ++row) each.push_back(rows(row, 1));
  const std::vector<ir::Tensor> alone = run_each(c, threads, each, options);
  std::string differing;
  for (I count = 2; count <= kMost; ++count) {
    const ir::Tensor together = run_each(with_rows(c, count), threads, {rows(0, count)}, options)[0];
    for (I row = 0; row < count; ++row) {
      const ir::Tensor one = rows_of(together, row, 1);
      if (std::memcmp(one.data(), alone[static_cast<size_t>(row)].data(), floats(one).size_bytes()) == 0)
        continue;
      differing += text(" ", count);
      break;
    }
  }
  return differing;
}

TEST_CASE("exact: a row's bits are the same alone as in a batch, however both are divided") {
  const bool slow = test::kSanitized || test::kEmulated;
  for (const bool bf16 : {false, true}) {
    if (bf16 && (slow || engine_for(true) == nullptr)) continue;
    const std::vector<DividedCase> cases = rows_of_one();
    for (size_t nth = 0; nth < cases.size(); ++nth) {
      const DividedCase& c = cases[nth];
      for (const int threads :
           bf16 || slow ? std::vector{3} : std::vector{std::popcount(nth) % 2 == 0 ? 1 : 8, 3}) {
        const std::string differing =
            differing_batches(c, threads, {.precision = bf16 ? "bf16" : "f32", .exact = true});
        CHECK_MESSAGE(differing.empty(), name_of(c), S(bf16 ? " in bf16" : ""), " with ", threads,
                      " threads, batches of", differing);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::host
