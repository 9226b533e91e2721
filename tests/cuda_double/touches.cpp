#include "tests/cuda_double/touches.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "drivers/cuda/kernels/portable.h"
#include "tests/cuda_double/graph_double.h"
#include "tests/cuda_double/work_order.h"

namespace heddle::cuda_double {
namespace {

constexpr uint64_t kLook = 16;  // bytes that are as they were allocated by no chance

struct GraphUnderWay {
  bool runs = false;
  std::vector<uint64_t> written;  // by its kernels: ends of allocations
};
thread_local GraphUnderWay graph;
// As on_touch (portable.h): blocks that one thread runs are those of several for the thread sanitizer.
thread_local constinit const cuda::HostBlock* block_of_thread = nullptr;
bool has_followed() {
  const cuda::HostBlock* const block = __atomic_load_n(&block_of_thread, __ATOMIC_RELAXED);
  return block == nullptr || block->followed_once();
}

struct Watched {
  static constexpr size_t kSlots = 32;
  static constexpr int kMost = 24;  // kernels have fewer operands; some make an address for each element
  static constexpr int kMostEarly = 4096;  // all of it: a product's columns come before its rows
  const char* kernel;
  int device;
  std::array<int, 3> left;  // what is looked at still, before it waits for those in front, then reads, writes
  std::array<uint64_t, kSlots> seen;  // by address: whoever comes with another takes its place
};
thread_local constinit Watched watched{};

Guarded<std::set<std::string_view>, Rank::kTrace>& at_the_host() {
  static auto& kernels =
      *new Guarded<std::set<std::string_view>, Rank::kTrace>;  // threads may outlive statics
  return kernels;
}

void tell_touches_to(cuda::OnTouch whom) { __atomic_store_n(&cuda::on_touch, whom, __ATOMIC_RELAXED); }

// Until it waits for them, those in front of it are not over.
void check_early(uint64_t allocation, bool writes) {
  if (!graph.runs) return;
  const bool known = std::ranges::find(graph.written, allocation) != graph.written.end();
  if ((writes || known) && !has_followed())
    stop(watched.kernel, "the kernel touches what those in front of it write, and has not waited for them");
  if (writes && !known) graph.written.push_back(allocation);
}

void check(uint64_t address, uint64_t bytes, bool writes) {
  const Block block = block_at(address);
  const uint64_t at = address & ~cuda::kDoubleMark;
  if (block.device == kNowhere || at + bytes > block.end)
    stop(watched.kernel, "the kernel touches memory that is not allocated, or of the host and not pinned");
  if (block.device != kPinned && block.device != watched.device)
    stop(watched.kernel, "the kernel touches memory of another device");
  if (block.device == kPinned) at_the_host().lock()->insert(watched.kernel);
  const uint64_t look = std::min(kLook, block.end - at);
  if (!writes && look >= 4 && at % 2 == 0 && is_unwritten(reinterpret_cast<const std::byte*>(at), look))
    stop(watched.kernel, "the kernel reads memory that nothing has written");
  check_early(block.end, writes);
  WorkOrder::of_thread()->touch(address, bytes, writes, watched.kernel);
}

void note_touch(uint64_t address, uint64_t bytes, bool writes) {
  int& left = watched.left[has_followed() ? writes ? 2 : 1 : 0];
  if (left == 0) return;
  const uint64_t key = address * 2 + (writes ? 1 : 0);
  uint64_t& seen = watched.seen[(address ^ (address >> 8)) / 4 % Watched::kSlots];
  if (address == 0 || seen == key) return;
  seen = key;
  --left;
  check(address, bytes, writes);
}

void note(cuda::Address at, uint64_t bytes, bool writes, const char* what) {
  if (bytes > 0) WorkOrder::of_thread()->touch(at, bytes, writes, what);
}

}  // namespace

const std::byte* to_read(cuda::Address at, uint64_t bytes, const char* what) {
  const std::byte* const host = host_of(at, bytes, what);
  note(at, bytes, false, what);
  return host;
}

std::byte* to_write(cuda::Address at, uint64_t bytes, const char* what) {
  std::byte* const host = host_of(at, bytes, what);
  note(at, bytes, true, what);
  return host;
}

void require_written(const std::byte* at, uint64_t bytes, const char* what) {
  const auto skipped = (kLook - reinterpret_cast<uint64_t>(at) % kLook) % kLook;
  const uint64_t piece = std::min(kLook, bytes);
  for (uint64_t i = bytes <= skipped + kLook ? 0 : skipped; piece >= 4 && i + piece <= bytes; i += kLook) {
    if (is_unwritten(at + i, piece)) stop(what, "memory that nothing has written");
  }
}

namespace {

// Before the host can see it.
void show_host_what_is_over() {
  WorkOrder::of_thread()->show_host();
  end_graph_of_thread();
}

}  // namespace

std::set<std::string_view> take_kernels_at_the_host() { return std::exchange(*at_the_host().lock(), {}); }

KernelWatch::KernelWatch(const char* kernel, int device) {
  cuda::on_tell = show_host_what_is_over;
  const int early = graph.runs ? Watched::kMostEarly : Watched::kMost;
  watched = {kernel, device, {early, Watched::kMost, Watched::kMost}, {}};
  tell_touches_to(note_touch);
}
KernelWatch::~KernelWatch() {
  tell_touches_to(nullptr);
  cuda::on_tell = nullptr;
}

void watch_block(const cuda::HostBlock* block) {
  __atomic_store_n(&block_of_thread, block, __ATOMIC_RELAXED);
}

void begin_graph() { graph = {true, {}}; }
void end_graph() { graph = {}; }

}  // namespace heddle::cuda_double
