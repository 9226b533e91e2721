#include "base/seen.h"

#if defined(HEDDLE_SIM)

#include <utility>

#include "base/seeded_numbers.h"

namespace heddle {

namespace {

enum Kind : uint64_t { kStart = 1, kJoin, kTold, kFound, kWrote, kMade, kBefore };

}  // namespace

bool SharedWords::grow() {
  const bool more = has_more();
  known_.merge(found_);
  found_.clear();
  return more;
}

uint64_t Pasts::mixed(std::initializer_list<uint64_t> values) {
  uint64_t out = values.size();
  for (const uint64_t value : values) out = SeededNumbers(out ^ SeededNumbers(value).next()).next();
  return out;
}

void Pasts::start(uint32_t parent, uint32_t child) {
  if (threads_.size() <= child) {
    threads_.resize(child + 1);
    made_.resize(child + 1);
  }
  threads_[child] = mixed({kStart, threads_[parent], child});  // so all() says when it was started
}

void Pasts::join(uint32_t parent, uint32_t child) {
  threads_[parent] = mixed({kJoin, threads_[parent], threads_[child]});
}

void Pasts::tell(uint64_t value) { threads_[running_] = mixed({kTold, threads_[running_], value}); }

uint64_t Pasts::all() const {
  uint64_t out = 0;
  for (const uint64_t past : threads_) out = mixed({out, past});
  return out;
}

void Pasts::make(const void* word) {
  words_[word] = Word{.name = mixed({kMade, running_, ++made_[running_]}), .is_left_out = leaves_out_};
}

Pasts::Word& Pasts::at(const void* word) {
  const auto [found, is_new] = words_.try_emplace(word);
  // Made before all simulations, and so there in each.
  if (is_new) found->second.name = mixed({kBefore, reinterpret_cast<uintptr_t>(word)});
  return found->second;
}

Pasts::Word& Pasts::use(const void* word, uint32_t thread, bool writes) {
  Word& out = at(word);
  if (!meets_ || out.is_left_out) return out;
  out.has_several = out.has_several || (out.has_user && out.user != thread);
  out.user = thread;
  out.has_user = true;
  out.is_written = out.is_written || writes;
  if (out.has_several && out.is_written && !shared_.has(out.name)) shared_.add(out.name);
  return out;
}

bool Pasts::is_shared(const void* word) { return shared_.has(at(word).name); }

void Pasts::jump(const void* time) { use(time, 0, true); }

void Pasts::find(const void* word) {
  const Word& found = use(word, running_, false);
  threads_[running_] = mixed({kFound, threads_[running_], found.past});
}

void Pasts::change(const void* word) {
  find(word);
  use(word, running_, true).past = threads_[running_] = mixed({kWrote, threads_[running_], running_});
}

uint64_t Pasts::load(const void* word, uint64_t newest, std::memory_order) {
  find(word);
  return newest;
}

uint64_t Pasts::compare(const void* word, uint64_t newest, const Comparison& how) {
  if (newest == how.expected) {
    change(word);
  } else {
    find(word);
  }
  return newest;
}

uint64_t SeenStates::met(uint64_t state, std::span<const Option> options) {
  uint64_t out = 0;
  for (size_t i = 0; i < options.size(); ++i) {
    const auto [found, is_new] = states_.try_emplace(Pasts::mixed({state, options[i].thread}));
    if (!is_new && found->second.left >= options[i].left) {
      out |= uint64_t{1} << i;
    } else {
      found->second.left = static_cast<uint32_t>(options[i].left);
    }
  }
  return out;
}

void SeenStates::take(uint64_t state, uint64_t thread) { way_.push_back(Pasts::mixed({state, thread})); }

bool SeenStates::end(uint64_t last) {
  bool same = true;
  for (const uint64_t state : std::exchange(way_, {})) {
    Met& met = states_[state];
    same = same && (!met.ended || met.last == last);
    met.ended = true;
    met.last = last;
  }
  return same;
}

void SeenStates::clear() {
  states_.clear();
  way_.clear();
}

}  // namespace heddle

#endif
