#include "runtime/streams/stream.h"

#include <doctest/doctest.h>

#include "base/thread.h"
#include "runtime/memory/allocator.h"
#include "runtime/streams/roster.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using test::Latch;
using test::TestDevice;

// Two streams and an allocator on a device that works behind our back.
struct StreamFixture {
  explicit StreamFixture(bool asynchronous = true)
      : device(std::make_shared<TestDevice>(test::TestOptions{.asynchronous = asynchronous})),
        allocator(*Allocator::make(device, {})),
        roster(device, Clock::real()),
        a(*roster.make(1)),
        b(*roster.make(2)),
        arena_a(*allocator->allocate(64)),
        arena_b(*allocator->allocate(64)) {}

  Ref<const device::Program> program(test::Kernel kernel) {
    const std::string name = text("kernel", ++kernels);
    device->set_kernel(name, std::move(kernel));
    const auto module = *device->load(test::graph_named(name), {}, allocator, {});
    const ir::Extents extents{1, 4};
    return *module->compile({&extents, 1}, {});
  }
  device::View tensor() {
    Ref<device::Buffer> buffer = *allocator->allocate(16);
    return device::View::contiguous(std::move(buffer), ir::DType::kF32, {1, 4});
  }
  static device::CommandList run(const Ref<const device::Program>& program, const Ref<device::Buffer>& arena,
                                 const device::View& from, const device::View& to) {
    device::CommandList list;
    list.run(program, arena, {from}, {to});
    return list;
  }
  static Status fill(Stream& stream, const device::View& to, double value) {
    device::CommandList list;
    list.fill(to, value);
    return stream.turn()->submit(std::move(list)).status();
  }
  static Status copy(Stream& stream, const device::View& from, const device::View& to) {
    device::CommandList list;
    list.copy(from, to);
    return stream.turn()->submit(std::move(list)).status();
  }

  int kernels = 0;
  Ref<TestDevice> device;
  Ref<Allocator> allocator;
  Roster roster;
  Ref<Stream> a, b;
  Ref<device::Buffer> arena_a, arena_b;
};

const std::vector<float> kSevens(4, 7), kNines(4, 9);

}  // namespace

TEST_CASE("a tensor handed from stream to stream is right without events") {
  StreamFixture f;
  Latch latch;
  const auto slow = f.program([&](const device::Run& run) {
    latch.wait();
    return test::copy_through(run);
  });
  const device::View x = f.tensor(), y = f.tensor(), z = f.tensor();
  REQUIRE(f.fill(*f.a, x, 7).ok());
  REQUIRE(f.fill(*f.a, y, 0).ok());
  REQUIRE(f.a->turn()->submit(f.run(slow, f.arena_a, x, y)).ok());
  REQUIRE(f.copy(*f.b, y, z).ok());  // b reads what a has not written yet
  REQUIRE(f.fill(*f.b, x, 9).ok());  // b overwrites what a still reads
  CHECK_FALSE(f.b->query());
  latch.open();
  CHECK(f.b->synchronize(Deadline::never()).ok());
  CHECK(test::values_of(z) == kSevens);
  CHECK(test::values_of(x) == kNines);
}

TEST_CASE("a stream that waits for an event runs after it") {
  StreamFixture f;
  Latch latch;
  float seen = 0, written = 0;  // foreign memory: only the event orders it
  const auto writer = f.program([&](const device::Run&) {
    latch.wait();
    written = 5;
    return Status();
  });
  const auto reader = f.program([&](const device::Run&) {
    seen = written;
    return Status();
  });
  const device::View x = f.tensor(), y = f.tensor(), z = f.tensor(), w = f.tensor();
  REQUIRE(f.a->turn()->submit(f.run(writer, f.arena_a, x, y)).ok());
  const Event event = f.a->record();
  CHECK(event.recorded());
  CHECK_FALSE(event.query());
  CHECK(event.wait(Deadline::at(TimePoint())).code() == Code::deadline);
  {
    auto turn = f.b->turn();
    device::CommandList order;
    order.wait(event.point());
    REQUIRE(turn->submit(std::move(order)).ok());
    REQUIRE(turn->submit(f.run(reader, f.arena_b, z, w)).ok());
  }
  latch.open();
  CHECK(f.b->synchronize(Deadline::never()).ok());
  CHECK(event.query());
  CHECK(seen == 5);
}

TEST_CASE("values cross between two streams many times and stay right") {
  StreamFixture f;
  const auto add_one = f.program([](const device::Run& run) {
    for (int i = 0; i < 4; ++i) {
      reinterpret_cast<float*>(run.outputs[0].host())[i] =
          reinterpret_cast<const float*>(run.inputs[0].host())[i] + 1;
    }
    return Status();
  });
  const device::View x = f.tensor(), y = f.tensor();
  REQUIRE(f.fill(*f.a, x, 0).ok());
  constexpr int kRounds = 500;
  for (int i = 0; i < kRounds; ++i) {
    REQUIRE(f.a->turn()->submit(f.run(add_one, f.arena_a, x, y)).ok());
    REQUIRE(f.b->turn()->submit(f.run(add_one, f.arena_b, y, x)).ok());
  }
  CHECK(f.b->synchronize(Deadline::never()).ok());
  CHECK(test::values_of(x) == std::vector<float>(4, 2 * kRounds));
  CHECK(f.device->counts().runs.load_acquire() == 2 * kRounds);
}

TEST_CASE(
    "threads that use the same buffers on their own streams in opposite order do not wait in a circle") {
  StreamFixture f;
  const device::View x = f.tensor(), y = f.tensor();
  run_together(2, [&](int thread) {
    Stream& mine = thread == 0 ? *f.a : *f.b;
    const device::View& from = thread == 0 ? x : y;
    const device::View& to = thread == 0 ? y : x;
    for (int i = 0; i < 1000; ++i) {
      device::CommandList list;  // only names the buffers: what they hold does not matter here
      list.copy(device::View{from.buffer, 0, nullptr, ir::DType::kF32, {0}, {1}},
                device::View{to.buffer, 0, nullptr, ir::DType::kF32, {0}, {1}});
      CHECK(mine.turn()->submit(std::move(list)).ok());
    }
    CHECK(mine.synchronize(Deadline::never()).ok());
  });
  CHECK(f.device->counts().copies.load_acquire() == 2000);
}

TEST_CASE("a freed buffer is not reused while another stream reads it") {
  StreamFixture f;
  Latch latch;
  const auto slow = f.program([&](const device::Run& run) {
    latch.wait();
    return test::copy_through(run);
  });
  device::View x = f.tensor();
  const device::View y = f.tensor();
  const void* const memory = x.host();
  REQUIRE(f.fill(*f.a, x, 7).ok());
  SUBCASE("in flight, the record keeps it") {
    REQUIRE(f.b->turn()->submit(f.run(slow, f.arena_b, x, y)).ok());
  }
  SUBCASE("foreign use, recorded by mark_read") {  // record_stream
    device::CommandList list;
    const device::View other = f.tensor();
    list.run(slow, f.arena_b, {device::View{nullptr, 0, x.host(), x.dtype, x.extents, x.strides}}, {y});
    const uint64_t value = *f.b->turn()->submit(std::move(list));
    x.buffer->mark_read({f.b->timeline(), value});
  }
  REQUIRE(f.a->synchronize(Deadline::never()).ok());
  f.a->drop_finished();
  x = {};
  for (int i = 0; i < 3; ++i) {  // a new owner would overwrite what b is about to read
    const device::View next = f.tensor();
    CHECK(next.host() != memory);
    REQUIRE(f.fill(*f.a, next, 9).ok());
    REQUIRE(f.a->synchronize(Deadline::never()).ok());
    f.a->drop_finished();
  }
  latch.open();
  REQUIRE(f.b->synchronize(Deadline::never()).ok());
  CHECK(test::values_of(y) == kSevens);
  test::wait_until([&] { return f.b->drop_finished() == 0; });
  f.allocator->reap_pending();
  CHECK(f.allocator->stats().pending == 0);
  std::vector<device::View> all;  // and now it is given again
  bool reused = false;
  for (int i = 0; i < 8; ++i) {
    all.push_back(f.tensor());
    reused = reused || all.back().host() == memory;
  }
  CHECK(reused);
}

TEST_CASE("two threads synchronise one stream at once, while a third submits") {
  StreamFixture f;
  const auto add_one = f.program([](const device::Run& run) {
    reinterpret_cast<float*>(run.outputs[0].host())[0] =
        reinterpret_cast<const float*>(run.inputs[0].host())[0] + 1;
    return Status();
  });
  const device::View x = f.tensor();
  REQUIRE(f.fill(*f.a, x, 0).ok());
  Atomic<int> submitted{0};
  run_together(3, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < 400; ++i) {
        REQUIRE(f.a->turn()->submit(f.run(add_one, f.arena_a, x, x)).ok());
        submitted.add_acq_rel(1);
      }
      return;
    }
    while (submitted.load_acquire() < 400) {
      const uint64_t before = f.a->last_submitted();
      CHECK(f.a->synchronize(Deadline::never()).ok());
      CHECK(f.a->timeline()->done(before));
    }
  });
  CHECK(f.a->synchronize(Deadline::never()).ok());
  CHECK(test::values_of(x)[0] == 400);
}

TEST_CASE("a shared stream runs one submission at a time, in order, and loses none") {
  for (const bool asynchronous : {false, true}) {
    StreamFixture f(asynchronous);
    uint64_t sum = 0;  // unprotected: only the stream's order keeps it right
    const auto count = f.program([&](const device::Run&) {
      ++sum;
      return Status();
    });
    run_together(8, [&](int) {
      const device::View x = f.tensor(), y = f.tensor();
      for (int i = 0; i < 250; ++i) REQUIRE(f.a->turn()->submit(f.run(count, f.arena_a, x, y)).ok());
    });
    REQUIRE(f.a->synchronize(Deadline::never()).ok());
    CHECK(sum == 2000);
    CHECK(f.a->last_submitted() == 2000);
  }
}

TEST_CASE("a turn that others keep is waited for until the deadline") {
  StreamFixture f;
  auto turn = f.a->turn();
  const Thread other("other", [&] {
    const auto late = f.a->turn(Deadline::in(std::chrono::milliseconds(1)));
    CHECK(late.status().code() == Code::deadline);
    CHECK(late.status().message().find("stream 1") != std::string::npos);
  });
}

TEST_CASE("a failed stream stays failed, returns the cause to every caller, and drops what it held") {
  StreamFixture f;
  const auto lost = f.program([](const device::Run&) { return Status::device_lost("the cable was pulled"); });
  const device::View x = f.tensor(), y = f.tensor(), z = f.tensor();
  REQUIRE(f.fill(*f.a, x, 7).ok());
  const Event before = f.a->record();
  REQUIRE(before.wait(Deadline::never()).ok());
  REQUIRE(f.a->turn()->submit(f.run(lost, f.arena_a, x, y)).ok());
  for (int i = 0; i < 2; ++i) {
    const Status status = f.a->synchronize(Deadline::never());
    CHECK(status.code() == Code::device_lost);
    CHECK(status.message().find("cable") != std::string::npos);
  }
  CHECK(before.wait(Deadline::never()).ok());
  const auto refused = f.a->turn()->submit({});
  CHECK(refused.status().code() == Code::device_lost);
  CHECK(refused.status().message().find("stream 1") != std::string::npos);
  // What it should have written is not read by others, as if nothing had happened.
  CHECK(f.copy(*f.b, y, z).code() == Code::device_lost);
  CHECK_FALSE(f.b->failed());
  CHECK(f.a->in_flight() == 0);
  CHECK(f.a->drop_finished() == 0);
}

TEST_CASE(
    "what a queue refuses to begin because a point that it waits for has failed, fails with that cause") {
  Status refusal = Status::unavailable("the driver takes no such wait");
  Atomic<bool> refuses{false};
  Latch latch;
  StreamFixture f;  // whose queues end before what their work names
  f.device->set_submit([&] { return refuses.load_acquire() ? refusal : Status(); });
  const Ref<Stream> a = *f.roster.make(3), b = *f.roster.make(4);
  const auto lost = f.program([](const device::Run&) { return Status::device_lost("the cable was pulled"); });
  const auto slow = f.program([&](const device::Run&) { return latch.wait(), Status(); });
  const device::View x = f.tensor(), y = f.tensor(), z = f.tensor(), w = f.tensor();
  REQUIRE(f.fill(*a, x, 7).ok());
  REQUIRE(a->synchronize(Deadline::never()).ok());
  const device::Point done = a->record().point();
  REQUIRE(a->turn()->submit(f.run(lost, f.arena_a, x, y)).ok());
  const device::Point failed = a->record().point();
  CHECK(a->synchronize(Deadline::never()).code() == Code::device_lost);
  REQUIRE(b->turn()->submit(f.run(slow, f.arena_b, z, w)).ok());
  const device::Point unfinished = b->record().point();
  refuses.store_release(true);
  std::vector<Ref<Stream>>
      theirs;  // what is refused is over once what it waits for is: at the latch's opening
  const auto refused = [&](std::vector<device::Point> points) {
    device::CommandList list;
    list.fill(f.tensor(), 1);
    for (device::Point& point : points) list.wait(std::move(point));
    theirs.push_back(*f.roster.make(5));
    return theirs.back()->turn()->submit(std::move(list)).status();
  };
  const Status told = refused({done, unfinished, failed});
  CHECK(told.code() == Code::device_lost);
  CHECK(told.message().find("what it waits for failed") != std::string::npos);
  CHECK(told.message().find("cable") != std::string::npos);
  CHECK(refused({done, unfinished}).message() == refusal.message());
  refusal = Status::exhausted("the driver has no memory");
  CHECK(refused({failed}).code() == Code::exhausted);
  latch.open();
}

TEST_CASE("a mistake that only the data shows fails its submission and not the stream") {
  StreamFixture f(false);
  const auto wrong = f.program([](const device::Run&) { return Status::invalid("index 9 of 4"); });
  const device::View x = f.tensor(), y = f.tensor();
  CHECK(f.a->turn()->submit(f.run(wrong, f.arena_a, x, y)).status().code() == Code::invalid);
  CHECK(f.fill(*f.a, x, 7).ok());
  CHECK(f.copy(*f.a, x, y).ok());
  CHECK(test::values_of(y) == kSevens);
}

TEST_CASE("on a synchronous device nothing is marked or kept after submit") {
  StreamFixture f(false);
  device::View x = f.tensor(), y = f.tensor();
  REQUIRE(f.fill(*f.a, x, 7).ok());
  REQUIRE(f.copy(*f.a, x, y).ok());
  CHECK(x.buffer.use_count() == 1);
  CHECK(y.buffer->pending().empty());
  CHECK(f.a->drop_finished() == 0);
  CHECK(f.a->query());
}

TEST_CASE("a closed roster refuses work on its streams and makes no more of them") {
  StreamFixture f;
  f.roster.close();
  CHECK(f.a->turn()->submit({}).status().code() == Code::unavailable);
  CHECK(f.roster.make(3).status().code() == Code::unavailable);
}

TEST_CASE("synchronising all goes on past a failing stream and returns the first failure") {
  StreamFixture f;
  Latch latch;
  const auto lost = f.program([](const device::Run&) { return Status::device_lost("gone"); });
  const auto slow = f.program([&](const device::Run&) {
    latch.wait();
    return Status();
  });
  const device::View x = f.tensor(), y = f.tensor(), z = f.tensor(), w = f.tensor();
  REQUIRE(f.a->turn()->submit(f.run(lost, f.arena_a, x, y)).ok());
  REQUIRE(f.b->turn()->submit(f.run(slow, f.arena_b, z, w)).ok());
  const Thread opener("opener", [&] {
    test::wait_until([&] { return latch.arrived() == 1 && f.a->failed(); });
    latch.open();
  });
  const Status status = f.roster.synchronize(Deadline::never());
  CHECK(status.code() == Code::device_lost);
  CHECK(status.message().find("stream 1") != std::string::npos);
  CHECK(f.b->query());
  CHECK(f.b->last_submitted() == 1);
}

}  // namespace heddle::runtime
