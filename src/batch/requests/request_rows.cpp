#include "batch/requests/request_rows.h"

#include <algorithm>

namespace heddle::batch {

Status RequestRows::check(const Padding& padding) {
  if (!padding.on && !padding.buckets.empty()) {
    return Status::invalid("buckets need pad, the value that fills up");
  }
  if (!padding.on && padding.cut) return Status::invalid("cut takes the padding off again, and needs pad");
  int64_t before = 0;
  for (const int64_t bucket : padding.buckets) {
    if (bucket <= before) return Status::invalid("buckets must be ascending lengths; ", bucket, " is none");
    before = bucket;
  }
  return {};
}

Result<int64_t> RequestRows::bucket(int64_t length) const {
  if (padding_.buckets.empty()) return 0;
  const auto at = std::lower_bound(padding_.buckets.begin(), padding_.buckets.end(), length);
  if (at != padding_.buckets.end()) return *at;
  return Status::invalid("the request is ", length, " long, and the longest bucket is ",
                         padding_.buckets.back());
}

Result<RequestRows::Described> RequestRows::describe(std::span<const int64_t> kinds,
                                                     std::span<const Shape> arrays) const {
  if (arrays.empty()) return Status::invalid("the request holds no array");
  Described described;
  for (size_t i = 0; i < arrays.size(); ++i) {
    if (arrays[i].empty()) {
      return Status::invalid("input ", i, " is a single value and has no rows: axis 0 must count rows");
    }
    if (arrays[i][0] != arrays[0][0]) {
      return Status::invalid("input ", i, " has ", arrays[i][0], " rows and input 0 has ", arrays[0][0],
                             ": all arrays of a request must have equally many rows");
    }
    if (padding_.on && arrays[i].size() > 1) described.length = std::max(described.length, arrays[i][1]);
  }
  described.rows = arrays[0][0];
  if (described.rows == 0) return Status::invalid("the request has no rows");
  if (described.rows < 0) return Status::invalid("the request has ", described.rows, " rows");
  std::vector<int64_t> key;
  key.reserve(kinds.size() + 1 + 4 * arrays.size());
  key.assign(kinds.begin(), kinds.end());
  HEDDLE_TRY_ASSIGN(const int64_t filled_up, bucket(described.length));
  key.push_back(filled_up);
  for (const Shape& array : arrays) {
    key.push_back(static_cast<int64_t>(array.size()));
    if (!padding_.on) key.insert(key.end(), array.begin() + 1, array.end());
  }
  described.group = group(key);
  return described;
}

uint64_t RequestRows::group(const std::vector<int64_t>& key) const {
  auto groups = groups_.lock();
  const auto known = groups->numbers.find(key);
  if (known != groups->numbers.end()) return known->second;
  if (groups->numbers.size() >= kGroupsKept) groups->numbers.clear();
  return groups->numbers.emplace(key, ++groups->made).first->second;
}

RequestRows::Shape RequestRows::stacked(std::span<const Shape> arrays, int64_t longest) const {
  Shape whole = arrays[0];
  whole[0] = 0;
  for (const Shape& array : arrays) {
    whole[0] += array[0];
    for (size_t axis = 1; axis < whole.size(); ++axis) whole[axis] = std::max(whole[axis], array[axis]);
  }
  if (whole.size() > 1 && padding_.on) {
    const Result<int64_t> filled_up = bucket(longest);  // describe() has seen that there is one
    if (filled_up.ok() && *filled_up != 0) whole[1] = *filled_up;
  }
  return whole;
}

int64_t RequestRows::own_length(int64_t extent, int64_t length) const {
  return padding_.cut && length != 0 ? std::min(extent, length) : extent;
}

std::vector<std::pair<int64_t, int64_t>> RequestRows::parts(int64_t rows, int64_t most) {
  std::vector<std::pair<int64_t, int64_t>> parts;
  for (int64_t begin = 0; begin < rows; begin += most)
    parts.emplace_back(begin, std::min(begin + most, rows));
  return parts;
}

}  // namespace heddle::batch
