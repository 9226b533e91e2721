// histogram.h: counts of values by size, for percentiles.
//
//   What       Eight buckets to a power of two, so a percentile is at most 1/8 too high. Values are
//              nanoseconds or rows; below 8 every value has a bucket of its own.
//   Threads    One at a time; owners guard it.
//   Blocks     Never; nothing allocates.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace heddle::batch {

class Histogram {
 public:
  void add(int64_t value) {
    const auto v = static_cast<uint64_t>(std::max<int64_t>(value, 0));
    ++counts_[bucket_of(v)];
    ++count_;
    sum_ += v;
  }

  uint64_t count() const { return count_; }
  uint64_t sum() const { return sum_; }
  // The largest value of the bucket in which `share` (0 to 1) of all values end; 0 when there is none.
  uint64_t percentile(double share) const {
    const auto wanted = static_cast<uint64_t>(share * static_cast<double>(count_) + 0.5);
    uint64_t seen = 0;
    for (size_t i = 0; i < counts_.size(); ++i) {
      seen += counts_[i];
      if (counts_[i] != 0 && seen >= wanted) return last_of(i);
    }
    return 0;
  }

 private:
  static constexpr size_t kPerOctave = 8;
  static size_t bucket_of(uint64_t v) {
    if (v < kPerOctave) return static_cast<size_t>(v);
    const auto shift = static_cast<size_t>(std::bit_width(v)) - 4;  // v >> shift is 8 to 15
    return (shift + 1) * kPerOctave + static_cast<size_t>(v >> shift) - kPerOctave;
  }
  static uint64_t last_of(size_t bucket) {
    if (bucket < kPerOctave) return bucket;
    const size_t shift = bucket / kPerOctave - 1;
    return ((bucket % kPerOctave + kPerOctave + 1) << shift) - 1;
  }

  std::array<uint64_t, 62 * kPerOctave> counts_{};
  uint64_t count_ = 0;
  uint64_t sum_ = 0;
};

}  // namespace heddle::batch
