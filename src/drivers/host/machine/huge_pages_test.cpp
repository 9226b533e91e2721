#include "drivers/host/machine/huge_pages.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "drivers/host/require_fixture.h"
#include "tests/emulated_fixture.h"

namespace heddle::host {
namespace {

constexpr uint64_t kKiB = 1 << 10;

#if defined(__linux__)
// The sum of a field, in bytes, over the mappings that hold an address in [from, to).
uint64_t smaps(const char* field, const std::byte* from, const std::byte* to) {
  std::ifstream file("/proc/self/smaps");
  uint64_t sum = 0;
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    unsigned long begin = 0, end = 0, kb = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &begin, &end) == 2) {
      inside = begin < reinterpret_cast<uintptr_t>(to) && end > reinterpret_cast<uintptr_t>(from);
    } else if (inside && line.rfind(field, 0) == 0 &&
               std::sscanf(line.c_str() + std::strlen(field), ": %lu kB", &kb) == 1) {
      sum += kb * kKiB;
    }
  }
  return sum;
}

bool kernel_gives_huge_pages() {
  std::ifstream file("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string line;
  std::getline(file, line);
  return line.find('[') != std::string::npos && line.find("[never]") == std::string::npos;
}
#endif

TEST_CASE("pieces are aligned, lie back to back and do not overlap, across spans and beyond a span's size") {
  HugePages pages;
  std::vector<std::pair<Ref<std::byte>, uint64_t>> pieces;
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{64}, 65 * kKiB + 3, 30 * HugePages::kPageBytes,
                               10 * HugePages::kPageBytes, HugePages::kSpanBytes + 5, uint64_t{100}})
    pieces.emplace_back(require(pages.take(bytes)), bytes);
  for (const auto& [piece, bytes] : pieces) {
    CHECK(reinterpret_cast<uintptr_t>(piece.get()) % 64 == 0);
    piece.get()[0] = piece.get()[bytes - 1] = std::byte{1};  // both ends are ours to write
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    for (size_t j = 0; j < pieces.size(); ++j) {
      if (i != j && pieces[i].first <= pieces[j].first)
        CHECK(pieces[i].first.get() + pieces[i].second <= pieces[j].first.get());
    }
  }
  CHECK(reinterpret_cast<uintptr_t>(pieces[0].first.get()) % HugePages::kPageBytes == 0);
  CHECK(pieces[1].first.get() == pieces[0].first.get() + 64);
  CHECK(pieces[2].first.get() == pieces[1].first.get() + 64);
  CHECK(pages.take(UINT64_MAX).status().code() == Code::exhausted);
}

#if defined(__linux__)
TEST_CASE("a piece outlives the HugePages that gave it, alone of its span") {
  Ref<std::byte> kept;
  {
    HugePages pages;
    static_cast<void>(require(pages.take(300 * kKiB)));
    kept = require(pages.take(300 * kKiB));
    std::memset(kept.get(), 7, 300 * kKiB);
  }
  CHECK(std::count(kept.get(), kept.get() + 300 * kKiB, std::byte{7}) == static_cast<int64_t>(300 * kKiB));
  const std::byte* from = kept.get();
  CHECK(smaps("Rss", from, from + 300 * kKiB) >= 300 * kKiB);
  kept.reset();
  CHECK(smaps("Rss", from, from + 300 * kKiB) == 0);
}

TEST_CASE("less than one huge page is resident beyond what was taken, over several spans") {
  HugePages pages;
  std::vector<Ref<std::byte>> pieces;
  uint64_t taken = 0;
  const auto take = [&](uint64_t bytes) {
    pieces.push_back(require(pages.take(bytes)));
    std::memset(pieces.back().get(), 1, bytes);
    taken += bytes;
  };
  for (const uint64_t mib : {37, 40, 1, 40}) take(mib * kKiB * kKiB + 64 * kKiB);  // three spans
  uint64_t resident = 0;
  for (size_t i : {size_t{0}, size_t{1}, size_t{3}})
    resident += smaps("Rss", pieces[i].get(), pieces[i].get() + 1);
  CHECK(resident >= taken);
  CHECK(resident < taken + HugePages::kPageBytes + 4 * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)));
}

TEST_CASE("the pages are huge where the kernel has huge pages" *
          doctest::skip(test::not_emulated("the pages are huge where the kernel has huge pages"))) {
  if (!kernel_gives_huge_pages()) {
    MESSAGE("this kernel gives no huge pages");
    return;
  }
  HugePages pages;
  const uint64_t bytes = 16 * HugePages::kPageBytes;
  const Ref<std::byte> piece = require(pages.take(bytes));
  std::memset(piece.get(), 1, bytes);
  // A fragmented memory may lack some.
  CHECK(smaps("AnonHugePages", piece.get(), piece.get() + bytes) >= bytes / 2);
}

#endif

TEST_CASE("8 threads that take and write at once find their own values afterwards") {
  constexpr int kThreads = 8, kEach = 60;
  constexpr uint64_t kMost = 300 * kKiB;  // 8 * 60 of half that on average: several spans
  HugePages pages;
  std::vector<std::vector<std::pair<Ref<std::byte>, uint64_t>>> pieces(kThreads);
  Atomic<int> taken{0};
  run_together(kThreads, [&](int thread) {
    auto& own = pieces[static_cast<size_t>(thread)];
    for (int i = 0; i < kEach; ++i) {
      const uint64_t bytes =
          1 + (static_cast<uint64_t>(thread) * 7919 + static_cast<uint64_t>(i) * 104729) % kMost;
      auto piece = pages.take(bytes);
      if (!piece.ok()) continue;
      std::memset(piece->get(), thread * 16 + i % 16, bytes);
      own.emplace_back(*std::move(piece), bytes);
      taken.add_relaxed(1);
    }
  });
  CHECK(taken.load_acquire() == kThreads * kEach);
  int64_t wrong = 0;
  for (int thread = 0; thread < kThreads; ++thread) {
    const auto& own = pieces[static_cast<size_t>(thread)];
    for (size_t i = 0; i < own.size(); ++i) {
      const auto value = static_cast<std::byte>(thread * 16 + static_cast<int>(i) % 16);
      const auto bytes = static_cast<int64_t>(own[i].second);
      wrong += bytes - std::count(own[i].first.get(), own[i].first.get() + bytes, value);
    }
  }
  CHECK(wrong == 0);
}

}  // namespace
}  // namespace heddle::host
