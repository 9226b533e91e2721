#include "drivers/host/layout/row_locator.h"
#include "device/plain_source_fixture.h"

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "drivers/host/host_device.h"
#include "drivers/host/program.h"
#include "drivers/host/require_fixture.h"
#include "plan/sketch_fixture.h"
#include "plan/specialize.h"

namespace heddle::host {
namespace {

using device::RowFaults;
using device::View;
using ir::DType;
using plan::sym;
using Id = plan::Sketch::Id;
using Tensors = std::vector<ir::Tensor>;

constexpr int64_t kRows = 5;
const int64_t kTall = 50, kWide = 2048;  // of a table of embeddings

// A wrong number for one element of an input.
struct Wrong {
  size_t input;
  int64_t element;
  int64_t value;
  int64_t row;
  std::string says;
};

struct FaultCase {
  std::string what;
  std::function<void(plan::Sketch&)> build;  // inputs named x0, x1 .. with [batch, ..]
  std::vector<Wrong> wrong;
  std::vector<double> most;  // the largest right number of each integer input
};

// One model on a device of its own, run for kRows rows.
struct RowsRun {
  RowsRun(ir::Graph graph, int threads)
      : device(require(make_host_device({.threads = threads}))),
        module(require(device->load(std::move(graph), {}, device::plain_source(*device), NoLocksHeld()))),
        queue(require(device->make_queue(NoLocksHeld()))) {
    std::vector<ir::Extents> shapes;
    for (const device::Signature& input : module->inputs()) {
      ir::Extents extents;
      for (const ir::Dim& dim : input.type.shape)
        extents.push_back(*dim.evaluate(plan::Symbols{{"batch", kRows}}));
      shapes.push_back(extents);
    }
    program = require(module->compile(shapes, NoLocksHeld()));
    arena = require(device::arena_for(*device, *program));
  }

  Status run(const Tensors& inputs, Tensors& outputs, RowFaults* faults) {
    std::vector<View> in, out;
    outputs.clear();
    for (const ir::ConcreteType& type : program->outputs())
      outputs.push_back(ir::Tensor::zeros(type.dtype, type.extents));
    for (const ir::Tensor& t : inputs) in.push_back(view_of(t));
    for (const ir::Tensor& t : outputs) out.push_back(view_of(t));
    device::CommandList list;
    list.run(program, arena, std::move(in), std::move(out),
             Ref<RowFaults>(Ref<RowFaults>(), faults));  // the caller keeps them
    return queue->submit(list, ++value, NoLocksHeld());
  }

  // Right ones.
  Tensors inputs(const std::vector<double>& most) const {
    std::mt19937 random(3);
    Tensors out;
    for (size_t i = 0; i < program->inputs().size(); ++i) {
      const ir::ConcreteType& type = program->inputs()[i];
      ir::Tensor t = ir::Tensor::zeros(type.dtype, type.extents);
      const bool real = ir::is_float(type.dtype);
      std::uniform_real_distribution<double> pick(real ? -1 : 0, real ? 1 : most[i] + 0.99);
      for (int64_t e = 0; e < t.elements(); ++e) t.set(e, real ? pick(random) : std::floor(pick(random)));
      out.push_back(std::move(t));
    }
    return out;
  }

  Ref<device::Device> device;
  Ref<const device::Module> module;
  Ref<const device::Program> program;
  std::unique_ptr<device::Queue> queue;
  Ref<device::Buffer> arena;
  uint64_t value = 0;
};

ir::Tensor with(const ir::Tensor& right, const Wrong& wrong) {
  ir::Tensor t = ir::Tensor::zeros(right.dtype(), right.extents());
  std::memcpy(t.mutable_data(), right.data(), static_cast<size_t>(right.bytes()));
  t.set_i64(wrong.element, wrong.value);
  return t;
}

bool same_row(const Tensors& a, const Tensors& b, int64_t row) {
  bool same = true;
  for (size_t o = 0; o < a.size(); ++o) {
    const auto bytes = static_cast<size_t>(a[o].bytes() / kRows);
    const size_t at = bytes * static_cast<size_t>(row);
    same = same && std::memcmp(a[o].as<std::byte>() + at, b[o].as<std::byte>() + at, bytes) == 0;
  }
  return same;
}

ir::Graph graph_of(const FaultCase& c) {
  plan::Sketch s;
  c.build(s);
  return s.take();
}

ir::Attributes at(int64_t axis) { return {{"axis", axis}}; }

std::vector<FaultCase> gather_cases() {
  const auto ids = [](plan::Sketch& s, ir::Shape shape, DType dtype = DType::kI64) {
    return s.in("x0", std::move(shape), dtype);
  };
  return {
      {"embedding",
       [=](plan::Sketch& s) { s.out(s.op("Gather", {s.random({kTall, kWide}), ids(s, {sym("batch"), 7})})); },
       {{0, 2 * 7 + 3, 50, 2, "(Gather): index 50 is outside [-50, 49]"},
        {0, 0, -51, 0, "(Gather): index -51 is outside [-50, 49]"},
        {0, kRows * 7 - 1, INT64_MAX, 4, "index 9223372036854775807 is outside"},
        {0, kRows * 7 - 1, INT64_MIN, 4, "index -9223372036854775808 is outside"}},
       {kTall - 1}},
      {"sequence first",
       [=](plan::Sketch& s) {
         const Id turned = s.transpose(ids(s, {sym("batch"), 7}, DType::kI32), {1, 0});
         s.out(s.transpose(s.op("Gather", {s.random({kTall, kWide}), turned}), {1, 0, 2}));
       },
       {{0, 3 * 7 + 6, 77, 3, "index 77 is outside [-50, 49]"}},
       {kTall - 1}},
      {"several rows of indices for each caller",
       [=](plan::Sketch& s) {
         const Id flat = s.reshape(ids(s, {sym("batch"), 7}), {-1});
         s.out(s.reshape(s.op("Gather", {s.random({kTall, kWide}), flat}), {-1, 7, kWide}));
       },
       {{0, 1 * 7, 50, 1, "index 50 is outside [-50, 49]"}},
       {kTall - 1}},
      {"what was looked up wrongly is looked up",
       [=](plan::Sketch& s) {
         const Id table = s.constant(ir::Tensor::of_i64(std::vector<int64_t>(kTall, 5)));
         s.out(s.op("Gather", {s.random({6, kWide}), s.op("Gather", {table, ids(s, {sym("batch"), 7})})}));
       },
       {{0, 2 * 7, 50, 2, "index 50 is outside [-50, 49]"}},
       {kTall - 1}},
      {"of an empty table",
       [=](plan::Sketch& s) {
         const Id found = s.op("Gather", {s.random({0, 16}), ids(s, {sym("batch"), 0})});
         s.out(s.op("Add", {s.op("ReduceSum", {found, s.ints({1})}), s.in("x1", {sym("batch"), 1, 16})}));
       },
       {},
       {0}},
  };
}

std::vector<FaultCase> point_and_scatter_cases() {
  return {
      {"elements",
       [](plan::Sketch& s) {
         const Id x = s.in("x0", {sym("batch"), 40, 300});
         s.out(s.op("GatherElements", {x, s.in("x1", {sym("batch"), 40, 200}, DType::kI64)}, at(2)));
       },
       {{1, 2 * 40 * 200 + 77, 300, 2, "(GatherElements): index 300 is outside [-300, 299]"}},
       {0, 299}},
      {"points of one table",
       [](plan::Sketch& s) {
         s.out(s.op("GatherND", {s.random({12, 13, 700}), s.in("x0", {sym("batch"), 11, 2}, DType::kI64)}));
       },
       {{0, (2 * 11 + 4) * 2, 12, 2, "(GatherND): index 12 is outside [-12, 11]"},
        {0, (4 * 11 + 4) * 2 + 1, -14, 4, "(GatherND): index -14 is outside [-13, 12]"}},
       {11}},
      {"points of each row's own",
       [](plan::Sketch& s) {
         const Id x = s.in("x0", {sym("batch"), 16, 900});
         s.out(s.op("GatherND", {x, s.in("x1", {sym("batch"), 9, 1}, DType::kI64)},
                    {{"batch_dims", int64_t{1}}}));
       },
       {{1, 2 * 9 + 8, 16, 2, "(GatherND): index 16 is outside [-16, 15]"}},
       {0, 15}},
      {"added to elements",
       [](plan::Sketch& s) {
         const Id x = s.in("x0", {sym("batch"), 8, 1024});
         const Id where = s.in("x1", {sym("batch"), 6, 1024}, DType::kI64);
         const ir::Attributes added = {{"axis", int64_t{1}}, {"reduction", std::string("add")}};
         s.out(s.op("ScatterElements", {x, where, s.in("x2", {sym("batch"), 6, 1024})}, added));
       },
       {{1, 2 * 6 * 1024 + 5, 8, 2, "(ScatterElements): index 8 is outside [-8, 7]"},
        {1, 0, -9, 0, "(ScatterElements): index -9 is outside [-8, 7]"}},
       {0, 7, 0}},
  };
}

FaultCase recurrent_case(std::string_view op, DType dtype) {
  const auto build = [=](plan::Sketch& s) {
    const auto weights = [&](const ir::Extents& extents) {
      const Id w = s.random(extents);
      return s.op("Cast", {w}, {{"to", to_string(dtype)}});
    };
    const int64_t gates = op == "LSTM" ? 4 : op == "GRU" ? 3 : 1;
    const Id x = s.transpose(s.in("x0", {sym("batch"), 6, 32}, dtype), {1, 0, 2});
    const Id lengths = s.in("x1", {sym("batch")}, DType::kI32);
    const Id y = s.ops(
        op, {x, weights({1, gates * 24, 32}), weights({1, gates * 24, 24}), ir::kNoValue, lengths}, 2, {})[0];
    s.out(s.transpose(y, {2, 0, 1, 3}));
  };
  const std::string says = text('(', op, "): sequence_lens holds ");
  return {text(op, " in ", dtype),
          build,
          {{1, 2, 7, 2, says + "7; it has to be 0 to 6"}, {1, 4, -1, 4, says + "-1; it has to be 0 to 6"}},
          {0, 6}};
}

using Body = std::shared_ptr<const ir::Graph>;

// (ids, table) -> table[ids], doubled or not
Body looking_up(bool doubled) {
  plan::Sketch s;
  const Id ids = s.in("ids", {sym("batch"), 7}, DType::kI64);
  const Id found = s.op("Gather", {s.in("table", {kTall, kWide}), ids});
  s.out(doubled ? s.op("Add", {found, found}) : s.op("Neg", {found}));
  return std::make_shared<const ir::Graph>(s.take());
}

// (i, go, sum, ids, table) -> (go, sum + table[ids[:, i]])
Body adding_one(int64_t length) {
  plan::Sketch s;
  const Id i = s.in("i", {}, DType::kI64);
  const Id go = s.in("go", {}, DType::kBool);
  const Id sum = s.in("sum", {sym("batch"), 64});
  const Id ids = s.in("ids", {sym("batch"), length}, DType::kI64);
  const Id found = s.op("Gather", {s.in("table", {kTall, 64}), s.op("Gather", {ids, i}, at(1))});
  s.out(s.op("Identity", {go}));
  s.out(s.op("Add", {sum, found}));
  return std::make_shared<const ir::Graph>(s.take());
}

FaultCase branch_case() {
  const auto build = [](plan::Sketch& s) {
    // Too much to be folded: the choice is the program's.
    const Id product = s.op("MatMul", {s.random({300, 300}), s.random({300, 300})});
    const Id most = s.op("ReduceMax", {product}, {{"keepdims", int64_t{0}}});
    const Id ids = s.in("x0", {sym("batch"), 7}, DType::kI64);
    s.out(s.op("If", {s.op("Less", {most, s.number(0)}), ids, s.random({kTall, kWide})},
               {{"then_branch", looking_up(true)}, {"else_branch", looking_up(false)}}));
  };
  return {"in a branch", build, {{0, 2 * 7 + 3, 50, 2, "index 50 is outside [-50, 49]"}}, {kTall - 1}};
}

FaultCase loop_case(int64_t trips) {
  const auto build = [=](plan::Sketch& s) {
    const Id count = s.constant(ir::Tensor::scalar(DType::kI64, static_cast<double>(trips)));
    const Id yes = s.constant(ir::Tensor::scalar(DType::kBool, 1));
    const Id ids = s.in("x0", {sym("batch"), trips}, DType::kI64);
    const Id start = s.in("x1", {sym("batch"), 64});
    s.out(s.op("Loop", {count, yes, start, ids, s.random({kTall, 64})},
               {{"body", adding_one(trips)}, {"carried", int64_t{1}}}));
  };
  return {text("in a loop of ", trips),
          build,
          {{0, 2 * trips + 5, 50, 2, "index 50 is outside [-50, 49]"}},
          {kTall - 1, 0}};
}

std::vector<FaultCase> cases() {
  std::vector<FaultCase> all;
  for (const auto& family : {gather_cases(), point_and_scatter_cases()})
    all.insert(all.end(), family.begin(), family.end());
  for (const std::string_view op : {"LSTM", "GRU", "RNN"}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kF64})
      all.push_back(recurrent_case(op, dtype));
  }
  all.push_back(branch_case());
  all.push_back(loop_case(10));
  all.push_back(loop_case(80));
  return all;
}

TEST_CASE("only the row that is wrong is told so, and the others' results are those with a good neighbour") {
  int told = 0;
  for (const FaultCase& c : cases()) {
    for (const int threads : {1, 4}) {
      CAPTURE(c.what);
      CAPTURE(threads);
      RowsRun running(graph_of(c), threads);
      const Tensors right = running.inputs(c.most);
      Tensors good, asked, got;
      REQUIRE(running.run(right, good, nullptr).ok());
      RowFaults none(kRows);
      REQUIRE(running.run(right, asked, &none).ok());
      CHECK_FALSE(none.any());
      for (int64_t row = 0; row < kRows; ++row) CHECK(same_row(asked, good, row));
      for (const Wrong& wrong : c.wrong) {
        CAPTURE(wrong.value);
        Tensors inputs = right;
        inputs[wrong.input] = with(right[wrong.input], wrong);
        RowFaults faults(kRows);
        const Status status = running.run(inputs, got, &faults);
        REQUIRE_MESSAGE(status.ok(), to_string(status));
        CHECK(faults.count() == 1);
        const Status fault = faults.of(wrong.row);
        CAPTURE(fault.message());
        CHECK(fault.code() == Code::invalid);
        CHECK(fault.message().find("node '") == 0);
        CHECK(fault.message().find(wrong.says) != std::string::npos);
        for (int64_t row = 0; row < kRows; ++row) CHECK((row == wrong.row || same_row(got, good, row)));
        // No caller asks for rows: the run as a whole fails with the same.
        const Status alone = running.run(inputs, got, nullptr);
        CHECK(alone.code() == Code::invalid);
        CHECK(alone.message() == fault.message());
        ++told;
      }
    }
  }
  CHECK(told == 2 * (4 + 3 + 5 + 18 + 3 + 1));
}

TEST_CASE("a branch and a long loop that are marked are the program's own, not folded away") {
  for (const auto& [c, op] : {std::pair(branch_case(), "If"), std::pair(loop_case(80), "Loop")}) {
    const RowsRun running(graph_of(c), 1);
    std::vector<ir::Extents> shapes;
    for (const ir::ConcreteType& input : running.program->inputs()) shapes.push_back(input.extents);
    CHECK(plan::count(require(plan::specialize(running.module->graph(), shapes)), op) == 1);
  }
}

TEST_CASE("several wrong rows are told each its own first mistake, and all rows may be wrong") {
  const FaultCase c = gather_cases()[1];  // its rows lie in pieces
  RowsRun running(graph_of(c), 2);
  const Tensors right = running.inputs(c.most);
  Tensors good, got;
  REQUIRE(running.run(right, good, nullptr).ok());
  for (int64_t wrong_rows = 1; wrong_rows < (1 << kRows); ++wrong_rows) {
    Tensors inputs = right;
    for (int64_t row = 0; row < kRows; ++row) {
      if ((wrong_rows >> row & 1) == 0) continue;
      for (int64_t i = 6; i >= 2; --i)
        inputs[0] = with(inputs[0], {0, row * 7 + i, 100 + 10 * row + i, row, ""});
    }
    RowFaults faults(kRows);
    REQUIRE(running.run(inputs, got, &faults).ok());
    for (int64_t row = 0; row < kRows; ++row) {
      const bool wrong = (wrong_rows >> row & 1) != 0;
      CHECK(faults.of(row).ok() == !wrong);
      if (wrong)
        CHECK(faults.of(row).message().find(text("index ", 102 + 10 * row, ' ')) != std::string::npos);
      CHECK((wrong || same_row(got, good, row)));
    }
  }
}

TEST_CASE("runs at once, each with faults of its own, do not meet") {
  const FaultCase c = gather_cases()[0];
  RowsRun shared(graph_of(c), 4);
  const Tensors right = shared.inputs(c.most);
  Tensors good;
  REQUIRE(shared.run(right, good, nullptr).ok());
  Atomic<int> wrong{0};
  run_together(4, [&](int thread) {
    const auto queue = shared.device->make_queue(NoLocksHeld());
    const auto arena = device::arena_for(*shared.device, *shared.program);
    if (!queue.ok() || !arena.ok()) {
      wrong.add_relaxed(1);
      return;
    }
    ir::Tensor got = ir::Tensor::zeros(DType::kF32, good[0].extents());
    for (uint64_t turn = 1; turn <= 20; ++turn) {
      const int64_t row = (thread + static_cast<int64_t>(turn)) % kRows;
      const ir::Tensor ids = with(right[0], {0, row * 7 + 1, 50 + thread, row, ""});
      const auto faults = std::make_shared<RowFaults>(kRows);
      device::CommandList list;
      list.run(shared.program, *arena, {view_of(ids)}, {view_of(got)}, faults);
      bool fits = (*queue)->submit(list, turn, NoLocksHeld()).ok() && faults->count() == 1 &&
                  faults->of(row).message().find(text("index ", 50 + thread, ' ')) != std::string::npos;
      for (int64_t other = 0; other < kRows; ++other)
        fits = fits && (other == row || same_row({got}, good, other));
      wrong.add_relaxed(fits ? 0 : 1);
    }
  });
  CHECK(wrong.load_acquire() == 0);
}

TEST_CASE("a mistake that concerns several rows fails the run") {
  struct Shared {
    std::string what;
    std::function<void(plan::Sketch&)> build;
    std::vector<Wrong> wrong;  // none: the model itself is
  };
  const Shared table[] = {
      {"constant positions",
       [](plan::Sketch& s) { s.out(s.op("Gather", {s.in("x0", {sym("batch"), 6}), s.ints({0, 6})}, at(1))); },
       {}},
      {"rows that meet",
       [](plan::Sketch& s) {
         const Id found = s.op("Gather", {s.random({kTall, 8}), s.in("x0", {sym("batch"), 7}, DType::kI64)});
         s.out(s.op("Sub", {found, s.op("ReduceMean", {found, s.ints({0})})}));
       },
       {{0, 3, 50, 0, ""}}},
      {"points written anywhere",
       [](plan::Sketch& s) {
         const Id x = s.in("x0", {sym("batch"), 6});
         const Id where = s.in("x1", {sym("batch"), 1}, DType::kI64);
         s.out(s.op("ScatterND", {x, where, s.in("x2", {sym("batch"), 6})}));
       },
       {{1, 2, 5, 2, ""}}},
  };
  for (const Shared& c : table) {
    CAPTURE(c.what);
    plan::Sketch s;
    c.build(s);
    RowsRun running(s.take(), 1);
    Tensors inputs = running.inputs({4, 4, 4}), got;
    for (const Wrong& wrong : c.wrong) inputs[wrong.input] = with(inputs[wrong.input], wrong);
    RowFaults faults(kRows);
    const Status status = running.run(inputs, got, &faults);
    CHECK(status.code() == Code::invalid);
    CHECK(status.message().find("is outside") != std::string::npos);
    CHECK_FALSE(faults.any());
    CHECK(running.run(inputs, got, nullptr).message() == status.message());
  }
}

TEST_CASE("faults of another number of rows are refused") {
  const FaultCase c = gather_cases()[0];
  RowsRun running(graph_of(c), 1);
  Tensors got;
  RowFaults faults(kRows + 1);
  const Status status = running.run(running.inputs(c.most), got, &faults);
  CHECK(status.code() == Code::invalid);
  CHECK(status.message() ==
        "the faults of 6 rows are asked for; input 0 is [5, 7], whose axis 0 has to hold them");
}

}  // namespace
}  // namespace heddle::host
