// batch_rows.h: requests' tensors joined along axis 0, padded where they are ragged, and taken apart again.
//
//   Errors     What is wrong with a request or with a function's results throws invalid, naming it.
//   Threads    Pure but for the memory they allocate.
#pragma once

#include <heddle/heddle.h>

#include <map>

#include "api/batch_future.h"

namespace heddle {

struct Padding {
  std::optional<double> value;
  std::vector<int64_t> buckets;  // ascending; axis 1
  bool cut = false;
};

int64_t rows_of(std::span<const Tensor> inputs);  // axis 0, equal in all
int64_t length_of(std::span<const Tensor> inputs, const Padding& padding);
// Equal keys can share a batch: dtypes, ranks, and row shapes or the bucket.
std::vector<int64_t> group_key(std::span<const Tensor> inputs, int64_t length, const Padding& padding);
std::vector<Tensor> slice_rows(std::span<const Tensor> tensors, int64_t begin, int64_t end);  // views
std::vector<Tensor> stack_rows(std::span<const std::unique_ptr<Job>> jobs, const Padding& padding);
// One result per job; each owns its memory.
std::vector<std::vector<Tensor>> split_rows(std::span<const Tensor> results,
                                            std::span<const std::unique_ptr<Job>> jobs,
                                            const Padding& padding);
std::vector<Tensor> join_rows(std::span<const std::vector<Tensor>> parts);
Tensor resized_rows(const Tensor& tensor, int64_t rows, int64_t length);  // repeated, for warming up

}  // namespace heddle
