// Who looks how far a GPU is, and who sleeps.
#include "drivers/cuda/watcher.h"

#include <doctest/doctest.h>

#include "base/thread.h"
#include "device/queue.h"

namespace heddle::cuda {
namespace {

// A GPU that is over once it has been looked at so many times.
class Looked final : public Watched {
 public:
  Looked(Ref<Watcher> watcher, device::Completion key) : Watched(std::move(watcher)), completion(key) {}
  void look() override {
    if (looks.add_relaxed(1) + 1 >= over_at.load_relaxed() && !done(1)) advance(1, completion);
  }
  Duration begin_looking() override {
    const Duration granted = Watched::begin_looking();
    return granted > Duration(0) && patient.load_relaxed() ? Duration(std::chrono::minutes(1)) : granted;
  }
  void watch(uint64_t value) override {
    watched.add_relaxed(1);
    Watched::watch(value);
  }
  const device::Completion completion;
  Atomic<int> looks{0}, watched{0}, over_at{1};
  Atomic<bool> patient{false};  // whoever may look has the time to see the end, on a busy machine as well
};

class LookedQueue final : public device::Queue {
 public:
  explicit LookedQueue(const Ref<Watcher>& watcher, int over_at)
      : Queue(std::make_shared<Looked>(watcher, completion())) {
    looked().over_at.store_relaxed(over_at);
  }
  Looked& looked() { return static_cast<Looked&>(*timeline()); }
  Status submit(const device::CommandList&, uint64_t, NoLocksHeld) override { return {}; }
};

struct Watching {
  explicit Watching(int lookers)
      : watcher(std::make_shared<Watcher>(lookers)), thread("watcher", [this] { watcher->run(); }) {}
  ~Watching() { watcher->stop(); }
  const Ref<Watcher> watcher;
  const Thread thread;
};

TEST_CASE("as many as may look see the end themselves; one more sleeps and is woken") {
  const Watching watching(1);
  LookedQueue first(watching.watcher, 20), second(watching.watcher, 20), third(watching.watcher, 20);
  for (LookedQueue* each : {&first, &second, &third}) each->looked().patient.store_relaxed(true);
  CHECK(first.timeline()->wait(1, Deadline::never()).ok());
  CHECK(first.looked().watched.load_relaxed() == 0);
  REQUIRE(watching.watcher->begin_looking() == Watcher::kPatience);  // somebody else looks meanwhile
  CHECK(second.timeline()->wait(1, Deadline::never()).ok());
  CHECK(second.looked().watched.load_relaxed() == 1);
  watching.watcher->end_looking();
  CHECK(third.timeline()->wait(1, Deadline::never()).ok());
  CHECK(third.looked().watched.load_relaxed() == 0);
}

TEST_CASE("who has looked in vain for its time sleeps, and nobody looks where nobody may") {
  const Watching watching(1);
  LookedQueue slow(watching.watcher, INT32_MAX);
  {
    const Thread later("ends it", [&] {
      while (slow.looked().watched.load_relaxed() == 0) give_way();
      slow.looked().over_at.store_relaxed(0);
    });
    CHECK(slow.timeline()->wait(1, Deadline::never()).ok());
  }
  CHECK(slow.looked().watched.load_relaxed() == 1);
  CHECK(watching.watcher->begin_looking() == Watcher::kPatience);  // it has given its place back
  CHECK(Watcher(0).begin_looking() == Duration(0));
}

}  // namespace
}  // namespace heddle::cuda
