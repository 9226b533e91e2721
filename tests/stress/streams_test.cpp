// streams_test.cpp: threads and streams: leases, exhaustion, tensors that cross streams, synchronisation from
// several threads.
#include <barrier>
#include <chrono>
#include <map>
#include <set>
#include <thread>

#include "harness_fixture.h"

namespace stress {
namespace {

using namespace std::chrono_literals;

heddle::Device device_with(heddle::Exhaustion exhaustion, std::chrono::nanoseconds wait = 30s) {
  heddle::DeviceOptions options;
  options.streams = 32;  // also where there are more processors
  options.exhaustion = exhaustion;
  options.stream_wait = wait;
  return fresh_device(options);
}

// What a lease that the pool refuses is refused with.
heddle::ErrorCode code_of_lease(const heddle::Device& device) {
  try {
    const heddle::Stream leased(device);
  } catch (const heddle::Error& error) {
    return error.code();
  }
  return heddle::ErrorCode{};
}

}  // namespace

TEST_CASE("sixty-four threads share thirty-one streams, two or three on each, and every value is right") {
  const heddle::Device device = device_with(heddle::Exhaustion::share);
  const Case c = small(device);
  std::vector<int> stream_of(64);
  std::atomic<int> right = 0;
  std::atomic<int> turn = 0;  // they lease one after another, so that each finds the least loaded stream
  const auto errors = run_threads(64, [&](int thread) {
    while (turn != thread) std::this_thread::yield();
    const heddle::Stream mine = heddle::current_stream(device);
    stream_of[static_cast<size_t>(thread)] = mine.id();
    ++turn;
    while (turn < 64) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) {
      const heddle::Stream again = heddle::current_stream(device);
      right += again.id() == mine.id() && c.call(static_cast<size_t>(thread + i), on(again)) ? 1 : 0;
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 64 * 20);
  std::map<int, int> threads_on;
  for (const int id : stream_of) ++threads_on[id];
  CHECK(threads_on.size() == 31);
  CHECK(threads_on.count(0) == 0);  // the default stream is not leased
  for (const auto& [id, threads] : threads_on) CHECK_MESSAGE((threads == 2 || threads == 3), "stream ", id);
  CHECK(device.stats().streams_shared == 64 - 31);
  CHECK(device.stats().streams_leased == 0);
}

TEST_CASE("calls in slices, of more threads than the device has, are each answered rightly") {
  constexpr int kThreads = 12, kEach = 40;
  heddle::DeviceOptions options;
  options.threads = 2;
  const heddle::Device device = fresh_device(options);
  const Case c = small(device);
  std::atomic<int> right = 0, late = 0;
  const auto errors = run_threads(kThreads, [&](int thread) {
    heddle::CallOptions call = on(heddle::current_stream(device));
    call.in_slices = true;
    for (int i = 0; i < kEach; ++i) {
      call.timeout = i % 10 == 9 ? heddle::Timeout(std::chrono::microseconds(i)) : heddle::Timeout();
      try {
        right += c.call(static_cast<size_t>(thread + i), call) ? 1 : 0;
      } catch (const heddle::Error& error) {
        late += error.code() == heddle::ErrorCode::deadline && i % 10 == 9 ? 1 : 0;
      }
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right + late == kThreads * kEach);
  CHECK(right >= kThreads * kEach * 9 / 10);
}

TEST_CASE("sixty-four threads wait for thirty-two streams and all are served") {
  const heddle::Device device = device_with(heddle::Exhaustion::wait);
  const Case c = small(device);
  std::atomic<int> right = 0;
  const auto errors = run_threads(64, [&](int thread) {
    for (int i = 0; i < 20; ++i) {
      right += c.call(static_cast<size_t>(thread + i), on(heddle::current_stream(device))) ? 1 : 0;
      heddle::release_current_thread_slot(device);
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 64 * 20);
  CHECK(device.stats().streams_shared == 0);
  CHECK(device.stats().streams_leased_max <= 31);
}

TEST_CASE("waiting for a stream ends at its limit with deadline") {
  const heddle::Device device = device_with(heddle::Exhaustion::wait, 20ms);
  std::vector<heddle::Stream> held;
  for (int i = 0; i < 31; ++i) held.emplace_back(device);
  const auto begin = std::chrono::steady_clock::now();
  CHECK(code_of_lease(device) == heddle::ErrorCode::deadline);
  const auto waited = std::chrono::steady_clock::now() - begin;
  CHECK(waited >= 20ms);
  CHECK(waited < 20s);  // the limit where none is given is 30 s
}

TEST_CASE("where exhaustion fails, the thread too many gets a clear error and the others go on") {
  const heddle::Device device = device_with(heddle::Exhaustion::fail);
  const Case c = small(device);
  std::atomic<int> right = 0;
  std::atomic<int> refused = 0;
  std::atomic<int> decided = 0;
  const auto errors = run_threads(64, [&](int thread) {
    try {
      const heddle::Stream stream(device);
      ++decided;
      while (decided < 64) std::this_thread::yield();  // hold the lease until every thread has asked
      for (int i = 0; i < 20; ++i) right += c.call(static_cast<size_t>(thread + i), on(stream)) ? 1 : 0;
    } catch (const heddle::Error& e) {
      ++decided;
      if (e.code() == heddle::ErrorCode::exhausted) ++refused;
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(refused == 64 - 31);
  CHECK(right == 31 * 20);
}

TEST_CASE("thirty-one leases are thirty-one different streams, and none is the default") {
  const heddle::Device device = device_with(heddle::Exhaustion::fail);
  std::set<int> ids;
  std::vector<heddle::Stream> held;
  for (int i = 0; i < 31; ++i) {
    held.emplace_back(device);
    ids.insert(held.back().id());
  }
  CHECK(ids.size() == 31);
  CHECK(ids.count(0) == 0);
  CHECK(heddle::default_stream(device).id() == 0);
}

TEST_CASE("a thread keeps its stream until it releases it, and guards nest") {
  const heddle::Device device = device_with(heddle::Exhaustion::fail);
  std::jthread([&] {
    const int id = heddle::current_stream(device).id();
    CHECK(id != 0);  // though it asks first: that one is the main thread's
    CHECK(heddle::current_stream(device).id() == id);
    const heddle::Stream outer(device);
    const heddle::StreamGuard outer_guard(outer);
    {
      const heddle::Stream inner(device);
      const heddle::StreamGuard inner_guard(inner);
      CHECK(heddle::current_stream(device).id() == inner.id());
    }
    CHECK(heddle::current_stream(device).id() == outer.id());
  }).join();
  CHECK(heddle::current_stream(device).id() == 0);
  CHECK(device.stats().streams_leased == 0);
}

TEST_CASE("release_current_thread_slot returns the stream while the thread lives") {
  const heddle::Device device = device_with(heddle::Exhaustion::fail);
  std::vector<heddle::Stream> held;
  for (int i = 0; i < 30; ++i) held.emplace_back(device);
  std::atomic<int> id = -1;
  std::barrier step(2);
  std::jthread other([&] {
    id = heddle::current_stream(device).id();
    step.arrive_and_wait();  // all are leased
    step.arrive_and_wait();  // one more was refused
    heddle::release_current_thread_slot(device);
    step.arrive_and_wait();
    step.arrive_and_wait();  // the stream has a new owner, and this thread lives
    CHECK_THROWS_AS((void)heddle::current_stream(device), heddle::Error);
  });
  step.arrive_and_wait();
  CHECK(device.stats().streams_leased == 31);
  CHECK(code_of_lease(device) == heddle::ErrorCode::exhausted);
  step.arrive_and_wait();
  step.arrive_and_wait();
  CHECK(device.stats().streams_leased == 30);
  if (device.stats().streams_leased == 30) {
    held.emplace_back(device);
    CHECK(held.back().id() == id);
  }
  step.arrive_and_wait();
  other.join();
}

TEST_CASE("a tensor handed from stream to stream holds what the first one wrote, with an event and without") {
  const heddle::Device device = device_with(heddle::Exhaustion::share);
  const Case c = small(device, 256);
  for (const bool with_event : {true, false}) {
    CAPTURE(with_event);
    std::atomic<int> right = 0;
    const auto errors = run_threads(8, [&](int thread) {
      const heddle::Stream producer(device);
      const heddle::Stream consumer(device);
      for (int i = 0; i < 25; ++i) {
        const Tensor x = random_tensor({4, 256}, static_cast<uint32_t>(thread * 1000 + i));
        Tensor y = c.model({x}, on(producer))[0];
        if (with_event) consumer.wait(producer.record());
        Tensor z;
        std::jthread([&] { z = c.model({y}, on(consumer))[0]; }).join();
        y = Tensor();  // its last reference, while the consumer may still read it
        bool same = true;
        for (size_t k = 0; k < z.values<float>().size(); ++k)
          same = same && z.values<float>()[k] == (x.values<float>()[k] * 2 + 1) * 2 + 1;
        right += same ? 1 : 0;
      }
    });
    for (const std::string& error : errors) FAIL_CHECK(error);
    CHECK(right == 8 * 25);
  }
}

TEST_CASE("two threads may synchronise one stream at once and neither returns early") {
  const heddle::Device device = device_with(heddle::Exhaustion::share);
  const Case c = mlp(device);
  const heddle::Stream stream(device);
  std::atomic<int> right = 0;
  const auto errors = run_threads(3, [&](int thread) {
    for (size_t i = 0; i < 50; ++i) {
      if (thread == 0) {
        right += c.call(i, on(stream)) ? 1 : 0;
      } else {
        const heddle::Event event = stream.record();
        stream.synchronize();
        right += event.query() ? 1 : 0;
      }
    }
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 150);
}

TEST_CASE("the device is synchronised ten times while eight threads work") {
  const heddle::Device device = device_with(heddle::Exhaustion::share);
  const Case c = encoder(device);
  std::atomic<int> right = 0;
  const auto errors = run_threads(9, [&](int thread) {
    if (thread == 0) {
      for (int i = 0; i < 10; ++i) heddle::synchronize(device);
      return;
    }
    for (size_t i = 0; i < 20; ++i) right += c.call(i, on(heddle::current_stream(device))) ? 1 : 0;
  });
  for (const std::string& error : errors) FAIL_CHECK(error);
  CHECK(right == 160);
}

TEST_CASE("events time and outlive the leases of their streams") {
  const heddle::Device device = device_with(heddle::Exhaustion::share);
  const Case c = encoder(device);
  heddle::Event before;
  CHECK(before.query());
  heddle::Event after;
  {
    const heddle::Stream stream(device);
    before = stream.record();
    CHECK(c.call(0, on(stream)));
    after = stream.record();
  }
  after.wait(10s);
  CHECK(after.query());
  CHECK(before.elapsed_ms(after) > 0);
  CHECK_THROWS_AS((void)heddle::Event().elapsed_ms(after), heddle::Error);
}

}  // namespace stress
