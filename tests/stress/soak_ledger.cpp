#include <algorithm>
#include <fstream>

#include "soak_fixture.h"
#include "tests/sanitized_fixture.h"

#if defined(__GLIBC__)
#include <malloc.h>
#include <unistd.h>
#endif

namespace stress {

using heddle::ErrorCode;

void Operation::end(bool is_right) {
  if (ends_.fetch_add(1) > 0) return ledger_->fault(std::string(kind_) + " ended twice");
  if (!is_right) ledger_->fault(std::string(kind_) + " gave a wrong value");
  if (!may_be_right_) ledger_->fault(std::string(kind_) + " ended with a value after it had been cancelled");
  ledger_->end(kind_, "");
}

void Operation::end(ErrorCode code, const std::string& what) {
  if (ends_.fetch_add(1) > 0) return ledger_->fault(std::string(kind_) + " ended twice");
  const std::string error(name(code));
  if ((may_ & code_bit(code)) == 0) ledger_->fault(std::string(kind_) + " ended with " + error + ": " + what);
  ledger_->end(kind_, error);
}

void Operation::end(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const heddle::Error& e) {
    end(e.code(), e.what());
  }
}

std::shared_ptr<Operation> Ledger::ask(const char* kind, Codes may) {
  {
    const std::lock_guard lock(mutex_);
    ++sums_[kind].asked;
    ++open_;
  }
  return std::make_shared<Operation>(shared_from_this(), kind, may);
}

void Ledger::end(const char* kind, const std::string& error) {
  const std::lock_guard lock(mutex_);
  Sum& sum = sums_[kind];
  ++(error.empty() ? sum.right : sum.errors[error]);
  ++ends_;
  if (--open_ == 0) ended_.notify_all();
}

bool Ledger::wait_for_all(std::chrono::seconds at_most) {
  std::unique_lock lock(mutex_);
  return ended_.wait_for(lock, at_most, [&] { return open_ == 0; });
}

uint64_t Ledger::open() const {
  const std::lock_guard lock(mutex_);
  return open_;
}

uint64_t Ledger::ended() const {
  const std::lock_guard lock(mutex_);
  return ends_;
}

std::map<std::string, Ledger::Sum> Ledger::sums() const {
  const std::lock_guard lock(mutex_);
  return sums_;
}

std::vector<std::string> Ledger::faults() const {
  const std::lock_guard lock(mutex_);
  return faults_;
}

void Ledger::fault(const std::string& what) {
  constexpr size_t kMost = 20;
  const std::lock_guard lock(mutex_);
  if (faults_.size() < kMost) faults_.push_back(what);
}

void keep_arenas_few() {
#if defined(__GLIBC__)
  mallopt(M_ARENA_MAX, 16);
#endif
}

Level level_of(const heddle::Device& device) {
  device.synchronize();
  device.empty_cache();
  const heddle::MemoryStats memory = device.stats().memory;
  Level level;
  level.books = memory.allocated + memory.slots + memory.staging;
#if defined(__GLIBC__)
  if (!heddle::test::kSanitized) {  // their allocators keep what was freed
    malloc_trim(0);
    const struct mallinfo2 info = mallinfo2();
    level.heap = info.uordblks + info.hblkhd;
    uint64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    level.rss = resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }
#endif
  return level;
}

void Levels::add(const Level& level, bool is_warm_up) {
  last_[seen_++ % kRecent] = level;
  if (!is_warm_up) return;
  usual_.books = std::max(usual_.books, level.books);
  usual_.heap = std::max(usual_.heap, level.heap);
  usual_.rss = std::max(usual_.rss, level.rss);
}

Level Levels::recent() const {
  Level least = last_[0];
  for (size_t i = 1; i < std::min(seen_, kRecent); ++i) {
    least.books = std::min(least.books, last_[i].books);
    least.heap = std::min(least.heap, last_[i].heap);
    least.rss = std::min(least.rss, last_[i].rss);
  }
  return least;
}

std::string Levels::grown() const {
  const Level now = recent();
  std::string said;
  const auto judge = [&](const char* what, uint64_t usual, uint64_t is, uint64_t bound) {
    if (is <= usual + bound) return;
    said += std::string(said.empty() ? "" : "; ") + what + ": " + std::to_string(is) + " bytes, " +
            std::to_string(usual) + " at most after the warm-up, and " + std::to_string(bound) +
            " more are allowed";
  };
  judge("the runtime's books", usual_.books, now.books, bounds_.books);
  judge("malloc's bytes in use", usual_.heap, now.heap, bounds_.heap);
  judge("resident memory", usual_.rss, now.rss, bounds_.rss);
  return said;
}

}  // namespace stress
