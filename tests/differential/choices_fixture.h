// choices_fixture.h: where a random graph's decisions come from: a seed, or a fuzzer's bytes.
//
//   Threads    One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <random>
#include <span>

namespace heddle::differential {

class Choices {
 public:
  virtual ~Choices() = default;

  virtual uint64_t word() = 0;

  size_t below(size_t bound) { return static_cast<size_t>(word() % bound); }
  int64_t between(int64_t low, int64_t high) {  // both included
    return low + static_cast<int64_t>(word() % static_cast<uint64_t>(high - low + 1));
  }
  bool one_in(size_t n) { return below(n) == 0; }
  template <class T, size_t kCount>
  const T& of(const T (&all)[kCount]) {
    return all[below(kCount)];
  }
  template <class All>
  auto& of(All& all) {
    return all[below(std::size(all))];
  }

 protected:
  Choices() = default;
  Choices(const Choices&) = default;
  Choices& operator=(const Choices&) = default;
};

class SeededChoices : public Choices {
 public:
  explicit SeededChoices(uint64_t seed) : random_(seed) {}
  uint64_t word() override { return random_(); }

 private:
  std::mt19937_64 random_;
};

// Two bytes a decision, so that a small change of the bytes is a small change of the graph. Past their end
// all decisions are 0: the first of what there is to choose from.
class BytesChoices : public Choices {
 public:
  explicit BytesChoices(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  uint64_t word() override {
    uint64_t word = 0;
    for (int i = 0; i < 2 && at_ < bytes_.size(); ++i) word = word << 8 | bytes_[at_++];
    return word;
  }
  bool over() const { return at_ >= bytes_.size(); }

 private:
  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace heddle::differential
