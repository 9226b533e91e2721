// coalescer_fixture.h: a coalescer over the test device, for its tests.
//
//   What       A model y = 2 * x whose runs can be held, measured and made to fail, and calls from many
//              threads whose answers are checked.
//   Threads    call() and right(): any; the rest: the test's.
#pragma once

#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/thread.h"
#include "batch/calls/coalescer.h"
#include "runtime/test_device_fixture.h"

namespace heddle::batch {

using device::View;
using runtime::test::Latch;
using runtime::test::Rows;
using runtime::test::wait_until;

// A model y = 2 * x over f32[batch, 4] or f32[batch, length], whose first run waits until it is let go.
struct Fixture {
  explicit Fixture(CoalescerOptions options = {}, bool ragged = false, bool exact = false,
                   runtime::test::TestOptions device_options = {}) {
    static Atomic<int> next{0};
    device_options.name = text("coalesced", next.add_relaxed(1));
    device = std::make_shared<runtime::test::TestDevice>(device_options);
    device->set_kernel("doubled", [this](const device::Run& run) {
      if (hold_first && first.exchange_acq_rel(0) == 1) latch.wait();
      if (kernel) HEDDLE_TRY(kernel(run));
      const View& x = run.inputs[0];
      sizes.lock()->push_back(x.extents);
      for (int64_t i = 0; i < x.extents[0]; ++i) {
        for (int64_t j = 0; j < x.extents[1]; ++j) at(run.outputs[0], i, j) = 2 * at(x, i, j);
      }
      return Status();
    });
    runtime = *runtime::Runtime::make(device, runtime_options());
    ir::Graph graph = runtime::test::graph_named("doubled");
    if (ragged) {
      for (ir::Value& value : graph.values) value.type.shape[1] = ir::Dim::symbol("length");
    }
    model = *runtime->load(std::move(graph));
    std::vector<RaggedInput> axes;
    if (ragged) axes.push_back({"x0", 1, -7});
    coalescer = std::make_shared<Coalescer>(
        runtime, model, *RowLayout::make(model->inputs(), model->outputs(), axes, exact), options);
  }
  ~Fixture() { coalescer->close(); }
  static runtime::Options runtime_options() {
    runtime::Options options;
    options.in_flight = 8;
    return options;
  }
  static float& at(const View& view, int64_t i, int64_t j) {
    return reinterpret_cast<float*>(runtime::test::at(view))[i * view.strides[0] + j * view.strides[1]];
  }

  Result<std::vector<View>> call(Rows& rows, Deadline deadline = Deadline::never(),
                                 const std::stop_token& cancel = {}) {
    const View view = rows.view();
    return coalescer->call({&view, 1}, deadline, cancel);
  }
  bool right(Rows& rows, const Result<std::vector<View>>& result) {
    if (!result.ok() || result->size() != 1 || result->front().extents != rows.extents) return false;
    std::vector<float> expected = rows.values;
    for (float& value : expected) value *= 2;
    return runtime::test::values_of(result->front()) == expected;
  }
  // Whether a call of so many rows gets its own.
  bool answers(int64_t count, float start) {
    Rows rows(count, start);
    return right(rows, call(rows));
  }
  // While one call holds the only lane, `callers` call at once, in order; then the lane is let go.
  // body(i) makes the call and says whether its answer was right.
  int64_t behind_a_busy_lane(int callers, const std::function<bool(int)>& body,
                             const std::function<void()>& meanwhile = {}) {
    hold_first = true;
    Atomic<int64_t> good{0};
    Thread holder("holder", [&] {
      Rows rows(1, 1000);
      good.add_relaxed(right(rows, call(rows)) ? 1 : 0);
    });
    wait_until([&] { return latch.arrived() == 1; });
    std::vector<Thread> threads;
    for (int i = 0; i < callers; ++i) {
      threads.emplace_back("caller", [&, i] { good.add_relaxed(body(i) ? 1 : 0); });
      if (!meanwhile) wait_until([&] { return coalescer->stats().parked >= static_cast<size_t>(i) + 1; });
    }
    if (meanwhile) meanwhile();
    latch.open();
    holder.join();
    for (Thread& thread : threads) thread.join();
    return good.load_relaxed();
  }
  std::vector<ir::Extents> runs() { return *sizes.lock(); }
  // The programs of 1 to `most` rows: a call goes through the door only where its program is there.
  Status compile(int64_t most) {
    for (int64_t rows = 1; rows <= most; ++rows) {
      const Rows like(rows, 0);
      HEDDLE_TRY(runtime->compile(*model, {&like.extents, 1}));
    }
    return {};
  }
  // A row costs the same in every batch, and the coalescer has seen that. One lane; options as of
  // with_equal_costs().
  void learn_that_joining_does_not_pay() {
    for (int i = 0; i < 11; ++i) {
      Rows x(i < 3 ? 1 : 2, 3);
      const View view = x.view();  // not through the door: what passes that is not measured
      REQUIRE(right(x, coalescer->join({&view, 1}, Deadline::never(), {}, nullptr)));
    }
    REQUIRE(coalescer->stats().rows_max == 1);
    sizes.lock()->clear();
  }

  bool hold_first = false;
  Atomic<int> first{1};
  Latch latch;
  std::function<Status(const device::Run&)> kernel;
  Guarded<std::vector<ir::Extents>, Rank::kHelpers> sizes;
  Ref<runtime::test::TestDevice> device;
  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
  Ref<Coalescer> coalescer;
};

inline CoalescerOptions with(int lanes, int64_t max_rows = 64, size_t max_parked = 4096) {
  CoalescerOptions options;
  options.lanes = options.lanes_alone = lanes;
  options.max_rows = max_rows;
  options.max_parked = max_parked;
  return options;
}

// A run costs what its rows would alone, whatever a clock says.
inline CoalescerOptions with_equal_costs(CoalescerOptions options) {
  options.cost = [](int64_t rows) { return std::chrono::milliseconds(2) * rows; };
  return options;
}

// Rows whose second extent is `length`.
struct Ragged : Rows {
  Ragged(int64_t length, float start) : Rows(1, start) {
    values.resize(static_cast<size_t>(length));
    for (size_t j = 0; j < values.size(); ++j) values[j] = start + static_cast<float>(j);
    extents = {1, length};
  }
};

// Two lengths whose rows have one number on show: who takes a seat among the other's gives it up.
inline std::array<int64_t, 2> lengths_alike(Fixture& f) {
  std::map<uint16_t, int64_t> lengths;
  for (int64_t length = 1;; ++length) {
    const View view = Ragged(length, 0).view();
    const uint16_t kind = kind_of(f.coalescer->shape_of({&view, 1})->row_extents, false);
    const auto [found, is_new] = lengths.try_emplace(kind, length);
    if (!is_new) return {found->second, length};
  }
}

}  // namespace heddle::batch
