#include "batch/calls/padding_check.h"

#include <doctest/doctest.h>

#include <deque>
#include <limits>

#include "base/thread.h"
#include "batch/calls/coalescer.h"
#include "batch/calls/submission_fixture.h"
#include "runtime/test_device_fixture.h"

namespace heddle::batch {

namespace {

using device::View;

float& at(const View& view, int64_t i, int64_t j) {
  return reinterpret_cast<float*>(view.host())[i * view.strides[0] + j * view.strides[1]];
}

// y[i][j] = x[i][j] + `last` times the last element of row i: what padding changes unless `last` is 0. A
// `last` of infinity makes every row infinite that is not padded.
struct CallsFixture {
  explicit CallsFixture(float last, bool trusted = false, const std::vector<int64_t>& row_sizes = {}) {
    static Atomic<int> next{0};
    runtime::test::TestOptions device_options;
    device_options.row_sizes = row_sizes;
    device_options.name = text("padded", next.add_relaxed(1));
    auto device = std::make_shared<runtime::test::TestDevice>(device_options);
    device->set_kernel("sum", [this, last](const device::Run& run) {
      if (runtime::test::Latch* const latch = hold_next.exchange_acq_rel(nullptr)) latch->wait();
      runs.add_relaxed(1);
      const View& x = run.inputs[0];
      longest.max_relaxed(x.extents[1]);
      for (int64_t i = 0; i < x.extents[0]; ++i) {
        const float end = at(x, i, x.extents[1] - 1);
        const float more = end == 0 ? 0 : last * end;
        for (int64_t j = 0; j < x.extents[1]; ++j) at(run.outputs[0], i, j) = at(x, i, j) + more;
      }
      return Status();
    });
    runtime::Options options;
    options.in_flight = 8;
    runtime = *runtime::Runtime::make(device, options);
    ir::Graph graph = runtime::test::graph_named("sum");
    for (ir::Value& value : graph.values) value.type.shape[1] = ir::Dim::symbol("length");
    model = *runtime->load(std::move(graph));
    const std::vector<RaggedInput> axes = {{"x0", 1, 0}};
    const auto layout = [&](std::span<const RaggedInput> ragged) {
      return *RowLayout::make(model->inputs(), model->outputs(), ragged, false);
    };
    calls =
        std::make_shared<Coalescer>(runtime, model, layout({}), CoalescerOptions(),
                                    std::make_unique<PaddingCheck>(runtime, model, layout(axes), trusted));
  }
  ~CallsFixture() { calls->close(); }

  Ref<runtime::Runtime> runtime;
  Ref<runtime::Model> model;
  Ref<Coalescer> calls;
  Atomic<int64_t> longest{0}, runs{0};
  Atomic<runtime::test::Latch*> hold_next{nullptr};  // where the next run waits
};

// Threads with rows of 3 to 7 elements; how many answers were right.
int64_t right_calls(CallsFixture& f, float last, int threads, int each) {
  Atomic<int64_t> right{0};
  run_together(threads, [&](int thread) {
    for (int i = 0; i < each; ++i) {
      runtime::test::Rows x(1, static_cast<float>(thread + 1));
      const int64_t length = 3 + (thread + i) % 5;
      x.values.resize(static_cast<size_t>(length), static_cast<float>(i + 1));
      x.extents = {1, length};
      const View view = x.view();
      const auto y = f.calls->call({&view, 1}, Deadline::never());
      std::vector<float> expected = x.values;
      for (float& value : expected) value += last * x.values.back();
      right.add_relaxed(y.ok() && runtime::test::values_of(y->front()) == expected ? 1 : 0);
    }
  });
  return right.load_relaxed();
}

// Until calls have met: then the check has given its verdict.
void until_checked(CallsFixture& f, float last) {
  while (f.calls->describe().find("once") != std::string::npos) CHECK(right_calls(f, last, 8, 50) == 400);
}

}  // namespace

TEST_CASE("padding that changes no row is used after one call has checked it") {
  CallsFixture f(0);
  until_checked(f, 0);
  CHECK(f.calls->describe().find("padded are") == 0);
  CHECK(f.longest.load_relaxed() >= 8);  // the check's
  CHECK(right_calls(f, 0, 8, 100) == 800);
}

// Submissions of one row each, of these lengths. While the first holds the only lane the others wait; then
// the lane is let go.
void submit_rows(CallsFixture& f, float last, const std::vector<int64_t>& lengths) {
  runtime::test::Latch latch;
  f.hold_next.store_release(&latch);
  Atomic<size_t> answered{0}, right{0};
  std::deque<runtime::test::Rows> rows;
  const auto submit = [&](int64_t length) {
    runtime::test::Rows& x = rows.emplace_back(1, 0);
    x.values.assign(static_cast<size_t>(length), 3);
    x.extents = {1, length};
    const auto then = [&, length](Result<std::vector<View>> y) {
      const std::vector<float> expected(static_cast<size_t>(length), 3 + 3 * last);
      right.add_relaxed(y.ok() && runtime::test::values_of(y->front()) == expected ? 1 : 0);
      answered.add_release(1);
    };
    REQUIRE(f.calls->submit({submitted(x.view(), then)}).ok());
  };
  submit(lengths[0]);
  runtime::test::wait_until([&] { return latch.arrived() == 1; });
  for (size_t i = 1; i < lengths.size(); ++i) submit(lengths[i]);
  latch.open();
  runtime::test::wait_until([&] { return answered.load_acquire() == lengths.size(); });
  CHECK(right.load_relaxed() == lengths.size());
}

TEST_CASE("the first batch of submissions checks the padding with rows of its own, and no later one does") {
  for (const float last : {0.0F, 1.0F}) {
    CallsFixture f(last);
    CHECK(right_calls(f, last, 1, 1) == 1);
    CHECK(f.calls->describe().find("once") != std::string::npos);  // a call alone shows nothing
    submit_rows(f, last, {5, 5, 5});
    CHECK(f.calls->describe().find("once") == std::string::npos);
    CHECK((f.calls->describe().find("changed a row's result") == std::string::npos) == (last == 0));
    CHECK(f.longest.load_relaxed() > 5);
    const int checks = last == 0 ? 4 : 2;  // the first pair of runs may show it
    CHECK(f.runs.load_relaxed() == 1 + 2 + checks);
    CHECK(right_calls(f, last, 1, 5) == 5);
    CHECK(f.runs.load_relaxed() == 1 + 2 + checks + 5);
  }
}

TEST_CASE("requests of a queue's check the padding when there are two of them") {
  CallsFixture f(0);
  const auto run = [&](size_t requests) {
    std::deque<runtime::test::Rows> rows;
    std::vector<Coalescer::Views> calls;
    for (size_t i = 0; i < requests; ++i) calls.push_back({rows.emplace_back(1, 3).view()});
    const auto batch = f.calls->run_together(calls, [] {});
    REQUIRE(batch.ok());
    for (size_t i = 0; i < requests; ++i) {
      const auto y = f.calls->answer(*batch, calls[i], i);
      CHECK((y.ok() && runtime::test::values_of(y->front()) == rows[i].values));
    }
  };
  run(1);
  CHECK(f.calls->describe().find("once") != std::string::npos);
  CHECK(f.runs.load_relaxed() == 1);
  run(2);
  CHECK(f.calls->describe().find("once") == std::string::npos);
}

TEST_CASE("padding that changes a row is never used, and every answer is right") {
  CallsFixture f(1);
  until_checked(f, 1);
  CHECK(f.calls->describe().find("changed a row's result") != std::string::npos);
  f.longest.exchange_acq_rel(0);
  CHECK(right_calls(f, 1, 8, 100) == 800);
  CHECK(f.longest.load_relaxed() <= 7);
}

TEST_CASE("padding that makes a finite row of an infinite one is never used") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  CallsFixture f(kInfinity);
  until_checked(f, kInfinity);
  CHECK(f.calls->describe().find("changed a row's result") != std::string::npos);
}

// What a check says of a model, asked with rows of so many equal elements.
bool is_harmless_to(const runtime::test::Kernel& kernel, float value, int64_t rows, int64_t length) {
  static Atomic<int> next{0};
  runtime::test::TestOptions device_options;
  device_options.name = text("checked", next.add_relaxed(1));
  auto device = std::make_shared<runtime::test::TestDevice>(device_options);
  device->set_kernel("sum", kernel);
  const Ref<runtime::Runtime> runtime = *runtime::Runtime::make(device, runtime::Options());
  ir::Graph graph = runtime::test::graph_named("sum");
  for (ir::Value& each : graph.values) each.type.shape[1] = ir::Dim::symbol("length");
  const Ref<runtime::Model> model = *runtime->load(std::move(graph));
  const std::vector<RaggedInput> axes = {{"x0", 1, 0}};
  PaddingCheck check(runtime, model, *RowLayout::make(model->inputs(), model->outputs(), axes, false), false);
  CHECK_FALSE(check.is_harmless());
  CHECK(check.claim());
  CHECK_FALSE(check.claim());
  runtime::test::Rows x(1, value);
  x.values.assign(static_cast<size_t>(length * rows), value);
  x.extents = {rows, length};
  const View view = x.view();
  check.check({&view, 1});
  return check.is_harmless();
}

// The last element of a row of five is `alone`, and `padded` beside padding. The others are as they were
// given.
bool is_harmless(float others, float alone, float padded, int64_t rows = 1, Code wide = Code::ok) {
  const auto kernel = [&](const device::Run& run) {
    const View& x = run.inputs[0];
    const bool is_wide = x.extents[1] > 5;
    for (int64_t i = 0; i < x.extents[0]; ++i) {
      for (int64_t j = 0; j < x.extents[1]; ++j) at(run.outputs[0], i, j) = at(x, i, j);
      if (x.extents[1] > 4) at(run.outputs[0], i, 4) = is_wide ? padded : alone;
    }
    return is_wide && wide != Code::ok ? Status(Status::unsupported("padding")) : Status();
  };
  return is_harmless_to(kernel, others, rows, 5);
}

TEST_CASE(
    "padding is not harmless where as much of it as a batch may have changes a row, and a little hardly") {
  const auto adds_the_mean = [](const device::Run& run) {
    const View& x = run.inputs[0];
    for (int64_t i = 0; i < x.extents[0]; ++i) {
      float sum = 0;
      for (int64_t j = 0; j < x.extents[1]; ++j) sum += at(x, i, j);
      for (int64_t j = 0; j < x.extents[1]; ++j)
        at(run.outputs[0], i, j) = at(x, i, j) + sum / static_cast<float>(x.extents[1]);
    }
    return Status();
  };
  for (const int64_t length : {2, 8, 127}) CHECK_FALSE(is_harmless_to(adds_the_mean, 1, 3, length));
}

TEST_CASE("padding is harmless where each element is the same, or off by a hundredth of the largest") {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
  CHECK(is_harmless(7, 7, 7));
  CHECK(is_harmless(0, 0, 0));
  CHECK(is_harmless(100, 100, 101));
  CHECK(is_harmless(100, 100, 99));
  CHECK_FALSE(is_harmless(100, 100, 102));
  CHECK_FALSE(is_harmless(0, 0, 1));
  CHECK_FALSE(is_harmless(1, 50, 51));
  CHECK(is_harmless(100, 50, 51));
  CHECK(is_harmless(1, kNone, kNone));
  CHECK_FALSE(is_harmless(1, kNone, 1));
  CHECK_FALSE(is_harmless(1, 1, kNone));
  CHECK(is_harmless(1, kInfinity, kInfinity));
  CHECK_FALSE(is_harmless(1, kInfinity, -kInfinity));
  CHECK_FALSE(is_harmless(1, 1, kInfinity));
  CHECK_FALSE(is_harmless(1, kInfinity, 1));
}

TEST_CASE("padding is not harmless where the padded call fails, or there was nothing to pad") {
  CHECK_FALSE(is_harmless(7, 7, 7, 1, Code::unsupported));
  CHECK_FALSE(is_harmless(7, 7, 7, 0));
}

TEST_CASE("what the user declares is not checked") {
  CallsFixture f(0, true);
  CHECK(right_calls(f, 0, 8, 100) == 800);
  CHECK(f.calls->describe().find("once") == std::string::npos);
  CHECK(f.longest.load_relaxed() <= 7);
}

TEST_CASE("a device that rounds numbers of rows up has few kinds of length, and runs the longest one's") {
  for (const std::vector<int64_t>& sizes : {std::vector<int64_t>{}, std::vector<int64_t>{1, 2, 4}}) {
    CAPTURE(sizes.size());
    CallsFixture f(0, true, sizes);
    submit_rows(f, 0, {3, 17, 30});  // the second and the third wait together
    CHECK(f.runs.load_relaxed() == (sizes.empty() ? 3 : 2));
    CHECK(f.longest.load_relaxed() == 30);
    f.longest.exchange_acq_rel(0);
    submit_rows(f, 0, {20, 1, 16, 33, 64});
    CHECK(f.runs.load_relaxed() == (sizes.empty() ? 3 + 5 : 2 + 3));
    CHECK(f.longest.load_relaxed() == 64);
    submit_rows(f, 0, {3, 65, 128});  // longer ones as elsewhere
    CHECK(f.runs.load_relaxed() == (sizes.empty() ? 3 + 5 : 2 + 3) + 3);
  }
}

TEST_CASE(
    "a length is rounded up to the smallest of 8, 12, 16, 24, 32 and so on that holds it, and none stays "
    "none") {
  CHECK(RowLayout::bucket(0) == 0);
  int64_t before = 0;
  for (const int64_t bucket : {8, 12, 16, 24, 32, 48, 64, 96, 128}) {
    CAPTURE(bucket);
    CHECK(RowLayout::bucket(before + 1) == bucket);
    CHECK(RowLayout::bucket(bucket) == bucket);
    before = bucket;
  }
}

TEST_CASE("where a device rounds up the number of rows a run of ragged ones has an eighth too many at most") {
  const ir::Dim batch = ir::Dim::symbol("batch"), length = ir::Dim::symbol("length");
  const std::vector<device::Signature> x = {device::Signature{"x", {ir::DType::kF32, {batch, length}}}};
  const RowLayout ragged = *RowLayout::make(x, {}, std::vector<RaggedInput>{{"x", 1, 0}}, false),
                  equal = *RowLayout::make(x, {}, {}, false);
  const std::vector<int64_t> sizes = {1, 2, 4, 8, 16, 32, 64}, any;
  struct Row {
    int64_t rows, ragged, equal;
  };
  for (const Row& row : {Row{1, 1, 1},
                         {3, 3, 4},
                         {13, 13, 16},
                         {16, 16, 16},
                         {17, 18, 32},
                         {31, 32, 32},
                         {33, 36, 64},
                         {64, 64, 64},
                         {65, 65, 65},
                         {0, 0, 1}}) {
    CAPTURE(row.rows);
    CHECK(ragged.rows_to_run(sizes, row.rows) == row.ragged);
    CHECK(equal.rows_to_run(sizes, row.rows) == row.equal);
    CHECK(ragged.rows_to_run(any, row.rows) == row.rows);
  }
  // What is made room for is enough for fewer rows, too.
  for (const std::vector<int64_t>& of : {sizes, std::vector<int64_t>{1, 100}}) {
    for (int64_t rows = 1; rows <= 130; ++rows) {
      CAPTURE(rows);
      CHECK(ragged.rows_to_run(of, rows) >= std::max(rows, ragged.rows_to_run(of, rows - 1)));
    }
  }
}

TEST_CASE("a layout refuses rows that it could not take apart again") {
  const auto signature = [](std::string name, std::vector<ir::Dim> shape) {
    return device::Signature{std::move(name), {ir::DType::kF32, std::move(shape)}};
  };
  const ir::Dim batch = ir::Dim::symbol("batch"), length = ir::Dim::symbol("length"),
                other = ir::Dim::symbol("other");
  const std::vector<device::Signature> x = {signature("x", {batch, length, other})};
  const std::vector<RaggedInput> along = {{"x", 1, 0}}, both = {{"x", 1, 0}, {"x", 2, 0}};
  const auto code = [&](const std::vector<device::Signature>& outputs, std::span<const RaggedInput> ragged) {
    return RowLayout::make(x, outputs, ragged, false).status().code();
  };
  CHECK(RowLayout::make(x, {signature("y", {batch, length})}, along, false).ok());
  CHECK(code({signature("y", {batch * length, other})}, along) == Code::unsupported);
  CHECK(code({signature("y", {batch, length + length})}, along) == Code::unsupported);
  CHECK(code({signature("y", {length, batch})}, along) == Code::unsupported);
  CHECK(code({signature("y", {batch})}, both) == Code::unsupported);
  const auto code_of_axis = [&](const std::string& input, size_t axis) {
    return code({signature("y", {batch})}, std::vector<RaggedInput>{{input, axis, 0}});
  };
  CHECK(code_of_axis("z", 1) == Code::invalid);
  for (const size_t axis : {0, 3, 4}) CHECK(code_of_axis("x", axis) == Code::invalid);
}

TEST_CASE("a layout makes room for one more than the rows' length, and names what is ragged") {
  const std::vector<device::Signature> x = {device::Signature{
      "x", {ir::DType::kF32, {ir::Dim::symbol("batch"), ir::Dim::symbol("length"), ir::Dim(3)}}}};
  const RowLayout layout = *RowLayout::make(x, {}, std::vector<RaggedInput>{{"x", 1, -7}}, false);
  CHECK(layout.describe() == "'x' axis 1 (pad -7)");
  for (const auto& [length, room] : std::vector<std::pair<int64_t, int64_t>>{{6, 8}, {7, 8}, {8, 12}}) {
    CAPTURE(length);
    const View rows = View::contiguous(static_cast<std::byte*>(nullptr), ir::DType::kF32, {2, length, 3});
    CallShape shape = *layout.shape_of({&rows, 1});
    layout.make_room(shape);
    CHECK(shape.row_extents == std::vector<ir::Extents>{{room, 3}});
  }
}

}  // namespace heddle::batch
