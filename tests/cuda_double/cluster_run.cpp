#include "tests/cuda_double/cluster_run.h"

#include <algorithm>
#include <vector>

#include "base/sync.h"
#include "base/thread.h"
#include "tests/cuda_double/touches.h"

namespace heddle::cuda_double {
namespace {

const char* wrong_with(const cuda::HostBlock& block) {
  if (block.overrun()) return "it takes more shared memory than the launch gave";
  if (block.astray()) return "it puts to a block of its cluster that is not open, or beyond shared memory";
  if (block.unsettled()) return "a block of its cluster does not await just what is put to it";
  if (!block.followed_once()) return "a block does not wait, once, for what its kernel follows";
  return nullptr;
}

class ClusterRun final : public cuda::HostCluster {
 public:
  ClusterRun(const ClusterShape& shape, const std::function<void(cuda::HostBlock&)>& kernel)
      : shape_(shape), kernel_(kernel), seats_(static_cast<size_t>(shape.count)) {}

  const char* run() {
    const int first = *turn_.lock() = next();
    {
      std::vector<Thread> threads;
      for (int rank = 0; rank < shape_.count; ++rank) {
        if (rank != first) threads.emplace_back("block", [this, rank] { run_block(rank); });
      }
      run_block(first);
    }
    return wrong_;
  }

  void await_arrivals(cuda::HostBlock& block) override { wait_until(block, Waits::kForArrivals); }
  void await_puts(cuda::HostBlock& block) override { wait_until(block, Waits::kForPuts); }
  cuda::HostBlock* block_of(int rank) override {
    return rank >= 0 && rank < shape_.count ? seats_[static_cast<size_t>(rank)].block : nullptr;
  }

 private:
  enum class Waits { kForNothing, kForArrivals, kForPuts };
  struct Seat {  // all but the turn is its holder's
    cuda::HostBlock* block = nullptr;
    Waits waits = Waits::kForNothing;
    bool over = false;
  };
  static constexpr int kNobody = -1;

  void run_block(int rank) {
    wait_for_turn(rank);
    Seat& seat = seats_[static_cast<size_t>(rank)];
    cuda::HostBlock block(shape_.first + rank, shape_.blocks, shape_.threads, shape_.shared_bytes,
                          shape_.seed + static_cast<uint64_t>(rank), this);
    seat.block = &block;
    watch_block(&block);
    kernel_(block);
    watch_block(nullptr);
    seat.block = nullptr;
    seat.over = true;
    if (wrong_ == nullptr) wrong_ = wrong_with(block);
    pass_on();
  }

  void wait_until(const cuda::HostBlock& block, Waits waits) {
    const auto rank = static_cast<int>(block.index() - shape_.first);
    seats_[static_cast<size_t>(rank)].waits = waits;
    pass_on();
    wait_for_turn(rank);
    seats_[static_cast<size_t>(rank)].waits = Waits::kForNothing;
  }
  bool can_run(const Seat& seat) const {
    if (seat.over) return false;
    if (seat.waits == Waits::kForPuts) return seat.block->has_all_puts();
    return seat.waits == Waits::kForNothing || std::ranges::all_of(seats_, [](const Seat& other) {
             return other.over || (other.block != nullptr && other.block->arrived());
           });
  }
  int next() {
    seed_ = seed_ * 6364136223846793005u + 1442695040888963407u;
    const auto start = static_cast<int>((seed_ >> 33) % seats_.size());
    for (int i = 0; i < shape_.count; ++i) {
      const int rank = (start + i) % shape_.count;
      if (can_run(seats_[static_cast<size_t>(rank)])) return rank;
    }
    return kNobody;
  }
  void pass_on() {
    int rank = next();
    if (rank == kNobody) {
      const auto waits = std::ranges::find_if(seats_, [](const Seat& seat) { return !seat.over; });
      if (waits == seats_.end()) return;
      wrong_ = "a block awaits what the others of its cluster never do";
      rank = static_cast<int>(waits - seats_.begin());
    }
    *turn_.lock() = rank;
    turn_.notify_all();
  }
  void wait_for_turn(int rank) {
    auto turn = turn_.lock();
    turn.wait([&] { return *turn == rank; });
  }

  const ClusterShape shape_;
  const std::function<void(cuda::HostBlock&)>& kernel_;
  std::vector<Seat> seats_;
  uint64_t seed_ = shape_.seed * 0x9e3779b97f4a7c15u;
  const char* wrong_ = nullptr;
  Guarded<int, Rank::kHelpers> turn_{kNobody};
};

}  // namespace

const char* run_cluster(const ClusterShape& shape, const std::function<void(cuda::HostBlock&)>& kernel) {
  if (shape.count > 1) return ClusterRun(shape, kernel).run();
  cuda::HostBlock block(shape.first, shape.blocks, shape.threads, shape.shared_bytes, shape.seed);
  watch_block(&block);
  kernel(block);
  watch_block(nullptr);
  return wrong_with(block);
}

}  // namespace heddle::cuda_double
