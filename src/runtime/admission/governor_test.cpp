#include "runtime/admission/governor.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/thread.h"
#include "runtime/registry.h"

namespace heddle::runtime {

namespace {

constexpr ModelId kHeavy{1}, kLight{2}, kOther{3};

void until_waiting(const Governor& governor, int waiting) {
  while (governor.stats().waiting < waiting) give_way();
}

}  // namespace

TEST_CASE("permits are the lanes' numbers, and no more are out than the limit") {
  const auto governor = Governor::make("d", 3);
  std::vector<Permit> permits;
  for (int i = 0; i < 3; ++i) permits.push_back(std::move(*governor->enter(kHeavy, Deadline::never())));
  CHECK(permits[0].lane() + permits[1].lane() + permits[2].lane() == 3);
  CHECK(governor->stats().in_flight == 3);
  const auto late = governor->enter(kHeavy, Deadline::at(TimePoint()));
  CHECK(late.status().code() == Code::deadline);
  CHECK(late.status().message().find("'d'") != std::string::npos);
  permits.clear();
  CHECK(governor->stats().in_flight == 0);
  CHECK(governor->stats().waiting == 0);
  CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).ok());
  CHECK(governor->stats().entered == 4);
}

TEST_CASE("limits are clamped to the most lanes there are") {
  CHECK(Governor::make("d", 2000)->limit() == 1024);
  CHECK(Governor::make("d", -1)->limit() == 0);
}

TEST_CASE("a returned permit is handed to the first parked caller, in order, and no caller overtakes") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  std::vector<int> order;  // written by the holder of the only permit
  std::vector<Thread> callers;
  for (int i = 0; i < 6; ++i) {
    callers.emplace_back("caller", [&, i] {
      const auto permit = governor->enter(kHeavy, Deadline::never());
      REQUIRE(permit.ok());
      order.push_back(i);
    });
    until_waiting(*governor, i + 1);
  }
  running.reset();
  callers.clear();
  CHECK(order == std::vector<int>{0, 1, 2, 3, 4, 5});
  CHECK(governor->stats().parked == 6);
  CHECK(governor->stats().waiting == 0);
}

TEST_CASE("a light model's caller waits for at most one running call of a heavy model") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  std::vector<ModelId> order;
  std::vector<Thread> callers;
  const auto caller = [&](ModelId model, int waiting) {
    callers.emplace_back("caller", [&, model] {
      const auto permit = governor->enter(model, Deadline::never());
      REQUIRE(permit.ok());
      order.push_back(model);
    });
    until_waiting(*governor, waiting);
  };
  for (int i = 0; i < 8; ++i) caller(kHeavy, i + 1);
  caller(kLight, 9);
  running.reset();
  callers.clear();
  REQUIRE(order.size() == 9);
  CHECK(order[0] == kLight);
}

TEST_CASE("models take turns, whatever their numbers of callers") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kOther, Deadline::never()));
  std::vector<ModelId> order;
  std::vector<Thread> callers;
  int waiting = 0;
  for (const auto& [model, count] : {std::pair{kHeavy, 9}, std::pair{kLight, 3}, std::pair{kOther, 3}}) {
    for (int i = 0; i < count; ++i) {
      callers.emplace_back("caller", [&, model = model] {
        const auto permit = governor->enter(model, Deadline::never());
        REQUIRE(permit.ok());
        order.push_back(model);
      });
      until_waiting(*governor, ++waiting);
    }
  }
  running.reset();
  callers.clear();
  REQUIRE(order.size() == 15);
  for (size_t round = 0; round < 3; ++round) {
    const std::set<ModelId> served(order.begin() + static_cast<long>(round * 3),
                                   order.begin() + static_cast<long>(round * 3 + 3));
    CHECK(served.size() == 3);
  }
}

TEST_CASE("a caller whose deadline passes leaves the queue and takes no permit with it") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  Atomic<int> late{0}, served{0};
  {
    std::vector<Thread> callers;
    for (int i = 0; i < 16; ++i) {
      callers.emplace_back("caller", [&, i] {
        const auto permit =
            governor->enter(i % 2 == 0 ? kHeavy : kLight, Deadline::in(std::chrono::milliseconds(i % 4)));
        (permit.ok() ? served : late).add_relaxed(1);
      });
    }
    while (late.load_relaxed() < 8) give_way();
    running.reset();
  }
  CHECK(late.load_relaxed() + served.load_relaxed() == 16);
  CHECK(governor->stats().in_flight == 0);
  CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).ok());
}

TEST_CASE("callers parked for a closed model are refused, the others stay") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  Atomic<int> refused{0}, served{0};
  std::vector<Thread> callers;
  for (int i = 0; i < 8; ++i) {
    callers.emplace_back("caller", [&, i] {
      const auto permit = governor->enter(i % 2 == 0 ? kHeavy : kLight, Deadline::never());
      if (permit.ok()) {
        served.add_relaxed(1);
      } else if (permit.status().code() == Code::unavailable) {
        refused.add_relaxed(1);
      }
    });
  }
  until_waiting(*governor, 8);
  governor->refuse_parked(kLight, Status::unavailable("closed"));
  while (refused.load_relaxed() < 4) give_way();
  CHECK(governor->stats().waiting == 4);
  running.reset();
  callers.clear();
  CHECK(served.load_relaxed() == 4);
  CHECK(refused.load_relaxed() == 4);
  running = std::move(*governor->enter(kHeavy, Deadline::never()));
  CHECK(governor->enter(kLight, Deadline::never()).status().code() == Code::unavailable);  // came too late
  CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).status().code() == Code::deadline);
}

TEST_CASE("a model that is forgotten leaves no refusal behind, and one that is waited for is not forgotten") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  const auto code = [&](ModelId model) {
    return governor->enter(model, Deadline::at(TimePoint())).status().code();
  };
  governor->refuse_parked(kLight, Status::unavailable("closed"));
  CHECK(code(kLight) == Code::unavailable);
  CHECK(code(kOther) == Code::deadline);
  governor->forget(kOther);
  CHECK(code(kLight) == Code::unavailable);
  governor->forget(kLight);
  CHECK(code(kLight) == Code::deadline);

  Status late = Status::internal("never came");
  {
    const Thread caller("caller", [&] { late = governor->enter(kLight, Deadline::never()).status(); });
    until_waiting(*governor, 1);
    governor->forget(kLight);
    CHECK(governor->stats().waiting == 1);
    running.reset();
  }
  CHECK(late.ok());
}

TEST_CASE("permits are exclusive under contention, and every enter is answered") {
  constexpr int kThreads = 8, kCalls = 2000, kLimit = 3;
  const auto governor = Governor::make("d", kLimit);
  std::array<Atomic<int>, kLimit> owners;
  Atomic<uint64_t> shared{0}, done{0};
  run_together(kThreads, [&](int thread) {
    for (int i = 0; i < kCalls; ++i) {
      auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + thread % 3)}, Deadline::never());
      if (!permit.ok()) continue;
      Atomic<int>& owner = owners[static_cast<size_t>(permit->lane())];
      if (owner.add_acq_rel(1) != 0) shared.add_relaxed(1);
      if (i % 16 == 0) give_way();
      owner.sub_acq_rel(1);
      done.add_relaxed(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(done.load_relaxed() == kThreads * kCalls);
  const auto stats = governor->stats();
  CHECK(stats.entered == kThreads * kCalls);
  CHECK(stats.in_flight == 0);
  CHECK(stats.waiting == 0);
}

TEST_CASE("who visits free lanes, or forgets a model, does so beside callers that park, and none is lost") {
  constexpr int kThreads = 6, kCalls = 2000, kLimit = 2;
  const auto governor = Governor::make("d", kLimit);
  std::array<Atomic<int>, kLimit> owners;
  Atomic<int> shared{0}, done{0};
  const auto own = [&](int lane) {
    Atomic<int>& owner = owners[static_cast<size_t>(lane)];
    if (owner.add_acq_rel(1) != 0) shared.add_relaxed(1);
    give_way();
    owner.sub_acq_rel(1);
  };
  run_together(kThreads + 1, [&](int thread) {
    if (thread == kThreads) {
      while (done.load_acquire() < kThreads * kCalls) {
        governor->with_free_lanes(own);
        governor->forget(ModelId{1});  // unless its callers wait
        give_way();
      }
      return;
    }
    for (int i = 0; i < kCalls; ++i) {
      const auto permit = governor->enter(ModelId{1}, Deadline::never());
      if (permit.ok()) own(permit->lane());
      done.add_release(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(governor->stats().entered == kThreads * kCalls);
  CHECK(governor->stats().waiting == 0);
}

TEST_CASE("an exclusive hold starts when nothing is in flight, and holds everything off until it ends") {
  const auto governor = Governor::make("d", 4);
  Atomic<int> inside{0};
  Atomic<uint64_t> overlaps{0}, calls{0}, holds{0};
  run_together(8, [&](int thread) {
    for (int i = 0; i < 300; ++i) {
      if (thread < 2) {
        auto hold = governor->exclusive(Deadline::never());
        REQUIRE(hold.ok());
        if (inside.load_acquire() != 0) overlaps.add_relaxed(1);
        inside.add_acq_rel(100);
        if (i % 8 == 0) give_way();
        if (inside.sub_acq_rel(100) != 100) overlaps.add_relaxed(1);
        holds.add_relaxed(1);
      } else {
        auto permit = governor->enter(kHeavy, Deadline::never());
        REQUIRE(permit.ok());
        if (inside.add_acq_rel(1) >= 100) overlaps.add_relaxed(1);
        inside.sub_acq_rel(1);
        calls.add_relaxed(1);
      }
    }
  });
  CHECK(overlaps.load_relaxed() == 0);
  CHECK(calls.load_relaxed() == 6 * 300);
  CHECK(holds.load_relaxed() == 2 * 300);
  CHECK(governor->stats().exclusives == 600);
}

TEST_CASE(
    "a thread that holds the device exclusively is told so when it calls again, instead of waiting for "
    "itself") {
  const auto governor = Governor::make("d", 2);
  {
    const auto hold = governor->exclusive(Deadline::never());
    REQUIRE(hold.ok());
    CHECK(governor->exclusive(Deadline::never()).status().code() == Code::invalid);
    CHECK(governor->enter(kHeavy, Deadline::never()).status().code() == Code::invalid);
    const Thread other("other", [&] {
      CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).status().code() == Code::deadline);
      CHECK(governor->exclusive(Deadline::at(TimePoint())).status().code() == Code::deadline);
    });
  }
  CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).ok());
}

TEST_CASE("an exclusive caller whose deadline passes gives the lanes back that it had collected") {
  const auto governor = Governor::make("d", 2);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  CHECK(governor->exclusive(Deadline::in(std::chrono::milliseconds(2))).status().code() == Code::deadline);
  CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).ok());
  running.reset();
  CHECK(governor->exclusive(Deadline::never()).ok());
  CHECK(governor->stats().in_flight == 0);
}

TEST_CASE("an exclusive hold sends callers that step aside away, also out of the queue; others stay parked") {
  const auto governor = Governor::make("d", 1);
  std::optional<Permit> running = std::move(*governor->enter(kHeavy, Deadline::never()));
  Atomic<int> sent_away{0}, served{0};
  const auto enter = [&](int thread) {
    const auto during = thread % 2 == 0 ? DuringHold::step_aside : DuringHold::wait;
    const auto permit = governor->enter(thread < 4 ? kHeavy : kLight, Deadline::never(), during);
    REQUIRE(permit.ok());
    CHECK((*permit || during == DuringHold::step_aside));
    (*permit ? served : sent_away).add_relaxed(1);
  };
  std::vector<Thread> callers;
  for (int i = 0; i < 8; ++i) callers.emplace_back("caller", [&, i] { enter(i); });
  until_waiting(*governor, 8);
  Thread runner("runner", [&] {
    until_waiting(*governor, 9);
    CHECK(sent_away.load_relaxed() == 0);  // the hold has not begun: its lane is still in use
    running.reset();
  });
  std::optional<Exclusive> hold = std::move(*governor->exclusive(Deadline::never()));
  runner.join();
  while (sent_away.load_acquire() < 4) give_way();
  CHECK(governor->stats().waiting == 4);
  Thread("late", [&] { enter(0); }).join();
  CHECK(sent_away.load_relaxed() == 5);
  CHECK(served.load_relaxed() == 0);
  hold.reset();
  callers.clear();
  CHECK(served.load_relaxed() == 4);
  CHECK(governor->stats().entered == 5);
  CHECK(governor->stats().waiting == 0);
  CHECK(governor->stats().in_flight == 0);
}

TEST_CASE("a declined permit goes to the next caller and counts as no call") {
  const auto governor = Governor::make("d", 1);
  Permit permit = std::move(*governor->enter(kHeavy, Deadline::never()));
  const Thread next("next", [&] { CHECK(governor->enter(kLight, Deadline::never()).ok()); });
  until_waiting(*governor, 1);
  permit.decline();
  CHECK_FALSE(permit);
  while (governor->stats().in_flight != 0 || governor->stats().waiting != 0) give_way();
  CHECK(governor->stats().entered == 1);
}

TEST_CASE("a hold that outlives its thread passes to no other: later threads wait for it") {
  const auto governor = Governor::make("d", 1);
  std::optional<Exclusive> hold;
  Thread("taker", [&] { hold.emplace(std::move(*governor->exclusive(Deadline::never()))); }).join();
  for (int i = 0; i < 8; ++i) {  // the system gives a dead thread's memory to the next
    Thread("later", [&] {
      CHECK(governor->enter(kHeavy, Deadline::at(TimePoint())).status().code() == Code::deadline);
      CHECK(governor->exclusive(Deadline::at(TimePoint())).status().code() == Code::deadline);
    }).join();
  }
  hold.reset();
  CHECK(governor->enter(kHeavy, Deadline::never()).ok());
}

TEST_CASE("parked calls run between two exclusive holds") {
  const auto governor = Governor::make("d", 1);
  std::optional<Exclusive> hold = std::move(*governor->exclusive(Deadline::never()));
  std::vector<char> order;
  std::vector<Thread> threads;
  threads.emplace_back("holder", [&] {
    const auto next = governor->exclusive(Deadline::never());
    REQUIRE(next.ok());
    order.push_back('x');
  });
  until_waiting(*governor, 1);
  threads.emplace_back("caller", [&] {
    const auto permit = governor->enter(kHeavy, Deadline::never());
    REQUIRE(permit.ok());
    order.push_back('c');
  });
  until_waiting(*governor, 2);
  hold.reset();
  threads.clear();
  CHECK(order == std::vector<char>{'c', 'x'});
}

TEST_CASE("threads that ask for a device's governor at once have the same one") {
  constexpr int kThreads = 4, kDevices = 100;
  std::vector<std::array<Ref<Governor>, kThreads>> found(kDevices);
  run_together(kThreads, [&](int thread) {
    for (int device = 0; device < kDevices; ++device) {
      auto governor = registry::governor(text("at-once-", device), 0);
      if (governor.ok())
        found[static_cast<size_t>(device)][static_cast<size_t>(thread)] = *std::move(governor);
    }
  });
  for (const auto& each : found) {
    CHECK(each[0] != nullptr);
    CHECK(std::ranges::count(each, each[0]) == kThreads);
  }
}

TEST_CASE("all callers of a device's governor share it while any of them holds it") {
  auto first = std::move(*registry::governor("registry-test", 0));
  CHECK(first->limit() == 0);
  {
    const auto hold = first->exclusive(Deadline::never());  // a library from outside, before any runtime
    REQUIRE(hold.ok());
    auto runtime = std::move(*registry::governor("registry-test", 5));
    CHECK(runtime == first);
    CHECK(runtime->limit() == 5);
    const Thread other("other", [&] {
      CHECK(runtime->enter(kHeavy, Deadline::at(TimePoint())).status().code() == Code::deadline);
    });
  }
  CHECK(std::move(*registry::governor("registry-test", 7))->limit() == 5);
  CHECK(first->enter(kHeavy, Deadline::at(TimePoint())).ok());
  first = nullptr;
  CHECK(std::move(*registry::governor("registry-test", 7))->limit() == 7);
}

}  // namespace heddle::runtime
