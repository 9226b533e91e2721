// Calls that find a lane free and their program made (Runtime::try_run).
#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <vector>

#include "base/thread.h"
#include "runtime/at_once_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::Rows;
using test::TestDevice;

struct LoneFixture : test::AtOnceFixture {
  explicit LoneFixture(const test::TestOptions& given = {}, const Options& options = {})
      : AtOnceFixture("lone", given, options) {
    door.emplace(runtime->governor().limit(), 8);
    door->open(runtime->governor().limit());
  }
  std::optional<Result<Runtime::Views>> call(Model& model, Rows& rows, Duration at_most = Duration::max()) {
    const View view = rows.view();
    const View* const inputs = &view;
    return runtime->try_run(model, {&inputs, 1}, *door, at_most);
  }

  std::optional<LoneDoor> door;
};

}  // namespace

TEST_CASE("a lone call gives fresh values, and is counted by its rows") {
  LoneFixture f;
  const Ref<Model> model = f.load("identity", 2);
  Rows first(2, 1), second(2, 50);
  const auto one = f.call(*model, first), two = f.call(*model, second);
  CHECK(f.is_copy(one, first));
  CHECK(f.is_copy(two, second));
  std::vector<uint64_t> by_rows(9);
  CHECK(f.door->sum(by_rows) == 2);
  CHECK(by_rows[2] == 2);
  CHECK(f.runtime->governor().stats().entered == 2);
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

TEST_CASE("a lone call of a single value is counted as one row") {
  LoneFixture f;
  ir::Builder builder("identity");
  builder.output(*builder.node("Relu", {builder.input("x", {ir::DType::kF32, {}})}), "y");
  const Ref<Model> model = *f.runtime->load(*builder.take());
  const ir::Extents scalar;
  REQUIRE(f.runtime->compile(*model, {&scalar, 1}).ok());
  float value = 5;
  const View view = View::contiguous(reinterpret_cast<std::byte*>(&value), ir::DType::kF32, scalar);
  const View* const inputs = &view;
  CHECK(f.runtime->try_run(*model, {&inputs, 1}, *f.door)->ok());
  std::vector<uint64_t> by_rows(9);
  CHECK(f.door->sum(by_rows) == 1);
  CHECK(by_rows[1] == 1);
}

TEST_CASE("what a lane has prepared serves rows that lie alike, whatever the stride of an axis of one says") {
  LoneFixture f({.lanes = 1});
  const Ref<Model> model = f.load("identity", 1);
  Rows rows(1, 1);
  View view = rows.view();
  view.strides[0] = 1000;
  const View* const inputs = &view;
  for (int run = 0; run < PreparedCall::kTimed; ++run)
    CHECK(f.is_copy(f.runtime->try_run(*model, {&inputs, 1}, *f.door), rows));
  // The same prepared call has been timed so often.
  CHECK(f.is_copy(f.runtime->try_run(*model, {&inputs, 1}, *f.door, std::chrono::hours(1)), rows));
}

TEST_CASE("a lone call does nothing where it could not run at once") {
  LoneFixture f({.lanes = 1});
  const Ref<Model> model = f.load("identity"), slow = f.load("slow");
  Rows rows(2, 1), others(3, 1);
  CHECK_FALSE(f.call(*model, others).has_value());  // not compiled
  f.door->shut();
  CHECK_FALSE(f.call(*model, rows).has_value());
  f.door->open(1);
  {
    Thread holder("holder", [&] {
      Rows own(2, 3);
      CHECK(f.is_copy(f.call(*slow, own), own));
    });
    test::wait_until([&] { return f.latch.arrived() == 1; });
    CHECK_FALSE(f.call(*model, rows).has_value());  // no lane is free
    f.latch.open();
  }
  {
    const auto hold = f.runtime->governor().exclusive(Deadline::never());
    CHECK_FALSE(f.call(*model, rows).has_value());
  }
  CHECK(f.is_copy(f.call(*model, rows), rows));
  REQUIRE(model->close(Deadline::never()).ok());
  CHECK_FALSE(f.call(*model, rows).has_value());
  CHECK(f.device->counts().runs.load_relaxed() == 2);
  CHECK(f.runtime->governor().stats().entered == 2);  // what could not run was not counted
}

TEST_CASE("a lone call with a bound runs once the first calls on its lane were timed and shorter") {
  LoneFixture f({.lanes = 1});
  const Ref<Model> model = f.load("identity");
  Rows rows(2, 1), others(3, 5);
  for (int run = 0; run < PreparedCall::kTimed; ++run) {
    CHECK_FALSE(f.call(*model, rows, std::chrono::hours(1)).has_value());  // nothing is known yet
    CHECK(f.is_copy(f.call(*model, rows), rows));
  }
  for (int run = 0; run < 2; ++run) CHECK(f.is_copy(f.call(*model, rows, std::chrono::hours(1)), rows));
  CHECK_FALSE(f.call(*model, rows, Duration(0)).has_value());
  REQUIRE(f.runtime->compile(*model, {&others.extents, 1}).ok());
  CHECK_FALSE(f.call(*model, others, std::chrono::hours(1)).has_value());  // of this shape nothing is known
  CHECK(f.device->counts().runs.load_relaxed() == PreparedCall::kTimed + 2);
}

TEST_CASE("a lone call needs a device that works in place, in memory that it can name") {
  for (const test::TestOptions& device :
       {test::TestOptions{.asynchronous = true}, test::TestOptions{.unified = false},
        test::TestOptions{.binds_caller_memory = false}}) {
    LoneFixture f(device);
    const Ref<Model> model = f.load("identity");
    Rows rows(2, 1);
    CHECK_FALSE(f.call(*model, rows).has_value());
    const View view = rows.view();
    CHECK(f.runtime->run(*model, {.inputs = {&view, 1}}).ok());
  }
}

TEST_CASE("a mistake in a lone call's data is its own, and the lane goes on") {
  LoneFixture f({.lanes = 1});
  const Ref<Model> wrong = f.load("wrong"), model = f.load("identity");
  Rows rows(2, 1);
  const auto result = f.call(*wrong, rows);
  REQUIRE(result.has_value());
  CHECK(result->status().code() == Code::invalid);
  CHECK(f.is_copy(f.call(*model, rows), rows));
}

TEST_CASE("closing a model waits for its lone calls, and no later one begins") {
  LoneFixture f;
  const Ref<Model> slow = f.load("slow"), other = f.load("identity");
  Atomic<int> closed{0};
  Thread caller("caller", [&] {
    Rows rows(2, 3);
    CHECK(f.is_copy(f.call(*slow, rows), rows));
  });
  test::wait_until([&] { return f.latch.arrived() == 1; });
  CHECK(slow->close(Deadline::at(TimePoint())).code() == Code::deadline);
  Thread closer("closer", [&] {
    CHECK(slow->close(Deadline::never()).ok());
    closed.store_release(1);
  });
  Rows rows(2, 1);
  CHECK_FALSE(f.call(*slow, rows).has_value());
  const View view = rows.view();
  CHECK(f.runtime->run(*other, {.inputs = {&view, 1}}).ok());  // other models go on meanwhile
  CHECK(closed.load_acquire() == 0);
  f.latch.open();
  caller.join();
  closer.join();
  CHECK(f.is_copy(f.call(*other, rows), rows));
}

TEST_CASE("what lanes have prepared keeps no program of a closed model, and none that was evicted") {
  Options options;
  options.executable_count = 2;
  LoneFixture f({.lanes = 4}, options);
  const Ref<Model> model = f.load("identity", 1);
  const auto& programs = f.device->counts().programs;
  for (int64_t rows = 1; rows <= 6; ++rows) {
    Rows x(rows, 1);
    REQUIRE(f.runtime->compile(*model, {&x.extents, 1}).ok());
    CHECK(f.is_copy(f.call(*model, x), x));
    CHECK(programs.load_acquire() <= 2);
  }
  REQUIRE(model->close(Deadline::never()).ok());
  CHECK(programs.load_acquire() == 0);
}

TEST_CASE("a program dropped while a lane runs another one goes when that run ends") {
  LoneFixture f({.lanes = 1});
  const Ref<Model> model = f.load("identity"), slow = f.load("slow");
  Rows rows(2, 1);
  CHECK(f.is_copy(f.call(*model, rows), rows));  // the only lane has it prepared
  Thread caller("caller", [&] {
    Rows own(2, 3);
    CHECK(f.is_copy(f.call(*slow, own), own));
  });
  test::wait_until([&] { return f.latch.arrived() == 1; });
  REQUIRE(model->close(Deadline::never()).ok());
  CHECK(f.device->counts().programs.load_acquire() == 2);
  f.latch.open();
  caller.join();
  CHECK(f.device->counts().programs.load_acquire() == 1);
}

TEST_CASE("8 threads of lone calls of 3 models get their own values, and none is lost") {
  constexpr int kThreads = 8, kTimes = 2000;
  LoneFixture f({.lanes = 4});
  const std::array<Ref<Model>, 3> models = {f.load("identity", 1), f.load("identity", 1),
                                            f.load("identity", 2)};
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kTimes; ++i) {
      Model& model = *models[static_cast<size_t>((thread + i) % 3)];
      Rows rows((thread + i) % 3 == 2 ? 2 : 1, static_cast<float>(1000 * thread + i));
      auto result = f.call(model, rows);
      const View view = rows.view();
      if (!result.has_value()) result = f.runtime->run(model, {.inputs = {&view, 1}});
      right.add_relaxed(f.is_copy(result, rows) ? 1 : 0);
    }
  });
  CHECK(right.load_relaxed() == kThreads * kTimes);
  CHECK(f.device->counts().runs.load_relaxed() == kThreads * kTimes);
  CHECK(f.runtime->governor().stats().entered == kThreads * kTimes);
}

}  // namespace heddle::runtime
