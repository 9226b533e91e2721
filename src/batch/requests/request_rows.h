// request_rows.h: how requests lie in a batch for a function, by the shapes of their arrays alone.
//
//   What       Axis 0 of every array of a request counts its rows. Without padding, arrays of equal row
//              shapes may share a batch. With padding, arrays of equal rank may: each axis is filled up to
//              its longest, and axis 1 to a bucket where there are any. With `cut`, results get their
//              request's own length along axis 1 again. (Models declare their ragged axes:
//              batch/calls/row_layout.h.)
//   Invariant  A group's number is never used twice, so one that was forgotten joins nothing it must not.
//   Threads    Any.
//   Blocks     Never.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sync.h"

namespace heddle::batch {

struct Padding {
  bool on = false;
  std::vector<int64_t> buckets = {};  // ascending lengths of axis 1; empty: as long as the longest
  bool cut = false;
};

class RequestRows {
 public:
  using Shape = std::vector<int64_t>;
  struct Described {
    int64_t rows = 0;
    int64_t length = 0;  // the longest axis 1, where there is padding
    uint64_t group = 0;
  };

  // invalid: buckets that do not ascend, or come without padding, as does a cut.
  static Status check(const Padding& padding);
  explicit RequestRows(Padding padding) : padding_(std::move(padding)) {}

  // `kinds`: what else has to be equal in requests of one batch, such as dtypes. invalid: what is wrong with
  // the request.
  Result<Described> describe(std::span<const int64_t> kinds, std::span<const Shape> arrays) const;
  uint64_t group(const std::vector<int64_t>& key) const;

  // The shape of a batch's array, made of these; `longest` is the length of the longest request.
  Shape stacked(std::span<const Shape> arrays, int64_t longest) const;
  // How much of axis 1 of a request's result is the request's own.
  int64_t own_length(int64_t extent, int64_t length) const;
  // [begin, end) of each part of a request with more rows than a batch may have.
  static std::vector<std::pair<int64_t, int64_t>> parts(int64_t rows, int64_t most);

  const Padding& padding() const { return padding_; }

 private:
  struct Groups {
    std::map<std::vector<int64_t>, uint64_t> numbers;
    uint64_t made = 0;
  };
  static constexpr size_t kGroupsKept = 4096;
  Result<int64_t> bucket(int64_t length) const;  // 0 where there are none

  const Padding padding_;
  mutable Guarded<Groups, Rank::kBatch> groups_;
};

}  // namespace heddle::batch
