#include "api/batch_rows.h"

#include <algorithm>
#include <cstring>

#include "api/internals.h"

namespace heddle {
namespace {

int64_t bucket_of(int64_t length, const Padding& padding) {
  if (padding.buckets.empty()) return 0;
  const auto at = std::lower_bound(padding.buckets.begin(), padding.buckets.end(), length);
  if (at == padding.buckets.end()) {
    throw Error(ErrorCode::invalid,
                text("the request is ", length, " long, and the longest bucket is ", padding.buckets.back()));
  }
  return *at;
}

int64_t row_elements(const Shape& shape) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

// The upper left corner, of this shape, of the rows from `first` on; nothing is copied.
Tensor window(const Tensor& whole, int64_t first, const Shape& shape) {
  const Shape strides = whole.strides();
  return whole.view(whole.dtype(), shape, strides,
                    first * strides[0] * static_cast<int64_t>(size_of(whole.dtype())));
}

void copy(const Tensor& from, const Tensor& to) {
  from.wait();
  device::copy_view(Internals::view(from), Internals::view(to));
}

// `parts` one below the other in a tensor of this shape.
Tensor stacked(std::span<const Tensor> parts, const Shape& shape, double value) {
  Tensor out = Tensor::zeros(parts[0].dtype(), shape);
  bool covered = true;
  for (const Tensor& part : parts) covered = covered && row_elements(part.shape()) == row_elements(shape);
  if (!covered && value != 0) device::fill_view(Internals::view(out), value);
  int64_t row = 0;
  for (const Tensor& part : parts) {
    copy(part, window(out, row, part.shape()));
    row += part.shape()[0];
  }
  return out;
}

}  // namespace

int64_t rows_of(std::span<const Tensor> inputs) {
  if (inputs.empty()) throw Error(ErrorCode::invalid, "the request has no tensors");
  int64_t rows = -1;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Shape shape = inputs[i].shape();
    if (shape.empty()) {
      throw Error(ErrorCode::invalid,
                  text("input ", i, " is a single value and has no rows: axis 0 must count rows"));
    }
    if (rows >= 0 && shape[0] != rows) {
      throw Error(ErrorCode::invalid, text("input ", i, " has ", shape[0], " rows and input 0 has ", rows,
                                           ": all tensors of a request must have equally many"));
    }
    rows = shape[0];
  }
  if (rows == 0) throw Error(ErrorCode::invalid, "the request has no rows");
  return rows;
}

int64_t length_of(std::span<const Tensor> inputs, const Padding& padding) {
  int64_t length = 0;
  if (!padding.value) return 0;
  for (const Tensor& input : inputs) {
    const Shape shape = input.shape();
    if (shape.size() > 1) length = std::max(length, shape[1]);
  }
  return length;
}

std::vector<int64_t> group_key(std::span<const Tensor> inputs, int64_t length, const Padding& padding) {
  std::vector<int64_t> key;
  key.reserve(2 + inputs.size() * 4);
  key.push_back(padding.value ? bucket_of(length, padding) : 0);
  for (const Tensor& input : inputs) {
    const Shape shape = input.shape();
    key.push_back(static_cast<int64_t>(input.dtype()));
    key.push_back(static_cast<int64_t>(shape.size()));
    if (!padding.value) key.insert(key.end(), shape.begin() + 1, shape.end());
  }
  return key;
}

std::vector<Tensor> slice_rows(std::span<const Tensor> tensors, int64_t begin, int64_t end) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : tensors) {
    Shape shape = tensor.shape();
    shape[0] = end - begin;
    out.push_back(window(tensor, begin, shape));
  }
  return out;
}

std::vector<Tensor> stack_rows(std::span<const std::unique_ptr<Job>> jobs, const Padding& padding) {
  const std::vector<Tensor>& first = jobs[0]->inputs;
  if (jobs.size() == 1 && !padding.value) return first;
  int64_t length = 0;
  for (const auto& job : jobs) length = std::max(length, job->length);
  const int64_t bucket = padding.value ? bucket_of(length, padding) : 0;
  std::vector<Tensor> out, column;
  for (size_t i = 0; i < first.size(); ++i) {
    column.clear();
    Shape shape = first[i].shape();
    shape[0] = 0;
    for (const auto& job : jobs) {
      const Shape extents = job->inputs[i].shape();
      shape[0] += extents[0];
      for (size_t axis = 1; axis < shape.size(); ++axis) shape[axis] = std::max(shape[axis], extents[axis]);
      column.push_back(job->inputs[i]);
    }
    if (bucket != 0 && shape.size() > 1) shape[1] = bucket;
    const bool as_it_is = column.size() == 1 && column[0].shape() == shape;
    out.push_back(as_it_is ? column[0] : stacked(column, shape, padding.value.value_or(0)));
  }
  return out;
}

std::vector<std::vector<Tensor>> split_rows(std::span<const Tensor> results,
                                            std::span<const std::unique_ptr<Job>> jobs,
                                            const Padding& padding) {
  int64_t rows = 0;
  for (const auto& job : jobs) rows += job->rows;
  if (results.empty()) throw Error(ErrorCode::invalid, "the function returned no tensors");
  std::vector<std::vector<Tensor>> out(jobs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    const Shape shape = results[i] ? results[i].shape() : Shape();
    if (shape.empty() || shape[0] != rows) {
      throw Error(ErrorCode::invalid, text("the function's result ", i, " has ", shape.empty() ? 0 : shape[0],
                                           " rows for ", rows, " rows of input; it must have one per row"));
    }
    int64_t row = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      Shape part = shape;
      part[0] = jobs[j]->rows;
      if (padding.cut && part.size() > 1) part[1] = std::min(part[1], jobs[j]->length);
      Tensor own = Tensor::zeros(results[i].dtype(), part);
      copy(window(results[i], row, part), own);
      row += part[0];
      out[j].push_back(std::move(own));
    }
  }
  return out;
}

std::vector<Tensor> join_rows(std::span<const std::vector<Tensor>> parts) {
  std::vector<Tensor> out, column;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    column.clear();
    Shape shape = parts[0][i].shape();
    shape[0] = 0;
    for (const std::vector<Tensor>& part : parts) {
      column.push_back(part[i]);
      shape[0] += part[i].shape()[0];
    }
    out.push_back(stacked(column, shape, 0));
  }
  return out;
}

Tensor resized_rows(const Tensor& tensor, int64_t rows, int64_t length) {
  const Tensor dense = tensor.contiguous();
  const Shape from = dense.shape();
  Shape shape = from;
  shape[0] = rows;
  if (length != 0 && shape.size() > 1) shape[1] = length;
  Tensor out = Tensor::zeros(dense.dtype(), shape);
  if (dense.elements() == 0) return out;
  const bool ragged = shape.size() > 1;
  const int64_t inner = ragged ? row_elements(from) / from[1] : 1;
  const auto bytes = static_cast<size_t>(inner) * size_of(dense.dtype());
  const int64_t columns = ragged ? shape[1] : 1;
  auto* to = static_cast<char*>(out.mutable_data());
  const auto* data = static_cast<const char*>(dense.data());
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const int64_t block = (r % from[0]) * (ragged ? from[1] : 1) + (ragged ? c % from[1] : 0);
      std::memcpy(to, data + static_cast<size_t>(block) * bytes, bytes);
      to += bytes;
    }
  }
  return out;
}

}  // namespace heddle
