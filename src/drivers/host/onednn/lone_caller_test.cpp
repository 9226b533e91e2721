// How steps of one row are divided among sixteen threads, and that the values stay when they are.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "drivers/host/host_device.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/panels_fixture.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"
#include "tests/close_fixture.h"
#include "tests/emulated_fixture.h"
#include "tests/sanitized_fixture.h"

namespace heddle::host {
namespace {

using Numbers = std::vector<int64_t>;
using Text = std::string;

struct LoneInput {
  ir::Extents extents;
  bool constant = false;
};
LoneInput weight_of(ir::Extents extents) { return {extents, true}; }

struct LoneCase {
  std::string_view op;
  std::vector<LoneInput> in;
  ir::Attributes attributes = {};
  bool divided = true;  // false: there is too little to do
};

std::string name_of(const LoneCase& c) {
  std::string name(c.op);
  for (const LoneInput& in : c.in) name += text(" ", in.extents);
  return name;
}

ir::Tensor waves(const ir::Extents& extents, double phase) {
  ir::Tensor tensor = ir::Tensor::zeros(ir::DType::kF32, extents);
  const double scale = extents.rank() > 1 ? 0.2 : 0.5;
  for (int64_t i = 0; i < tensor.elements(); ++i)
    tensor.set(i, scale * std::sin(phase + 0.37 * static_cast<double>(i % 9973)));
  return tensor;
}

ir::Graph graph_of(const LoneCase& c) {
  ir::Builder b;
  std::vector<ir::ValueId> ids;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const LoneInput& in = c.in[i];
    if (in.constant) {
      ids.push_back(b.constant(waves(in.extents, static_cast<double>(i))));
    } else {
      ids.push_back(b.input(text("in", i), ir::Tensor::zeros(ir::DType::kF32, in.extents).type()));
    }
  }
  b.output(require(b.node(c.op, ids, c.attributes)));
  return require(b.take());
}

LoneCase conv(ir::Extents x, ir::Extents w, int64_t stride, int64_t group = 1) {
  const int64_t pad = w[w.rank() - 1] / 2;
  const size_t axes = x.rank() - 2;
  return {"Conv",
          {{x}, weight_of(w), weight_of({w[0]})},
          {{"strides", Numbers(axes, stride)}, {"pads", Numbers(2 * axes, pad)}, {"group", group}}};
}

[[maybe_unused]] std::vector<LoneCase> convolutions_of_one_row() {
  std::vector<LoneCase> cases;
  // ResNet-18, and the 1x1 ones of ResNet-50.
  cases.push_back(conv({1, 3, 224, 224}, {64, 3, 7, 7}, 2));
  cases.push_back(conv({1, 64, 56, 56}, {64, 64, 3, 3}, 1));
  cases.push_back(conv({1, 64, 56, 56}, {128, 64, 3, 3}, 2));
  cases.push_back(conv({1, 64, 56, 56}, {128, 64, 1, 1}, 2));
  cases.push_back(conv({1, 128, 28, 28}, {128, 128, 3, 3}, 1));
  cases.push_back(conv({1, 256, 14, 14}, {256, 256, 3, 3}, 1));
  cases.push_back(conv({1, 256, 14, 14}, {512, 256, 3, 3}, 2));
  cases.push_back(conv({1, 256, 14, 14}, {512, 256, 1, 1}, 2));
  cases.push_back(conv({1, 512, 7, 7}, {512, 512, 3, 3}, 1));
  cases.push_back(conv({8, 512, 7, 7}, {512, 512, 3, 3}, 1));
  cases.push_back(conv({1, 2048, 7, 7}, {512, 2048, 1, 1}, 1));
  cases.push_back(conv({1, 64, 56, 56}, {256, 64, 1, 1}, 1));
  cases.push_back(conv({1, 128, 28, 28}, {128, 4, 3, 3}, 1, 32));
  cases.push_back(conv({1, 96, 112, 112}, {96, 1, 3, 3}, 2, 96));
  cases.push_back(conv({1, 80, 300}, {384, 80, 3}, 1));
  cases.push_back(
      {"ConvTranspose", {{{1, 128, 28, 28}}, weight_of({128, 64, 2, 2})}, {{"strides", Numbers{2, 2}}}});
  cases.push_back(
      {"ConvTranspose", {{{1, 512, 14, 14}}, weight_of({512, 256, 3, 3})}, {{"strides", Numbers{2, 2}}}});
  LoneCase small = conv({1, 16, 7, 7}, {16, 16, 3, 3}, 1);
  small.divided = false;
  cases.push_back(small);
  return cases;
}

void add_rows_and_movement(std::vector<LoneCase>& cases) {
  cases.push_back(
      {"MaxPool",
       {{{1, 64, 112, 112}}},
       {{"kernel_shape", Numbers{3, 3}}, {"strides", Numbers{2, 2}}, {"pads", Numbers{1, 1, 1, 1}}}});
  cases.push_back(
      {"AveragePool", {{{1, 64, 56, 56}}}, {{"kernel_shape", Numbers{2, 2}}, {"strides", Numbers{2, 2}}}});
  cases.push_back({"GlobalAveragePool", {{{1, 1024, 14, 14}}}});
  cases.push_back({"GlobalAveragePool", {{{1, 512, 7, 7}}}, {}, false});
  cases.push_back(
      {"LayerNormalization", {{{1, 128, 768}}, weight_of({768}), weight_of({768})}, {{"axis", int64_t{-1}}}});
  cases.push_back({"LayerNormalization", {{{1, 4, 384}}, weight_of({384}), weight_of({384})}, {}, false});
  cases.push_back({"Softmax", {{{1, 12, 128, 128}}}, {{"axis", int64_t{-1}}}});
  cases.push_back({"BatchNormalization",
                   {{{1, 64, 56, 56}}, weight_of({64}), weight_of({64}), weight_of({64}), {{64}, true}},
                   {{"epsilon", 2.0}}});
  cases.push_back({"Gelu", {{{1, 128, 3072}}}});
  cases.push_back({"Add", {{{1, 64, 56, 56}}, {{1, 64, 56, 56}}}});
  cases.push_back({"Relu", {{{1, 64, 8, 8}}}, {}, false});
  cases.push_back({"Transpose", {{{1, 128, 12, 64}}}, {{"perm", Numbers{0, 2, 3, 1}}}});
  cases.push_back({"Transpose", {{{1, 64, 56, 56}}}, {{"perm", Numbers{0, 2, 3, 1}}}});
  cases.push_back({"Concat", {{{1, 64, 56, 56}}, {{1, 32, 56, 56}}}, {{"axis", int64_t{1}}}});
}

[[maybe_unused]] std::vector<LoneCase> others_of_one_row() {
  std::vector<LoneCase> cases;
  for (const int64_t length : {32, 128, 197, 512}) {
    cases.push_back(
        {"Attention", {{{1, length, 3 * 384}}}, {{"num_heads", int64_t{12}}, {"packed", int64_t{1}}}});
  }
  cases.push_back(
      {"Attention", {{{1, 4, 3 * 96}}}, {{"num_heads", int64_t{12}}, {"packed", int64_t{1}}}, false});
  cases.push_back({"Attention",
                   {{{1, 256, 512}}, {{1, 256, 128}}, {{1, 256, 128}}},
                   {{"num_heads", int64_t{8}}, {"kv_heads", int64_t{2}}}});
  for (const auto& [op, gates] : {std::pair<const char*, int64_t>{"RNN", 1}, {"GRU", 3}, {"LSTM", 4}}) {
    for (const int64_t directions : {1, 2}) {
      if (!has_panels()) continue;  // without them a row's product is one piece
      const int64_t hidden = gates == 1 ? 1024 : 512, rows = gates * hidden;
      cases.push_back(
          {op,
           {{{5, 1, 64}}, weight_of({directions, rows, 64}), weight_of({directions, rows, hidden})},
           {{"hidden_size", hidden}, {"direction", Text(directions == 1 ? "forward" : "bidirectional")}}});
    }
  }
  cases.push_back({"LSTM",
                   {{{5, 1, 40}}, weight_of({1, 256, 40}), weight_of({1, 256, 64})},
                   {{"hidden_size", int64_t{64}}},
                   false});
  add_rows_and_movement(cases);
  return cases;
}

// How other processors' oneDNN divides is not known here.
#if defined(__x86_64__)
TEST_CASE("one row of each heavy step keeps sixteen cores busy, and a small step stays whole") {
  constexpr int kWidth = 16;
  constexpr double kBalance = 0.6;
  const OmpScope team_of_one;
  const auto engine = require(make_engine(false));
  std::vector<LoneCase> cases = convolutions_of_one_row();
  for (LoneCase& each : others_of_one_row()) cases.push_back(std::move(each));
  for (const LoneCase& c : cases) {
    const ir::Graph graph = graph_of(c);
    WeightStore store(engine, graph, source_of_tests());
    const auto program =
        require(HostProgram::prepare(graph, store, kWidth, std::numeric_limits<uint64_t>::max(), true));
    REQUIRE(program->steps().size() == 1);
    const Sharing sharing = program->steps()[0].step->sharing();
    CAPTURE(name_of(c));
    CAPTURE(sharing.words);
    CHECK((sharing.pieces > 1) == c.divided);
    CHECK(program->keeps_to_a_core() != c.divided);
    if (c.divided) {
      CHECK(sharing.balance >= kBalance);
      CHECK(sharing.words.find(" cores, ") != Text::npos);
    } else {
      CHECK(sharing.words == "whole");
    }
    const auto alone =
        require(HostProgram::prepare(graph, store, 1, std::numeric_limits<uint64_t>::max(), true));
    CHECK(alone->steps()[0].step->sharing().words.empty());
  }
}
#endif

// Divided among sixteen threads, most of them also among four; small enough for the reference.
std::vector<LoneCase> cases_with_values() {
  std::vector<LoneCase> cases;
  cases.push_back(conv({1, 64, 7, 7}, {192, 64, 3, 3}, 1));  // panels
  cases.push_back(conv({1, 32, 14, 13}, {96, 32, 3, 3}, 1));
  cases.push_back(conv({3, 32, 15, 9}, {48, 32, 3, 3}, 2));
  cases.push_back(conv({1, 256, 7, 7}, {132, 256, 1, 1}, 1));
  cases.push_back({"Conv",
                   {{{1, 64, 7, 7}}, weight_of({128, 64, 3, 3}), weight_of({128}), {{1, 128, 7, 7}}},
                   {{"pads", Numbers{1, 1, 1, 1}}, {"activation", Text("relu")}}});
  cases.push_back(
      {"ConvTranspose", {{{1, 96, 7, 7}}, weight_of({96, 64, 3, 3})}, {{"strides", Numbers{2, 2}}}});
  cases.push_back({"Attention", {{{1, 70, 3 * 96}}}, {{"num_heads", int64_t{3}}, {"packed", int64_t{1}}}});
  for (const int64_t before : {0, 1}) {
    cases.push_back({"GRU",
                     {{{3, 1, 8}}, weight_of({2, 1080, 8}), weight_of({2, 1080, 360})},
                     {{"hidden_size", int64_t{360}},
                      {"direction", Text("bidirectional")},
                      {"linear_before_reset", before}}});
  }
  cases.push_back({"LSTM",
                   {{{4, 3, 8}}, weight_of({1, 1280, 8}), weight_of({1, 1280, 320}), weight_of({1, 2560})},
                   {{"hidden_size", int64_t{320}}}});
  cases.push_back(
      {"AveragePool",
       {{{1, 24, 37, 41}}},
       {{"kernel_shape", Numbers{3, 3}}, {"strides", Numbers{2, 2}}, {"pads", Numbers{1, 1, 1, 1}}}});
  cases.push_back({"GlobalAveragePool", {{{1, 200, 14, 14}}}});
  cases.push_back({"Concat", {{{1, 40, 31, 31}}, {{1, 7, 31, 31}}}, {{"axis", int64_t{1}}}});
  cases.push_back({"LayerNormalization", {{{1, 33, 384}}, weight_of({384})}, {{"axis", int64_t{-1}}}});
  return cases;
}

// One of the callers: inputs of its own, and what the reference makes of them.
struct LoneRun {
  std::vector<ir::Tensor> inputs;
  ir::Tensor wanted;
};

LoneRun run_of(const LoneCase& c, const ir::Graph& graph, int caller) {
  LoneRun run;
  for (const LoneInput& in : c.in) {
    if (!in.constant)
      run.inputs.push_back(waves(in.extents, 10.0 * (caller + 1) + static_cast<double>(run.inputs.size())));
  }
  run.wanted = require(ir::evaluate(graph, run.inputs))[0];
  return run;
}

// How often a caller's values were right.
int right_runs(device::Device& device, const Ref<const device::Program>& program, const LoneRun& run,
               int times) {
  const Ref<device::Buffer> arena = require(device::arena_for(device, *program));
  const auto queue = require(device.make_queue(NoLocksHeld()));
  std::vector<device::View> inputs;
  for (const ir::Tensor& input : run.inputs) inputs.push_back(view_of(input));
  int right = 0;
  for (int i = 0; i < times; ++i) {
    ir::Tensor y = ir::Tensor::zeros(ir::DType::kF32, run.wanted.extents());
    device::CommandList list;
    list.run(program, arena, inputs, {view_of(y)});
    if (!queue->submit(list, static_cast<uint64_t>(i) + 1, NoLocksHeld()).ok()) return right;
    bool same = true;
    for (int64_t j = 0; j < y.elements() && same; ++j)
      same = test::is_close(y.get(j), run.wanted.get(j), {1e-4, 1e-4});
    right += same ? 1 : 0;
  }
  return right;
}

TEST_CASE(
    "a step gives the reference's values to a caller alone and to four at once, however it is divided") {
  constexpr int kCallers = test::kSanitized ? 2 : 4, kTimes = test::kSanitized ? 3 : 20;
  for (const LoneCase& c : cases_with_values()) {
    CAPTURE(name_of(c));
    const ir::Graph graph = graph_of(c);
    std::vector<LoneRun> runs;
    for (int caller = 0; caller < kCallers; ++caller) runs.push_back(run_of(c, graph, caller));
    std::vector<ir::Extents> extents;
    for (const ir::Tensor& input : runs[0].inputs) extents.push_back(input.extents());
    for (const int threads : {4, 16}) {
      if (threads == 16 && (test::kSanitized || test::kEmulated)) continue;
      for (const bool exact : {false, true}) {
        CAPTURE(threads);
        CAPTURE(exact);
        const auto device = require(make_host_device({.threads = threads}));
        const auto module =
            require(device->load(graph, {.exact = exact}, device::plain_source(*device), NoLocksHeld()));
        const auto program = require(module->compile(extents, NoLocksHeld()));
        CHECK(right_runs(*device, program, runs[0], kTimes) == kTimes);
        Atomic<int> right{0};
        run_together(kCallers, [&](int caller) {
          right.add_relaxed(right_runs(*device, program, runs[static_cast<size_t>(caller)], kTimes));
        });
        CHECK(right.load_relaxed() == kCallers * kTimes);
      }
    }
  }
}

}  // namespace
}  // namespace heddle::host
