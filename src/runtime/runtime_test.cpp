#include "runtime/runtime.h"

#include <doctest/doctest.h>

#include <optional>

#include "base/thread.h"
#include "device/row_faults.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using device::View;
using test::Rows;
using test::TestDevice;

struct RuntimeFixture {
  explicit RuntimeFixture(test::TestOptions test_options = {}, Options options = {})
      : device(std::make_shared<TestDevice>(unique(test_options))) {
    device->set_kernel("double", [](const device::Run& run) {
      for (int64_t i = 0; i < run.outputs[0].extents.elements(); ++i) {
        reinterpret_cast<float*>(test::at(run.outputs[0]))[i] =
            2 * reinterpret_cast<const float*>(test::at(run.inputs[0]))[i];
      }
      return Status();
    });
    device->set_kernel("slow", [this](const device::Run& run) {
      latch.wait();
      return test::copy_through(run);
    });
    runtime = *Runtime::make(device, options);
  }
  // A governor is shared by device name: each test has a device of its own.
  static test::TestOptions unique(test::TestOptions options) {
    static Atomic<int> next{0};
    options.name = text("test", next.add_relaxed(1));
    return options;
  }
  Ref<Model> load(const std::string& name, size_t inputs = 1) {
    return *runtime->load(test::graph_named(name, inputs));
  }
  Result<std::vector<View>> run(Model& model, Rows& rows, Call call = {}) {
    const View view = rows.view();
    call.inputs = {&view, 1};
    return runtime->run(model, call);
  }

  test::Latch latch;
  Ref<TestDevice> device;
  Ref<Runtime> runtime;
};

std::vector<float> doubled(const Rows& rows) {
  std::vector<float> out = rows.values;
  for (float& value : out) value *= 2;
  return out;
}

const test::TestOptions kSynchronous, kAsynchronous{.asynchronous = true},
    kStaging{.asynchronous = true, .binds_caller_memory = false};

}  // namespace

TEST_CASE("a plan of a call refuses what the call would, and says when a driver has none") {
  RuntimeFixture f;
  const auto model = f.load("double");
  const std::vector<ir::Extents> wrong = {{3, 4, 5}}, right = {{3, 4}};
  CHECK(f.runtime->plan(*model, wrong).status().code() == Code::invalid);
  CHECK(f.runtime->plan(*model, right).status().code() == Code::unsupported);
  CHECK(model->close(Deadline::never()).ok());
  CHECK(f.runtime->plan(*model, right).status().code() == Code::unavailable);
  CHECK(f.device->counts().compilations.load_acquire() == 0);
}

TEST_CASE("a call returns fresh outputs with the right values, on every kind of device") {
  for (const auto& options : {kSynchronous, kAsynchronous, kStaging}) {
    RuntimeFixture f(options);
    const auto model = f.load("double");
    for (const int64_t rows : {1, 3, 0, 3}) {
      Rows x(rows, 5);
      const auto y = f.run(*model, x);
      REQUIRE(y.ok());
      REQUIRE(y->size() == 1);
      CHECK(y->front().extents == ir::Extents{rows, 4});
      CHECK(y->front().buffer != nullptr);
      CHECK(test::values_of(y->front()) == doubled(x));
    }
    CHECK(f.device->counts().compilations.load_relaxed() == 3);
    CHECK(f.device->counts().runs.load_relaxed() == 4);
  }
}

TEST_CASE("a call that asks for the faults of its rows learns them when the results are there") {
  for (const auto& options : {kSynchronous, kAsynchronous, kStaging}) {
    RuntimeFixture f(options);
    Atomic<int> asked{0};
    f.device->set_kernel("faulty", [&](const device::Run& run) {
      if (run.row_faults == nullptr || run.row_faults->rows() == 0) return Status::invalid("a row is wrong");
      asked.add_relaxed(1);
      run.row_faults->record(1, Status::invalid("row 1 is wrong"));
      return test::copy_through(run);
    });
    const auto model = f.load("faulty");
    Rows x(3, 5);
    const auto faults = std::make_shared<device::RowFaults>(3);
    const auto y = f.run(*model, x, {.row_faults = faults});
    REQUIRE(y.ok());
    CHECK(faults->count() == 1);
    CHECK(faults->of(1).message() == "row 1 is wrong");
    CHECK(test::values_of(y->front()) == x.values);
    CHECK(asked.load_relaxed() == 1);
    CHECK(f.run(*model, x).status().code() == Code::invalid);
  }
}

TEST_CASE("outputs may be given, in a buffer or in the caller's memory") {
  for (const auto& options : {kSynchronous, kAsynchronous, kStaging}) {
    RuntimeFixture f(options);
    const auto model = f.load("double");
    Rows x(2, 1), to(2);
    const View callers = to.view();
    REQUIRE(f.run(*model, x, {.outputs = {&callers, 1}}).ok());
    CHECK(to.values == doubled(x));
    const View ours = *f.runtime->allocate(ir::DType::kF32, {2, 4});
    const auto given = f.run(*model, x, {.outputs = {&ours, 1}});
    CHECK(given->front().buffer == ours.buffer);
    CHECK(test::values_of(ours) == doubled(x));
  }
}

TEST_CASE("a wrong input is refused by name, with what it is and what it must be") {
  RuntimeFixture f;
  const auto model = f.load("double", 2);
  Rows good(2);
  Rows narrow(2);
  narrow.extents = {4, 2};
  Rows flat(2);
  flat.extents = {8};
  Rows negative(2);
  negative.extents = {-2, 4};
  View doubles = good.view();
  doubles.dtype = ir::DType::kF64;
  struct Case {
    std::vector<View> inputs;
    std::vector<const char*> parts;
  };
  const std::vector<Case> cases{
      {{good.view()}, {"'double'", "got 1 inputs", "takes 2", "'x0', 'x1'"}},
      {{}, {"got 0 inputs"}},
      {{good.view(), doubles}, {"'x1'", "is f64", "must be f32"}},
      {{good.view(), narrow.view()}, {"'x1'", "[4, 2]", "[batch, 4]"}},
      {{flat.view(), good.view()}, {"'x0'", "[8]", "[batch, 4]"}},
      {{negative.view(), good.view()}, {"'x0'", "-2"}},
  };
  for (const Case& each : cases) {
    const Status status = f.runtime->run(*model, {.inputs = each.inputs}).status();
    CHECK(status.code() == Code::invalid);
    for (const char* part : each.parts)
      CHECK_MESSAGE(status.message().find(part) != std::string::npos, status.message());
  }
  CHECK(f.device->counts().compilations.load_relaxed() == 0);
  const std::vector<ir::Extents> shapes{{2, 4}};
  CHECK(f.runtime->compile(*model, shapes).code() == Code::invalid);
}

TEST_CASE("a wrong place for an output is refused by name") {
  RuntimeFixture f;
  const auto model = f.load("double");
  Rows x(2), to(3);
  View wrong = to.view();
  Status status = f.run(*model, x, {.outputs = {&wrong, 1}}).status();
  CHECK(status.code() == Code::invalid);
  CHECK(status.message().find("output 'y'") != std::string::npos);
  CHECK(status.message().find("[2, 4]") != std::string::npos);
  View strided = Rows(4).view();
  strided.extents = {2, 4};
  strided.strides = {8, 1};
  CHECK(f.run(*model, x, {.outputs = {&strided, 1}}).status().message().find("contiguous") !=
        std::string::npos);
  const std::vector<View> two(2, x.view());
  CHECK(f.run(*model, x, {.outputs = two}).status().message().find("1 outputs") != std::string::npos);
}

TEST_CASE("16 threads with 30 shapes of 2 models compile each once") {
  RuntimeFixture f;
  const auto a = f.load("double"), b = f.load("identity");
  Atomic<uint64_t> wrong{0};
  run_together(16, [&](int thread) {
    for (int i = 0; i < 60; ++i) {
      const int which = (i * 7 + thread * 11) % 60;
      Rows x(1 + which % 30, static_cast<float>(thread));
      const auto y = f.run(which < 30 ? *a : *b, x);
      if (!y.ok() || test::values_of(y->front()) != (which < 30 ? doubled(x) : x.values))
        wrong.add_relaxed(1);
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  CHECK(f.device->counts().compilations.load_relaxed() == 60);
  CHECK(f.device->counts().runs.load_relaxed() == 16 * 60);
  const auto stats = f.runtime->executables().stats();
  CHECK(stats.makes == 60);
  CHECK(stats.count == 60);
  CHECK(stats.bytes == 60'000);
  CHECK(test::bytes_of_tensors(*f.runtime) == 0);
  CHECK(f.runtime->governor().stats().in_flight == 0);
}

TEST_CASE("a compilation that fails reaches its callers and is tried again by the next") {
  RuntimeFixture f;
  Atomic<bool> broken{true};
  f.device->set_compile([&](std::span<const ir::Extents>) {
    return broken.load_acquire() ? Status::invalid("node 'Add_3' (Add): no") : Status();
  });
  const auto model = f.load("double");
  Rows x(1);
  const Status status = f.run(*model, x).status();
  CHECK(status.code() == Code::invalid);
  CHECK(status.message().find("Add_3") != std::string::npos);
  broken.store_release(false);
  CHECK(f.run(*model, x).ok());
}

TEST_CASE("programs are evicted under the byte budget, and a closed model's are dropped") {
  Options options;
  options.executable_bytes = 10'000;  // ten programs
  RuntimeFixture f({}, options);
  const auto model = f.load("double"), other = f.load("identity");
  for (int64_t rows = 1; rows <= 50; ++rows) {
    Rows x(rows);
    REQUIRE(f.run(*model, x).ok());
  }
  CHECK(f.runtime->executables().stats().bytes <= 10'000);
  CHECK(f.runtime->executables().stats().evictions >= 40);
  const std::vector<ir::Extents> shapes{{7, 4}};
  REQUIRE(f.runtime->compile(*other, shapes).ok());
  REQUIRE(model->close(Deadline::never()).ok());
  CHECK(f.runtime->executables().stats().count == 1);
  CHECK(f.device->counts().programs.load_relaxed() == 1);
}

TEST_CASE("a compiled shape is not compiled again by its first call") {
  RuntimeFixture f;
  const auto model = f.load("double");
  const std::vector<ir::Extents> shapes{{7, 4}};
  REQUIRE(f.runtime->compile(*model, shapes).ok());
  Rows x(7);
  REQUIRE(f.run(*model, x).ok());
  CHECK(f.device->counts().compilations.load_relaxed() == 1);
}

TEST_CASE("a wait for another thread's compilation ends at its deadline, and that compilation is kept") {
  RuntimeFixture f;
  f.device->set_compile([&](std::span<const ir::Extents>) {
    f.latch.wait();
    return Status();
  });
  const auto model = f.load("double");
  const std::vector<ir::Extents> shapes{{2, 4}};
  {
    const Thread maker("maker", [&] {
      Rows x(2, 3);
      // The deadline passes during its own compilation, which does not end for that, nor does the call.
      const auto y = f.run(*model, x, {.deadline = Deadline::in(std::chrono::milliseconds(1))});
      REQUIRE(y.ok());
      CHECK(test::values_of(y->front()) == doubled(x));
    });
    test::wait_until([&] { return f.latch.arrived() == 1; });
    run_together(4, [&](int thread) {
      const Deadline soon = Deadline::in(std::chrono::milliseconds(thread));
      Rows x(2, 5);
      const Status status = f.run(*model, x, {.deadline = soon}).status();
      CHECK(status.code() == Code::deadline);
      CHECK(status.message().find("[2, 4]") != std::string::npos);
      CHECK(f.runtime->compile(*model, shapes, soon).code() == Code::deadline);
    });
    CHECK(f.runtime->executables().stats().waiting == 0);
    f.latch.open();
  }
  Rows x(2, 7);
  CHECK(test::values_of(f.run(*model, x)->front()) == doubled(x));
  CHECK(f.device->counts().compilations.load_relaxed() == 1);
}

TEST_CASE("no more calls run at once than the governor allows, and each has its own arena") {
  for (const auto& options : {kSynchronous, kAsynchronous}) {
    RuntimeFixture f(options, [] {
      Options limited;
      limited.in_flight = 3;
      return limited;
    }());
    const auto model = f.load("double");
    Atomic<uint64_t> wrong{0};
    run_together(8, [&](int thread) {
      for (int i = 0; i < 200; ++i) {
        Rows x(1 + i % 4, static_cast<float>(thread * 1000 + i));
        const auto y = f.run(*model, x);
        if (!y.ok() || test::values_of(y->front()) != doubled(x)) wrong.add_relaxed(1);
      }
    });
    CHECK(wrong.load_relaxed() == 0);  // an arena used twice would be an error
    CHECK(f.device->counts().runs.load_relaxed() == 1600);
    CHECK(f.device->counts().most_running.load_relaxed() <= 3);
  }
}

TEST_CASE("a caller parked behind a running call gets its deadline") {
  Options options;
  options.in_flight = 1;
  RuntimeFixture f(kSynchronous, options);
  const auto slow = f.load("slow"), model = f.load("double");
  Rows x(1), z(1);
  {
    const Thread runner("runner", [&] { CHECK(f.run(*slow, z).ok()); });
    test::wait_until([&] { return f.latch.arrived() == 1; });
    const Status status = f.run(*model, x, {.deadline = Deadline::in(std::chrono::milliseconds(1))}).status();
    CHECK(status.code() == Code::deadline);
    f.latch.open();
  }
  CHECK(f.run(*model, x, {.deadline = Deadline::in(std::chrono::hours(1))}).ok());
}

TEST_CASE("closing refuses new callers, wakes parked ones, and waits for the running one") {
  for (const bool whole_runtime : {false, true}) {
    Options options;
    options.in_flight = 1;
    RuntimeFixture f(kSynchronous, options);
    const auto slow = f.load("slow");
    Atomic<int> finished{0}, unavailable{0};
    std::vector<Thread> callers;
    const auto caller = [&] {
      Rows x(1, 3);
      const auto y = f.run(*slow, x);
      if (y.ok() && test::values_of(y->front()) == x.values) finished.add_relaxed(1);
      if (y.status().code() == Code::unavailable) unavailable.add_relaxed(1);
    };
    callers.emplace_back("runner", caller);
    test::wait_until([&] { return f.latch.arrived() == 1; });
    for (int i = 0; i < 5; ++i) callers.emplace_back("parked", caller);
    test::wait_until([&] { return f.runtime->governor().stats().waiting == 5; });
    Thread opener("opener", [&] {
      test::wait_until([&] { return unavailable.load_acquire() == 5; });
      CHECK(finished.load_relaxed() == 0);
      f.latch.open();
    });
    if (whole_runtime) {
      f.runtime->close();
    } else {
      CHECK(slow->close(Deadline::never()).ok());
    }
    opener.join();
    callers.clear();
    CHECK(finished.load_relaxed() == 1);
    Rows x(1);
    CHECK(f.run(*slow, x).status().code() == Code::unavailable);
    if (whole_runtime) {
      CHECK(f.runtime->closed());
      CHECK(f.runtime->load(test::graph_named("double")).status().code() == Code::unavailable);
      CHECK(f.runtime->allocate(100).status().code() == Code::unavailable);
      CHECK(f.runtime->streams().lease().status().code() == Code::unavailable);
    } else {
      CHECK(f.run(*f.load("double"), x).ok());
    }
  }
}

TEST_CASE("closing within a deadline says what still runs") {
  RuntimeFixture f;
  const auto slow = f.load("slow");
  Rows x(1);
  const Thread runner("runner", [&] { CHECK(f.run(*slow, x).ok()); });
  test::wait_until([&] { return f.latch.arrived() == 1; });
  const Status status = slow->close(Deadline::in(std::chrono::milliseconds(1)));
  CHECK(status.code() == Code::deadline);
  CHECK(status.message().find("'slow'") != std::string::npos);
  f.latch.open();
  CHECK(slow->close(Deadline::never()).ok());
}

TEST_CASE("an exclusive holder has the device to itself, and may not call a model") {
  RuntimeFixture f;
  const auto model = f.load("double");
  Rows x(1);
  std::optional<Exclusive> hold = std::move(*f.runtime->governor().exclusive(Deadline::never()));
  CHECK(f.run(*model, x).status().code() == Code::invalid);
  {
    const Thread other("other", [&] {
      Rows mine(1);
      CHECK(f.run(*model, mine, {.deadline = Deadline::in(std::chrono::milliseconds(1))}).status().code() ==
            Code::deadline);
    });
  }
  hold.reset();
  CHECK(f.run(*model, x).ok());
}

TEST_CASE("what lives at the end outlives the runtime, and nothing is lost") {
  for (const auto& options : {kSynchronous, kAsynchronous, kStaging}) {
    std::optional<RuntimeFixture> f(options);
    const auto counts = f->device->shared_counts();
    Ref<Model> model = f->load("double");
    Rows x(3, 2);
    std::vector<View> kept = *f->run(*model, x);
    StreamLease lease = *f->runtime->streams().lease();
    const Ref<Stream> stream = *f->runtime->streams().default_stream();
    f.reset();
    CHECK(test::values_of(kept[0]) == doubled(x));
    CHECK(stream->turn()->submit({}).status().code() == Code::unavailable);
    CHECK_FALSE(counts->nothing_lives());
    kept.clear();
    model.reset();
    lease = {};
    const_cast<Ref<Stream>&>(stream).reset();
    CHECK(counts->nothing_lives());
  }
}

TEST_CASE("runtimes of one device share its lanes, but for one that wants a governor of its own") {
  const auto make = [](bool own) {
    Options options;
    options.own_governor = own;
    return *Runtime::make(std::make_shared<test::TestDevice>(test::TestOptions{.name = "lanes-shared"}),
                          options);
  };
  const auto one = make(false), other = make(false), own = make(true);
  CHECK(&one->governor() == &other->governor());
  CHECK(&own->governor() != &one->governor());
}

TEST_CASE("as many calls may be in flight as there can be lanes, and no more can be asked for") {
  const auto with = [](int in_flight) {
    Options options;
    options.in_flight = in_flight;
    return Runtime::make(std::make_shared<TestDevice>(RuntimeFixture::unique({.lanes = 3})), options);
  };
  for (const int allowed : {1, Governor::kMaxLimit}) {
    const auto runtime = with(allowed);
    REQUIRE(runtime.ok());
    CHECK((*runtime)->governor().limit() == allowed);
  }
  CHECK((*with(0))->governor().limit() == 3);
  for (const int wrong : {-1, Governor::kMaxLimit + 1}) CHECK(with(wrong).status().code() == Code::invalid);
}

TEST_CASE("options out of range are refused by name") {
  const auto device = std::make_shared<TestDevice>();
  Options options;
  options.in_flight = 1025;
  CHECK(Runtime::make(device, options).status().message().find("1 to 1024") != std::string::npos);
  options = {};
  options.streams = 1025;
  CHECK(Runtime::make(device, options).status().code() == Code::invalid);
  options = {};
  options.memory_fraction = 2;
  CHECK(Runtime::make(device, options).status().code() == Code::invalid);
}

TEST_CASE("a call that finds no memory is refused, and the others go on") {
  RuntimeFixture f(test::TestOptions{.memory_bytes = 4 << 20});
  const auto model = f.load("double");
  Atomic<uint64_t> refused{0}, right{0};
  run_together(8, [&](int thread) {
    for (int i = 0; i < 20; ++i) {
      Rows x(thread == 0 ? 400'000 : 100, static_cast<float>(i));
      const auto y = f.run(*model, x);
      if (thread == 0 && y.status().code() == Code::exhausted) refused.add_relaxed(1);
      if (thread != 0 && y.ok() && test::values_of(y->front()) == doubled(x)) right.add_relaxed(1);
    }
  });
  CHECK(refused.load_relaxed() == 20);
  CHECK(right.load_relaxed() == 7 * 20);
}

}  // namespace heddle::runtime
