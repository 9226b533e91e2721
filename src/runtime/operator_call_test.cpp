// Calls on a stream that run at once, as operators do (Runtime::try_run_on).
#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "base/thread.h"
#include "runtime/at_once_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::Rows;
using test::TestDevice;

struct OperatorFixture : test::AtOnceFixture {
  explicit OperatorFixture(const test::TestOptions& given = {}, const Options& options = {})
      : AtOnceFixture("operators", given, options) {
    stream = *runtime->streams().default_stream();
  }
  std::optional<Result<Runtime::Views>> call(Stream& on, Model& model, const View& input,
                                             const View* output = nullptr) {
    const View* const inputs = &input;
    const View* const outputs = output;
    return runtime->try_run_on(
        model, {on, {&inputs, 1}, {&outputs, output == nullptr ? size_t{0} : 1}, true, Deadline::never()});
  }
  std::optional<Result<Runtime::Views>> call(Model& model, Rows& rows) {
    return call(*stream, model, rows.view());
  }
  Result<std::vector<View>> run(Stream& on, Model& model, const View& input) {
    return runtime->run(model, {.inputs = {&input, 1}, .stream = &on, .wait = false, .in_slices = true});
  }
  uint64_t lookups() const {
    const Executables::Stats stats = runtime->executables().stats();
    return stats.hits + stats.misses;
  }

  Ref<Stream> stream;
};

}  // namespace

TEST_CASE("an operator's call gives fresh values or writes to given memory, in its stream's order") {
  OperatorFixture f;
  const Ref<Model> model = f.load("identity");
  Rows first(2, 1), second(2, 50), target(2, 0);
  const auto one = f.call(*model, first), two = f.call(*model, second);
  CHECK(f.is_copy(one, first));
  CHECK(f.is_copy(two, second));
  const View to = target.view();
  const auto given = f.call(*f.stream, *model, first.view(), &to);
  REQUIRE((given.has_value() && given->ok()));
  CHECK((*given)->front().address() == to.address());
  CHECK(target.values == first.values);
  CHECK(f.stream->last_submitted() == 3);
  CHECK(f.runtime->governor().stats().entered == 3);
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

TEST_CASE("an operator's call does nothing where it could not run at once") {
  OperatorFixture f({.lanes = 1});
  const Ref<Model> model = f.load("identity"), slow = f.load("slow");
  Rows rows(2, 1), others(3, 1), target(3, 7);
  CHECK_FALSE(f.call(*model, others).has_value());  // not compiled
  const View wrong_shape = target.view();
  CHECK_FALSE(f.call(*f.stream, *model, rows.view(), &wrong_shape).has_value());
  {
    const Result<Turn> turn = f.stream->turn();
    CHECK_FALSE(f.call(*model, rows).has_value());  // another call has the stream
  }
  const auto lease = *f.runtime->streams().lease();
  {
    Thread holder("holder", [&] {
      Rows own(2, 3);
      CHECK(f.is_copy(f.call(*lease.stream(), *slow, own.view()), own));
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
  CHECK(target.values == Rows(3, 7).values);
  CHECK(f.device->counts().runs.load_relaxed() == 2);
  CHECK(f.runtime->governor().stats().entered == 2);  // what could not run was not counted
}

TEST_CASE("an operator's call needs a device that works in place, in memory that it can name") {
  for (const test::TestOptions& device :
       {test::TestOptions{.asynchronous = true}, test::TestOptions{.unified = false},
        test::TestOptions{.binds_caller_memory = false}}) {
    OperatorFixture f(device);
    const Ref<Model> model = f.load("identity");
    Rows rows(2, 1);
    CHECK_FALSE(f.call(*model, rows).has_value());
    CHECK(f.runtime->run(*model, {.inputs = std::vector<View>{rows.view()}}).ok());
  }
}

TEST_CASE("an operator's call writes to no memory that it has yet to read") {
  OperatorFixture f;
  const Ref<Model> model = f.load("identity");
  Rows rows(3, 1);
  const View all = rows.view();
  View head = all, tail = all;
  head.extents[0] = tail.extents[0] = 2;
  tail.callers += all.strides[0] * static_cast<int64_t>(sizeof(float));
  CHECK_FALSE(f.call(*f.stream, *model, head, &tail).has_value());
  CHECK_FALSE(f.call(*f.stream, *model, tail, &head).has_value());
  CHECK(rows.values == Rows(3, 1).values);
}

TEST_CASE("a mistake in the data of an operator's call is its own, and stream and lane go on") {
  OperatorFixture f({.lanes = 1});
  const Ref<Model> wrong = f.load("wrong"), model = f.load("identity");
  Rows rows(2, 1);
  const auto result = f.call(*wrong, rows);
  REQUIRE(result.has_value());
  CHECK(result->status().code() == Code::invalid);
  CHECK(f.is_copy(f.call(*model, rows), rows));
}

TEST_CASE("closing a model waits for its operators' calls, and no later one begins") {
  OperatorFixture f;
  const Ref<Model> slow = f.load("slow");
  const auto lease = *f.runtime->streams().lease();
  Thread caller("caller", [&] {
    Rows rows(2, 3);
    CHECK(f.is_copy(f.call(*lease.stream(), *slow, rows.view()), rows));
  });
  test::wait_until([&] { return f.latch.arrived() == 1; });
  CHECK(slow->close(Deadline::at(TimePoint())).code() == Code::deadline);
  f.latch.open();
  caller.join();
  Rows rows(2, 1);
  CHECK_FALSE(f.call(*slow, rows).has_value());
  CHECK(slow->close(Deadline::never()).ok());
}

TEST_CASE("a thread that calls a hundred models in turn looks up none of their programs again") {
  constexpr int kModels = 100, kRounds = 5;
  OperatorFixture f;
  std::vector<Ref<Model>> models;
  for (int i = 0; i < kModels; ++i) models.push_back(f.load("identity"));
  Rows rows(2, 1);
  for (const Ref<Model>& model : models) REQUIRE(f.is_copy(f.call(*model, rows), rows));
  const uint64_t before = f.lookups();
  int right = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (const Ref<Model>& model : models) right += f.is_copy(f.call(*model, rows), rows) ? 1 : 0;
  }
  CHECK(right == kRounds * kModels);
  CHECK(f.lookups() == before);
}

TEST_CASE("8 threads of operators on streams of their own get their own values, and none is lost") {
  constexpr int kThreads = 8, kTimes = 2000;
  OperatorFixture f({.lanes = 4});
  std::vector<Ref<Model>> models;
  for (int i = 0; i < 20; ++i) models.push_back(f.load("identity"));
  Atomic<int> right{0};
  run_together(kThreads, [&](int thread) {
    const auto lease = f.runtime->streams().lease();
    for (int i = 0; i < kTimes; ++i) {
      Model& model = *models[static_cast<size_t>(thread + i) % models.size()];
      Rows rows(2, static_cast<float>(1000 * thread + i));
      auto result = f.call(*lease->stream(), model, rows.view());
      if (!result.has_value()) result = f.run(*lease->stream(), model, rows.view());
      right.add_relaxed(f.is_copy(result, rows) ? 1 : 0);
    }
  });
  CHECK(right.load_relaxed() == kThreads * kTimes);
  CHECK(f.device->counts().runs.load_relaxed() == kThreads * kTimes);
  CHECK(f.runtime->governor().stats().entered == kThreads * kTimes);
}

}  // namespace heddle::runtime
