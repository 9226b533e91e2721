#include "base/weak_memory.h"

#if defined(HEDDLE_SIM)

#include <algorithm>

namespace heddle {

namespace {

void join_numbers(std::vector<uint32_t>& mine, const std::vector<uint32_t>& other) {
  if (mine.size() < other.size()) mine.resize(other.size());
  for (size_t i = 0; i < other.size(); ++i) mine[i] = std::max(mine[i], other[i]);
}

bool acquires(std::memory_order order) {
  return order == std::memory_order_acquire || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

bool releases(std::memory_order order) {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

}  // namespace

void WeakMemory::View::join(const View& other) {
  join_numbers(oldest, other.oldest);
  join_numbers(clock, other.clock);
}

uint32_t& WeakMemory::at(std::vector<uint32_t>& numbers, uint32_t index) {
  if (numbers.size() <= index) numbers.resize(index + 1);
  return numbers[index];
}

void WeakMemory::start(uint32_t parent, uint32_t child) {
  if (parent == child) return;
  ++at(views_[parent].clock, parent);
  views_[child].join(views_[parent]);
}

void WeakMemory::join(uint32_t parent, uint32_t child) { views_[parent].join(views_[child]); }

void WeakMemory::make(const void* word) {
  const uint32_t made_at = moment();
  words_.insert_or_assign(word, Word{++words_made_, {}, 0, current_, made_at});
}

WeakMemory::Word& WeakMemory::word_at(const void* address, uint64_t newest) {
  Word& word = words_.try_emplace(address, Word{0, {}, 0, 0, 0}).first->second;
  if (word.number == 0) word.number = ++words_made_;
  if (word.maker != 0 && !saw(word.maker, word.made_at))
    fail_("an atomic is used beside its construction: nothing orders the two");
  if (word.values.empty()) word.values.push_back({newest, nullptr});
  return word;
}

// The index of the oldest value that a load may find.
uint32_t WeakMemory::oldest_for(Word& word, std::memory_order order) {
  const uint32_t oldest = at(mine().oldest, word.number);
  return order == std::memory_order_seq_cst ? std::max(oldest, word.seen_in_order) : oldest;
}

void WeakMemory::find(Word& word, uint32_t index, std::memory_order order) {
  at(mine().oldest, word.number) = index;
  const Value& found = word.values[index];
  if (acquires(order) && found.left != nullptr) mine().join(*found.left);
  if (order == std::memory_order_seq_cst) word.seen_in_order = std::max(word.seen_in_order, index);
}

void WeakMemory::append(Word& word, uint64_t bits, std::memory_order order, bool goes_on) {
  moment();
  const std::shared_ptr<const View> before = goes_on ? word.values.back().left : nullptr;
  const auto index = static_cast<uint32_t>(word.values.size());
  at(mine().oldest, word.number) = index;
  std::shared_ptr<const View> left = before;
  if (releases(order)) {
    auto own = std::make_shared<View>(mine());
    if (before != nullptr) own->join(*before);
    left = std::move(own);
    moment();
  }
  word.values.push_back({bits, std::move(left)});
  if (order == std::memory_order_seq_cst) word.seen_in_order = index;
}

uint64_t WeakMemory::load(const void* address, uint64_t newest, std::memory_order order) {
  Word& word = word_at(address, newest);
  const auto last = static_cast<uint32_t>(word.values.size() - 1);
  const auto older = static_cast<uint32_t>(strategy_.stale(last - oldest_for(word, order) + 1));
  if (older != 0) ++stale_reads_;
  find(word, last - older, order);
  return word.values[last - older].bits;
}

void WeakMemory::store(const void* address, uint64_t newest, uint64_t value, std::memory_order order) {
  append(word_at(address, newest), value, order, false);
}

void WeakMemory::change(const void* address, uint64_t newest, uint64_t value, std::memory_order order) {
  Word& word = word_at(address, newest);
  find(word, static_cast<uint32_t>(word.values.size() - 1), order);
  append(word, value, order, true);
}

// It succeeds with the newest value only; one that fails is a load, which may find an older value, but not
// one equal to the expected.
uint64_t WeakMemory::compare(const void* address, uint64_t newest, const Comparison& how) {
  Word& word = word_at(address, newest);
  const auto last = static_cast<uint32_t>(word.values.size() - 1);
  std::vector<uint32_t> choices{last};
  for (uint32_t index = last; index-- > oldest_for(word, how.failure);) {
    if (word.values[index].bits != how.expected) choices.push_back(index);
  }
  const uint32_t index = choices[strategy_.stale(choices.size())];
  const uint64_t found = word.values[index].bits;
  if (index != last) ++stale_reads_;
  const bool succeeds = index == last && found == how.expected;
  find(word, index, succeeds ? how.success : how.failure);
  if (succeeds) append(word, how.desired, how.success, true);
  return found;
}

void WeakMemory::acquire(const void* lock) {
  const auto left = locks_.find(lock);
  if (left != locks_.end()) mine().join(left->second);
}

void WeakMemory::release(const void* lock) {
  locks_[lock].join(mine());
  moment();
}

void WeakMemory::watch(const void* data) {
  const uint32_t written_at = moment();
  data_.insert_or_assign(data, Data{current_, written_at, {}, false});
}

WeakMemory::Data& WeakMemory::data_at(const void* address) {
  const auto found = data_.find(address);
  if (found == data_.end()) fail_("data is used that was not made");
  Data& data = found->second;
  if (data.gone) fail_("data is used that is gone");
  if (!saw(data.writer, data.written_at)) fail_("data is used beside its write: nothing orders the two");
  return data;
}

void WeakMemory::read(const void* data) {
  Data& read = data_at(data);
  at(read.read_at, current_) = moment();
}

void WeakMemory::write(const void* data) {
  Data& written = data_at(data);
  for (uint32_t thread = 0; thread < written.read_at.size(); ++thread) {
    if (!saw(thread, written.read_at[thread]))
      fail_("data is written, or ends, beside a read: nothing orders the two");
  }
  written.writer = current_;
  written.written_at = moment();
}

void WeakMemory::end_watch(const void* data) {
  write(data);
  data_.at(data).gone = true;
}

}  // namespace heddle

#endif
