// block.h: the block of threads that a kernel is written for, on a GPU and on the host.
//
//   What       A kernel is a struct of plain parameters with a template operator()(Block&): a sequence of
//              phases. each(f) calls f(t) for every thread t of the block, and a barrier follows, so that a
//              phase sees what those before it wrote. shared<T>(n) is memory of the block, Own<T> a value of
//              each thread that lasts from phase to phase; combine_warps(own, f, n) joins those of n threads
//              of a warp, a power of two, so that each of them has the result, without a barrier.
//              each_alone(f) is each(f) without its barrier: of what its phase and those after it, up to the
//              next barrier, read, no other thread writes anything in them.
//   Copies     copy(to, from), within a phase, begins to copy 16 bytes of global memory to shared memory,
//              both at multiples of 16; end_copies(), outside, ends a group of them. await_copies<N>()
//              returns when all threads see all groups but the newest N. Until then `to` may change at any
//              time.
//   Threads    A struct may say `static constexpr int kThreads`: no block of it has more threads, so that
//              each may have more registers.
//   Order      Within a phase the threads have none. HostBlock takes them in an order made of a seed: a
//              kernel whose result depends on it lacks a barrier.
//   Clusters   A struct may say `static constexpr int kCluster`: so many blocks, one behind the other, run
//              beside each other, each with its rank. A block calls arrive(), await() and await_puts() once.
//              arrive(n) opens it to n puts and takes kArriveBytes of shared memory; await() returns when all
//              blocks of the cluster have arrived. From then on put(to, rank, value), within a phase, sends
//              16 bytes to where the block of that rank has what this one has at `to`, which may change at
//              any time until its await_puts(): that returns when all n are there. No block ends before it.
//              Only GPUs of compute capability 9.0 and more have clusters.
//   Follows    In a graph a kernel may begin before the one in front of it has ended. follow() returns when
//              that has, and all before it, and lets the next one begin. A kernel calls it once, before it
//              reads what another kernel writes, and before it writes: start() does, but for a struct that
//              says `static constexpr bool kFollows = true` and calls it itself.
//   Uniform    each(), shared(), end_copies(), await_copies(), arrive(), await(), await_puts(), follow() and
//              the helpers below are called by all threads alike, never inside a phase.
#pragma once

#include "drivers/cuda/kernels/portable.h"

#if !defined(__CUDACC__)
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>
#endif

namespace heddle::cuda {

template <class K>
constexpr int most_threads() {
  if constexpr (requires { K::kThreads; }) {
    return K::kThreads;
  } else {
    return 1024;
  }
}
template <class K>
constexpr int cluster_of() {
  if constexpr (requires { K::kCluster; }) {
    return K::kCluster;
  } else {
    return 1;
  }
}
// Whether every GPU that Heddle takes can run it.
template <class K>
constexpr bool is_everywhere() {
  return !requires { K::kNewer; };
}
// What each block of a launch does.
template <class K, class Block>
HEDDLE_DEVICE void start(const K& kernel, Block& block) {
  if constexpr (!requires { K::kFollows; }) block.follow();
  kernel(block);
}
inline constexpr int kWarp = 32;  // a block has whole ones wherever they are combined
inline constexpr int kPutBytes = 16, kArriveBytes = 16;

#if defined(__CUDACC__)

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define HEDDLE_OF_CLUSTERS(...) __VA_ARGS__
#else
#define HEDDLE_OF_CLUSTERS(...) __trap()
#endif

class GpuBlock {
 public:
  HEDDLE_DEVICE int64_t index() const { return blockIdx.x; }
  HEDDLE_DEVICE int64_t blocks() const { return gridDim.x; }
  HEDDLE_DEVICE int threads() const { return static_cast<int>(blockDim.x); }
  // Instructions of compute capability 9.0; code of older ones is never begun early.
  HEDDLE_DEVICE void follow() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
  }
  template <class F>
  HEDDLE_DEVICE void each(F f) {
    f(static_cast<int>(threadIdx.x));
    __syncthreads();
  }
  template <class F>
  HEDDLE_DEVICE void each_alone(F f) {
    f(static_cast<int>(threadIdx.x));
  }
  template <class T>
  HEDDLE_DEVICE T* shared(int count) {
    extern __shared__ __align__(16) unsigned char pool[];
    T* const at = reinterpret_cast<T*>(pool + used_);
    used_ += (count * static_cast<int>(sizeof(T)) + 15) / 16 * 16;
    return at;
  }
  template <class T>
  class Own {
   public:
    HEDDLE_DEVICE explicit Own(GpuBlock&) {}
    HEDDLE_DEVICE T& operator[](int) { return value_; }

   private:
    T value_;
  };
  template <class T, class Combine>
  HEDDLE_DEVICE void combine_warps(Own<T>& own, Combine combine, int lanes = kWarp) {
    for (int step = 1; step < lanes; step *= 2) {
      const T mine = own[0], other = exchanged(mine, step);
      own[0] = (threadIdx.x & step) == 0 ? combine(mine, other) : combine(other, mine);
    }
  }
  template <class T>
  HEDDLE_DEVICE void copy(T* to, uint64_t from) {
    static_assert(sizeof(T) == 16);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
#else
    *to = *global<const T>(from);
#endif
  }
  HEDDLE_DEVICE void end_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
  }
  template <int kNewest>
  HEDDLE_DEVICE void await_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(kNewest) : "memory");
#endif
    __syncthreads();
  }
  HEDDLE_DEVICE void arrive(int puts) {
    gate_ = static_cast<uint32_t>(__cvta_generic_to_shared(shared<uint64_t>(1)));
    puts_ = puts;
    if (threadIdx.x == 0) {
      HEDDLE_OF_CLUSTERS(asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(gate_) : "memory");
                         asm volatile("fence.mbarrier_init.release.cluster;" :: : "memory"));
    }
    __syncwarp();
    HEDDLE_OF_CLUSTERS(asm volatile("barrier.cluster.arrive.relaxed.aligned;" :: : "memory"));
  }
  // What was put here before it is said how much will be is counted, too: the gate awaits one arrival.
  HEDDLE_DEVICE void await() {
    __syncwarp();
    HEDDLE_OF_CLUSTERS(asm volatile("barrier.cluster.wait.acquire.aligned;" :: : "memory"));
    if (threadIdx.x == 0) {
      HEDDLE_OF_CLUSTERS(asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(gate_),
                                      "r"(puts_ * kPutBytes) : "memory"));
    }
  }
  template <class T>
  HEDDLE_DEVICE void put(T* to, int rank, const T& value) {
    static_assert(sizeof(T) == kPutBytes);
    uint32_t at = static_cast<uint32_t>(__cvta_generic_to_shared(to)), gate = gate_, words[4];
    memcpy(words, &value, sizeof words);
    HEDDLE_OF_CLUSTERS(
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(at) : "r"(at), "r"(rank));
        asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(gate) : "r"(gate), "r"(rank));
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], "
                     "{%1, %2, %3, %4}, [%5];" ::"r"(at),
                     "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(gate) : "memory"));
  }
  HEDDLE_DEVICE void await_puts() {
    HEDDLE_OF_CLUSTERS(
        asm volatile("{ .reg .pred there;\n"
                     "again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 there, [%0], 0;\n"
                     "@!there bra again; }" ::"r"(gate_) : "memory"));
  }

 private:
  template <class T>
  static HEDDLE_DEVICE T exchanged(T mine, int step) {
    if constexpr (std::is_arithmetic_v<T>) {
      return __shfl_xor_sync(0xffffffffu, mine, step);
    } else {
      HEDDLE_UNROLL
      for (auto& each : mine.v) each = __shfl_xor_sync(0xffffffffu, each, step);
      return mine;
    }
  }
  int used_ = 0;
  uint32_t gate_ = 0;  // counts what is put here
  int puts_ = 0;       // how many will be
};

#undef HEDDLE_OF_CLUSTERS

#else

class HostBlock;
class HostCluster {  // whose blocks run one at a time, each until it has to wait
 public:
  virtual void await_arrivals(HostBlock& block) = 0;
  virtual void await_puts(HostBlock& block) = 0;
  virtual HostBlock* block_of(int rank) = 0;  // null: it has not begun, or is over

 protected:
  ~HostCluster() = default;
};

class HostBlock {
 public:
  HostBlock(int64_t index, int64_t blocks, int threads, size_t shared_bytes, uint64_t seed,
            HostCluster* cluster = nullptr)
      : index_(index),
        blocks_(blocks),
        threads_(threads),
        shared_bytes_(shared_bytes),
        seed_(seed),
        cluster_(cluster) {}

  int64_t index() const { return index_; }
  int64_t blocks() const { return blocks_; }
  int threads() const { return threads_; }
  template <class F>
  void each(F f) {
    // An odd step through a power of two comes to every thread once.
    const bool mixes = (threads_ & (threads_ - 1)) == 0;
    stir();
    const int start = mixes ? static_cast<int>(seed_ >> 33) & (threads_ - 1) : 0;
    const int step = mixes ? (static_cast<int>(seed_ >> 45) | 1) & (threads_ - 1) : 1;
    for (int i = 0; i < threads_; ++i) f(mixes ? (start + i * step) & (threads_ - 1) : i);
  }
  template <class F>
  void each_alone(F f) {
    each(f);
  }
  // Each in memory of its own, so that the address sanitizer sees what goes beyond.
  template <class T>
  T* shared(int count) {
    const size_t bytes = (static_cast<size_t>(count) * sizeof(T) + 15) / 16 * 16;
    used_ += bytes;
    overrun_ = overrun_ || used_ > shared_bytes_;
    shared_.push_back({std::make_unique<std::byte[]>(bytes), bytes});
    return reinterpret_cast<T*>(shared_.back().at.get());
  }
  template <class T>
  class Own {
   public:
    explicit Own(HostBlock& block) : values_(static_cast<size_t>(block.threads())) {}
    T& operator[](int thread) { return values_[static_cast<size_t>(thread)]; }

   private:
    std::vector<T> values_;
  };
  template <class T, class Combine>
  void combine_warps(Own<T>& own, Combine combine, int lanes = kWarp) {
    for (int step = 1; step < lanes; step *= 2) {
      for (int t = 0; t < threads_; ++t) {
        if ((t & step) == 0) own[t] = own[t ^ step] = combine(own[t], own[t ^ step]);
      }
    }
  }
  // The seed decides which copies are there at once, and which when they are awaited.
  template <class T>
  void copy(T* to, uint64_t from) {
    static_assert(sizeof(T) == 16);
    ++copied_;
    send(to, global<const T>(from), is_at_once(), copies_.back());
  }
  void end_copies() { copies_.emplace_back(); }
  template <int kNewest>
  void await_copies() {
    while (copies_.size() > kNewest + 1) {
      for (const Copy& each : copies_.front()) land(each);
      copies_.erase(copies_.begin());
    }
  }
  void arrive(int puts) {
    shared<std::byte>(kArriveBytes);
    ++arrivals_;
    puts_ = puts;
  }
  void await() {
    if (cluster_ != nullptr) cluster_->await_arrivals(*this);
  }
  // As copies; the seed is the sender's.
  template <class T>
  void put(T* to, int rank, const T& value) {
    static_assert(sizeof(T) == kPutBytes);
    HostBlock* const other = cluster_ == nullptr ? nullptr : cluster_->block_of(rank);
    const bool at_once = is_at_once();
    for (size_t i = 0; i < shared_.size(); ++i) {
      const auto offset = reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(shared_[i].at.get());
      if (offset >= shared_[i].bytes) continue;
      astray_ = astray_ || other == nullptr || other->arrivals_ == 0 || i >= other->shared_.size();
      if (!astray_) other->receive(other->shared_[i].at.get() + offset, &value, at_once);
      return;
    }
    astray_ = true;
  }
  void await_puts() {
    if (cluster_ != nullptr) cluster_->await_puts(*this);
    for (const Copy& each : coming_) land(each);
    coming_.clear();
    awaited_puts_ = true;
  }
  void follow() { ++follows_; }
  int64_t copied() const { return copied_; }  // how many copies it began
  bool arrived() const { return arrivals_ > 0; }
  bool has_all_puts() const { return received_ >= puts_; }
  bool followed_once() const { return follows_ == 1; }
  bool overrun() const { return overrun_; }  // it took more shared memory than the launch gave
  bool astray() const { return astray_; }    // it put to a block that is not open, or to no shared memory
  // At its end: it was sent what it did not expect or await, or arrived more than once.
  bool unsettled() const { return arrivals_ > 1 || received_ != puts_ || (arrivals_ > 0 && !awaited_puts_); }

 private:
  struct Shared {
    std::unique_ptr<std::byte[]> at;
    size_t bytes;
  };
  struct Copy {
    void* to;
    std::byte bytes[16];
  };
  void stir() { seed_ = seed_ * 6364136223846793005u + 1442695040888963407u; }
  bool is_at_once() {
    stir();
    return (seed_ >> 33) % 2 == 0;
  }
  static void send(void* to, const void* from, bool at_once, std::vector<Copy>& later) {
    Copy copy{to, {}};
    std::memcpy(copy.bytes, from, sizeof copy.bytes);
    if (at_once) return land(copy);
    later.push_back(copy);
  }
  static void land(const Copy& copy) { std::memcpy(copy.to, copy.bytes, sizeof copy.bytes); }
  void receive(void* to, const void* from, bool at_once) {
    ++received_;
    send(to, from, at_once, coming_);
  }
  int64_t index_, blocks_, copied_ = 0;
  int threads_;
  size_t shared_bytes_, used_ = 0;
  uint64_t seed_;
  HostCluster* cluster_;
  int arrivals_ = 0, puts_ = 0, received_ = 0, follows_ = 0;
  bool awaited_puts_ = false, overrun_ = false, astray_ = false;
  std::vector<Shared> shared_;
  std::vector<std::vector<Copy>> copies_ = std::vector<std::vector<Copy>>(1);  // the last group goes on
  std::vector<Copy> coming_;
};

#endif

// How many of its blocks a multiprocessor has registers for; 0: as it comes.
template <class Kernel>
constexpr int blocks_at_once() {
  if constexpr (requires { Kernel::kBlocksAtOnce; }) {
    return Kernel::kBlocksAtOnce;
  } else {
    return 0;
  }
}

// f(i) for every i below `count`, each by one thread of one block.
template <class Block, class F>
HEDDLE_DEVICE void each_of(Block& block, int64_t count, F f) {
  block.each([&](int thread) {
    const int64_t step = block.blocks() * block.threads();
    for (int64_t i = block.index() * block.threads() + thread; i < count; i += step) f(i);
  });
}

// Combines what the threads hold in `values`, one each, in one fixed tree; the result is in values[0].
// The number of threads is a power of two.
template <class Block, class T, class Combine>
HEDDLE_DEVICE void combine_all(Block& block, T* values, Combine combine) {
  for (int half = block.threads() / 2; half > 0; half /= 2) {
    block.each([&](int thread) {
      if (thread < half) values[thread] = combine(values[thread], values[thread + half]);
    });
  }
}

// Combines what the threads of a team hold: `lanes` of them in a row, a power of two. Each has the result,
// which does not depend on how many teams a block has. `words`: one for each warp of the block.
template <class Block, class T, class Combine>
HEDDLE_DEVICE void combine_teams(Block& block, typename Block::template Own<T>& own, T* words, int lanes,
                                 Combine combine) {
  block.combine_warps(own, combine, lanes < kWarp ? lanes : kWarp);
  if (lanes <= kWarp) return;
  block.each([&](int thread) {
    if (thread % kWarp == 0) words[thread / kWarp] = own[thread];
  });
  block.each([&](int thread) {
    const T* const first = words + thread / lanes * (lanes / kWarp);
    T all = first[0];
    for (int i = 1; i < lanes / kWarp; ++i) all = combine(all, first[i]);
    own[thread] = all;
  });
}

}  // namespace heddle::cuda
