// Question  What does it cost a thread to lease a stream and return it, alone and beside seven others?
// Peer      The obvious pool: a list of free streams behind a lock.
// Read as   processor time per lease and return. The bars are 50 ns on one thread, and with eight 300 ns
//           and a quarter of what lock and list take. A ratio over 1 means that a place of each thread's own
//           beats the lock.
#include <array>
#include <vector>

#include "bench/base/rounds.h"
#include "runtime/streams/stream_pool.h"
#include "runtime/test_device_fixture.h"

namespace heddle::bench {
namespace {

constexpr uint64_t kLeases = 200'000;
constexpr int kRounds = 11;

struct LockedPool {
  Guarded<std::vector<Ref<runtime::Stream>>, Rank::kPool> free;
};

struct alignas(64) OnALineOfItsOwn {
  Atomic<int> threads{0};
};

int run(int argc, char** argv) {
  const auto device = std::make_shared<runtime::test::TestDevice>();
  const auto roster = std::make_shared<runtime::Roster>(device, Clock::real());
  const auto pool = *runtime::StreamPool::make(roster, {});
  LockedPool locked;
  for (int i = 1; i < 32; ++i) locked.free.lock()->push_back(*roster->make(i));

  // An owner that finds itself beside another, or a stream that is not there, is a wrong answer.
  std::array<OnALineOfItsOwn, 32> owners;
  const auto use = [&](const runtime::Stream& stream) -> uint64_t {
    Atomic<int>& owner = owners[static_cast<size_t>(stream.id().index)].threads;
    const bool alone = owner.load_relaxed() == 0;
    owner.store_relaxed(1);
    owner.store_relaxed(0);
    return alone ? 1 : 0;
  };
  const auto lease = [&](int) {
    uint64_t right = 0;
    for (uint64_t i = 0; i < kLeases; ++i) {
      const auto mine = pool->lease();
      right += use(**mine);
    }
    return right;
  };
  const auto take = [&](int) {
    uint64_t right = 0;
    for (uint64_t i = 0; i < kLeases; ++i) {
      Ref<runtime::Stream> mine;
      {
        auto free = locked.free.lock();
        mine = std::move(free->back());
        free->pop_back();
      }
      right += use(*mine);
      locked.free.lock()->push_back(std::move(mine));
    }
    return right;
  };

  std::vector<Case> cases;
  for (const int threads : {1, 8}) {
    cases.push_back({"StreamPool lease + return", threads, kLeases, lease});
    cases.push_back({"lock + list, take + put back", threads, kLeases, take});
  }
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  std::printf("\nlock + list / StreamPool (over 1: the StreamPool is faster)\n");
  for (size_t i = 0; i < figures.size(); i += 2) print_ratio(figures[i], figures[i + 1]);
  write_json(argc, argv, "stream_lease", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
