#include "runtime/streams/stream_pool.h"
#include "device/plain_source_fixture.h"

#include <doctest/doctest.h>

#include <array>
#include <optional>
#include <set>

#include "base/thread.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using test::TestDevice;

struct PoolFixture {
  explicit PoolFixture(Exhaustion exhaustion, int streams = 32, bool asynchronous = false)
      : device(std::make_shared<TestDevice>(test::TestOptions{.asynchronous = asynchronous})),
        roster(std::make_shared<Roster>(device, Clock::real())) {
    Options options;
    options.exhaustion = exhaustion;
    options.streams = streams;
    pool = *StreamPool::make(roster, options);
  }
  std::vector<StreamLease> lease_all() {
    std::vector<StreamLease> leases;
    for (int i = 1; i < pool->limit(); ++i) leases.push_back(*pool->lease());
    return leases;
  }
  // Fails the stream for good.
  void break_stream(Stream& stream) {
    device->set_kernel("lost", [](const device::Run&) { return Status::device_lost("gone"); });
    const auto module = *device->load(test::graph_named("lost"), {}, device::plain_source(*device), {});
    const ir::Extents extents{1, 4};
    const Ref<device::Buffer> arena = *device::plain_source(*device)->allocate(64);
    test::Rows x(1), y(1);
    device::CommandList list;
    list.run(*module->compile({&extents, 1}, {}), arena, {x.view()}, {y.view()});
    static_cast<void>(stream.turn()->submit(std::move(list)));
    static_cast<void>(stream.synchronize(Deadline::never()));
    REQUIRE(stream.failed());
  }
  Ref<TestDevice> device;
  Ref<Roster> roster;
  Ref<StreamPool> pool;
};

}  // namespace

TEST_CASE("streams are made on first use, lowest first, and used again") {
  PoolFixture f(Exhaustion::fail);
  CHECK(f.device->counts().queues.load_relaxed() == 0);
  std::optional<StreamLease> first = *f.pool->lease();
  const auto second = *f.pool->lease();
  CHECK((*first)->id().index == 1);
  CHECK(second->id().index == 2);
  CHECK_FALSE(second.shared());
  const StreamId id = (*first)->id();
  first.reset();
  const auto third = *f.pool->lease();
  CHECK(third->id() == id);
  CHECK(f.device->counts().queues.load_relaxed() == 2);
  CHECK(f.pool->stats().leased == 2);
  CHECK(f.pool->stats().most_leased == 2);
}

TEST_CASE("the default stream is one for all and is not leased") {
  PoolFixture f(Exhaustion::fail);
  std::array<Ref<Stream>, 8> seen;
  run_together(8, [&](int thread) { seen[static_cast<size_t>(thread)] = *f.pool->default_stream(); });
  for (const auto& stream : seen) CHECK(stream == seen[0]);
  CHECK(seen[0]->is_default());
  for (const auto& lease : f.lease_all()) CHECK_FALSE(lease->is_default());
}

TEST_CASE("fail: the lessee too many is told the limit and what to do") {
  PoolFixture f(Exhaustion::fail);
  const auto all = f.lease_all();
  CHECK(all.size() == 31);
  const auto refused = f.pool->lease();
  CHECK(refused.status().code() == Code::exhausted);
  for (const char* part : {"all 31 streams", "Options::streams", "wait"}) {
    CHECK(refused.status().message().find(part) != std::string::npos);
  }
}

TEST_CASE("a pool has 2 to 1024 streams") {
  PoolFixture f(Exhaustion::fail);
  for (const int wrong : {-1, 0, 1, 1025}) {
    Options options;
    options.streams = wrong;
    CHECK(StreamPool::make(f.roster, options).status().code() == Code::invalid);
  }
}

TEST_CASE("wait: a returned stream goes to the caller that waited longest") {
  PoolFixture f(Exhaustion::wait, 2);
  std::optional<StreamLease> only = *f.pool->lease();
  std::vector<int> order;
  std::vector<Thread> waiters;
  for (int i = 0; i < 5; ++i) {
    waiters.emplace_back("waiter", [&, i] {
      const auto lease = f.pool->lease(Deadline::never());
      REQUIRE(lease.ok());
      order.push_back(i);  // one stream: one at a time
    });
    test::wait_until([&] { return f.pool->stats().waited == static_cast<uint64_t>(i + 1); });
  }
  only.reset();
  waiters.clear();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
  CHECK(f.pool->lease(Deadline::at(TimePoint())).ok());
}

TEST_CASE("wait: the deadline ends the wait, and closing wakes all waiters") {
  PoolFixture f(Exhaustion::wait, 2);
  const auto only = *f.pool->lease();
  const auto late = f.pool->lease(Deadline::in(std::chrono::milliseconds(1)));
  CHECK(late.status().code() == Code::deadline);
  CHECK(late.status().message().find("all 1 streams") != std::string::npos);
  Atomic<int> unavailable{0};
  std::vector<Thread> waiters;
  for (int i = 0; i < 4; ++i) {
    waiters.emplace_back("waiter", [&] {
      if (f.pool->lease(Deadline::never()).status().code() == Code::unavailable) unavailable.add_relaxed(1);
    });
  }
  test::wait_until([&] { return f.pool->stats().waited == 5; });
  f.pool->close();
  waiters.clear();
  CHECK(unavailable.load_relaxed() == 4);
  CHECK(f.pool->lease().status().code() == Code::unavailable);
  CHECK(f.pool->default_stream().status().code() == Code::unavailable);
}

TEST_CASE("share: the lessee too many joins the least loaded stream") {
  PoolFixture f(Exhaustion::share, 4);
  auto all = f.lease_all();
  const auto fourth = *f.pool->lease();
  const auto fifth = *f.pool->lease();
  const auto sixth = *f.pool->lease();
  const std::set<int> joined{fourth->id().index, fifth->id().index, sixth->id().index};
  CHECK(joined == std::set<int>{1, 2, 3});
  CHECK(fourth.shared());
  CHECK(f.pool->stats().lessees == 6);
  CHECK(f.pool->stats().joined == 3);
  // A stream stays taken until its last lessee goes.
  all.erase(all.begin());
  CHECK_FALSE(f.pool->lease()->stream() == nullptr);
  CHECK(f.pool->stats().leased == 3);
}

TEST_CASE("share: of streams with equally many lessees the one with less in flight is joined") {
  PoolFixture f(Exhaustion::share, 3, true);
  test::Latch latch;
  f.device->set_kernel("slow", [&](const device::Run&) {
    latch.wait();
    return Status();
  });
  const auto module = *f.device->load(test::graph_named("slow"), {}, device::plain_source(*f.device), {});
  const ir::Extents extents{1, 4};
  const Ref<device::Buffer> arena = *device::plain_source(*f.device)->allocate(64);
  const auto all = f.lease_all();
  test::Rows x(1), y(1);
  device::CommandList list;
  list.run(*module->compile({&extents, 1}, {}), arena, {x.view()}, {y.view()});
  REQUIRE(all[0]->turn()->submit(std::move(list)).ok());
  CHECK(f.pool->lease()->stream() == all[1].stream());
  latch.open();
  CHECK(all[0]->synchronize(Deadline::never()).ok());
}

TEST_CASE("64 threads on 31 streams: every submission runs once, in every way to be exhausted") {
  for (const Exhaustion exhaustion : {Exhaustion::share, Exhaustion::wait, Exhaustion::fail}) {
    for (const bool asynchronous : {false, true}) {
      PoolFixture f(exhaustion, 32, asynchronous);
      constexpr int kRounds = 20;
      std::array<uint64_t, 32> submitted{};  // by stream; only a stream's turn keeps each right
      Atomic<uint64_t> done{0}, refused{0};
      run_together(64, [&](int) {
        for (int i = 0; i < kRounds; ++i) {
          auto lease = f.pool->lease();
          if (!lease.ok()) {
            CHECK(lease.status().code() == Code::exhausted);
            refused.add_relaxed(1);
            continue;
          }
          {
            auto turn = (*lease)->turn();
            ++submitted[static_cast<size_t>((*lease)->id().index)];
            REQUIRE(turn->submit({}).ok());
          }
          REQUIRE((*lease)->synchronize(Deadline::never()).ok());
          done.add_relaxed(1);
        }
      });
      uint64_t sum = 0;
      for (const Ref<Stream>& stream : f.roster->living()) {
        CHECK(stream->last_submitted() == submitted[static_cast<size_t>(stream->id().index)]);
        sum += stream->last_submitted();
      }
      CHECK(sum == done.load_relaxed());
      CHECK(done.load_relaxed() + refused.load_relaxed() == 64 * kRounds);
      if (exhaustion != Exhaustion::fail) CHECK(refused.load_relaxed() == 0);
      CHECK(f.pool->stats().lessees == 0);
      CHECK(f.lease_all().size() == 31);
    }
  }
}

TEST_CASE("500 short threads leave no stream leased, and no stream has two owners") {
  PoolFixture f(Exhaustion::wait);
  std::array<Atomic<int>, 32> owners;
  Atomic<uint64_t> shared{0}, done{0};
  for (int wave = 0; wave < 20; ++wave) {
    run_together(25, [&](int) {
      auto lease = f.pool->lease();
      REQUIRE(lease.ok());
      Atomic<int>& owner = owners[static_cast<size_t>((*lease)->id().index)];
      if (owner.add_acq_rel(1) != 0) shared.add_relaxed(1);
      REQUIRE((*lease)->turn()->submit({}).ok());
      owner.sub_acq_rel(1);
      done.add_relaxed(1);
    });
  }
  CHECK(shared.load_relaxed() == 0);
  CHECK(done.load_relaxed() == 500);
  CHECK(f.pool->stats().leased == 0);
  CHECK(f.pool->stats().most_leased <= 25);
}

TEST_CASE("a thread gets the stream that it had last, also when a lower one is free") {
  PoolFixture f(Exhaustion::fail);
  std::optional<StreamLease> first = *f.pool->lease();
  Thread("other", [&] {
    for (int i = 0; i < 3; ++i) CHECK((*f.pool->lease())->id().index == 2);
    first.reset();  // by another thread than its lessee
    CHECK((*f.pool->lease())->id().index == 2);
  }).join();
  Thread("new", [&] { CHECK((*f.pool->lease())->id().index == 1); }).join();
  CHECK((*f.pool->lease())->id().index == 1);
  CHECK(f.device->counts().queues.load_relaxed() == 2);
  CHECK(f.pool->stats().most_leased == 2);
}

TEST_CASE("a thread that takes each lease before it drops the last one uses two streams in turn") {
  PoolFixture f(Exhaustion::fail);
  StreamLease lease;
  for (int i = 0; i < 100; ++i) {
    lease = *f.pool->lease();
    CHECK(lease->id().index == 1 + i % 2);
  }
  CHECK(f.device->counts().queues.load_relaxed() == 2);
}

TEST_CASE("a thread leases its own place of each of two pools") {
  PoolFixture one(Exhaustion::fail), other(Exhaustion::fail);
  const auto taken = *one.pool->lease();
  Thread("both", [&] {
    for (int i = 0; i < 5; ++i) {
      CHECK((*one.pool->lease())->id().index == 2);
      CHECK((*other.pool->lease())->id().index == 1);
    }
  }).join();
}

TEST_CASE("the most streams leased at once are counted, whoever leased them before") {
  PoolFixture f(Exhaustion::fail);
  for (int i = 0; i < 3; ++i) CHECK(f.pool->lease().ok());
  CHECK(f.pool->stats().most_leased == 1);
  {
    const auto all = f.lease_all();
  }
  CHECK(f.pool->stats().most_leased == 31);
  PoolFixture again(Exhaustion::fail, 4);
  {
    const auto two = std::array{*again.pool->lease(), *again.pool->lease()};
  }
  CHECK(again.pool->stats().most_leased == 2);
}

TEST_CASE("eight threads count references to the pool apart, and the last one to go ends it") {
  const auto counts = std::make_shared<test::Counts>();
  {
    const auto device = std::make_shared<TestDevice>(test::TestOptions{}, counts);
    auto roster = std::make_shared<Roster>(device, Clock::real());
    auto pool = *StreamPool::make(roster, {});
    const std::weak_ptr<Roster> kept_by_the_pool = roster;
    std::array<StreamLease, 8> leases;
    for (StreamLease& lease : leases) lease = *pool->lease();
    CHECK(pool.use_count() == 1);  // what the leases count is not this
    roster.reset();
    pool.reset();
    Atomic<int> dropped{0};
    run_together(8, [&](int thread) {
      const StreamLease mine = std::move(leases[static_cast<size_t>(thread)]);
      CHECK_FALSE(kept_by_the_pool.expired());
      dropped.add_relaxed(1);
    });
    CHECK(dropped.load_relaxed() == 8);
    CHECK(kept_by_the_pool.expired());
  }
  CHECK(counts->nothing_lives());
}

TEST_CASE("no stream has two owners, however often they come and go") {
  PoolFixture f(Exhaustion::fail);
  std::array<Atomic<int>, 32> owners;
  Atomic<uint64_t> shared{0};
  run_together(8, [&](int) {
    for (int i = 0; i < 5000; ++i) {
      const auto lease = f.pool->lease();
      if (owners[static_cast<size_t>((*lease)->id().index)].add_acq_rel(1) != 0) shared.add_relaxed(1);
      owners[static_cast<size_t>((*lease)->id().index)].sub_acq_rel(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(f.pool->stats().leased == 0);
  CHECK(f.device->counts().queues.load_relaxed() <= 8);
}

TEST_CASE("a failed stream is discarded with its last lease and replaced by a new one") {
  for (const bool asynchronous : {false, true}) {
    PoolFixture f(Exhaustion::fail, 32, asynchronous);
    std::optional<StreamLease> lease = *f.pool->lease();
    const StreamId failed = (*lease)->id();
    f.break_stream(**lease);
    CHECK(f.roster->synchronize(Deadline::never()).code() == Code::device_lost);
    lease.reset();
    CHECK(f.roster->synchronize(Deadline::never()).ok());
    CHECK(f.pool->stats().discarded == 1);
    lease = *f.pool->lease();
    CHECK((*lease)->id().index == failed.index);
    CHECK((*lease)->id().serial != failed.serial);
    CHECK((*lease)->turn()->submit({}).ok());
  }
}

// What it was given last may be over only then.
TEST_CASE("a stream that fails after its last lease has ended is replaced for the next one") {
  for (const bool asynchronous : {false, true}) {
    PoolFixture f(Exhaustion::fail, 32, asynchronous);
    std::optional<StreamLease> lease = *f.pool->lease();
    const Ref<Stream> failed = lease->stream();
    lease.reset();
    f.break_stream(*failed);
    lease = *f.pool->lease();
    CHECK((*lease)->id().index == failed->id().index);
    CHECK((*lease)->id().serial != failed->id().serial);
    CHECK((*lease)->turn()->submit({}).ok());
    CHECK(f.pool->stats().discarded == 1);
    CHECK(f.roster->synchronize(Deadline::never()).ok());
  }
}

TEST_CASE("a failed default stream is replaced for the next caller") {
  PoolFixture f(Exhaustion::fail);
  const Ref<Stream> failed = *f.pool->default_stream();
  f.break_stream(*failed);
  const Ref<Stream> next = *f.pool->default_stream();
  CHECK(next != failed);
  CHECK(f.roster->synchronize(Deadline::never()).ok());  // though the failed one lives
  CHECK(next->is_default());
  CHECK(next->turn()->submit({}).ok());
}

TEST_CASE("a lease may outlive its pool's runtime") {
  const auto counts = std::make_shared<test::Counts>();
  {
    StreamLease lease;
    {
      const auto device = std::make_shared<TestDevice>(test::TestOptions{.asynchronous = true}, counts);
      const auto roster = std::make_shared<Roster>(device, Clock::real());
      const auto pool = *StreamPool::make(roster, {});
      lease = *pool->lease();
      pool->close();
      roster->close();
    }
    CHECK(lease->turn()->submit({}).status().code() == Code::unavailable);
  }
  CHECK(counts->nothing_lives());
}

}  // namespace heddle::runtime
