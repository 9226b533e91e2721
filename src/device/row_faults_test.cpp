#include "device/row_faults.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/thread.h"

namespace heddle::device {
namespace {

TEST_CASE("rows are ok until a fault is recorded for them, and keep the first one") {
  RowFaults faults(5);
  CHECK(faults.rows() == 5);
  CHECK_FALSE(faults.any());
  for (int64_t row = 0; row < 5; ++row) CHECK(faults.of(row).ok());
  CHECK(faults.record(2, Status::invalid("index 9")));
  CHECK_FALSE(faults.record(2, Status::invalid("index 8")));
  CHECK(faults.record(4, Status::invalid("index 7")));
  CHECK(faults.any());
  CHECK(faults.count() == 2);
  const char* wanted[] = {"", "", "index 9", "", "index 7"};
  for (int64_t row = 0; row < 5; ++row) {
    CHECK(faults.of(row).message() == wanted[row]);
    CHECK(faults.of(row).code() == (*wanted[row] == 0 ? Code::ok : Code::invalid));
  }
}

TEST_CASE("a run without faults counts no lock") {
  clear_lock_counts();
  set_lock_counting(true);
  const auto taken = [] {
    uint64_t sum = 0;
    for (const LockCounts& each : read_lock_counts()) sum += each.acquisitions;
    return sum;
  };
  RowFaults faults(1000);
  for (int64_t row = 0; row < 1000; ++row) CHECK(faults.of(row).ok());
  CHECK_FALSE(faults.any());
  CHECK(taken() == 0);
  faults.record(1, Status::invalid("index 9"));
  CHECK(taken() == 1);
  set_lock_counting(false);
}

// Each of 4 threads records for the rows it shares with all others and for rows of its own.
TEST_CASE("of several recorders for one row exactly one is told that it was first, and its fault is kept") {
  constexpr int kThreads = 4;
  constexpr int64_t kShared = 64, kOwn = 32, kRows = kShared + kThreads * kOwn + 1;
  RowFaults faults(kRows);
  std::vector<std::vector<int64_t>> first(kThreads);
  Atomic<int> torn{0};
  {
    std::vector<Thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back("recorder", [&, t] {
        const auto record = [&](int64_t row) {
          if (faults.record(row, Status::invalid("row ", row, " by ", t)))
            first[static_cast<size_t>(t)].push_back(row);
          // Whichever thread was first, the row is wrong from now on.
          if (faults.of(row).message().find(text("row ", row, " by ")) != 0) torn.add_relaxed(1);
        };
        for (int64_t i = 0; i < kShared; ++i) record((i + t * kShared / kThreads) % kShared);
        for (int64_t i = 0; i < kOwn; ++i) record(kShared + t * kOwn + i);
      });
    }
  }
  CHECK(torn.load_relaxed() == 0);
  CHECK(faults.count() == kRows - 1);
  CHECK(faults.of(kRows - 1).ok());
  std::vector<int> owners(kRows, 0);
  for (int t = 0; t < kThreads; ++t) {
    for (const int64_t row : first[static_cast<size_t>(t)]) {
      ++owners[static_cast<size_t>(row)];
      CHECK(faults.of(row).message() == text("row ", row, " by ", t));
    }
  }
  for (int64_t row = 0; row + 1 < kRows; ++row) CHECK(owners[static_cast<size_t>(row)] == 1);
}

}  // namespace
}  // namespace heddle::device
