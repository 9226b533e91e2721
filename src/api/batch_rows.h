// batch_rows.h: requests' tensors joined along axis 0, padded where they are ragged, and taken apart again.
//
//   Errors     What is wrong with a request or with a function's results throws invalid, naming it.
//   Threads    Pure but for the memory they allocate.
#pragma once

#include <heddle/heddle.h>

#include "api/batch_future.h"
#include "batch/requests/request_rows.h"

namespace heddle {

// What the request is, by `rows`.
batch::RequestRows::Described describe(std::span<const Tensor> inputs, const batch::RequestRows& rows);
std::vector<Tensor> slice_rows(std::span<const Tensor> tensors, int64_t begin, int64_t end);  // views
std::vector<Tensor> stack_rows(std::span<const std::unique_ptr<Job>> jobs, const batch::RequestRows& rows,
                               double pad);
// One result per job; each owns its memory.
std::vector<std::vector<Tensor>> split_rows(std::span<const Tensor> results,
                                            std::span<const std::unique_ptr<Job>> jobs,
                                            const batch::RequestRows& rows);
std::vector<Tensor> join_rows(std::span<const std::vector<Tensor>> parts);
Tensor resized_rows(const Tensor& tensor, int64_t rows, int64_t length);  // repeated, for warming up

}  // namespace heddle
