#include "api/batch_rows.h"

#include <algorithm>
#include <cstring>

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

template <class T>
void fill_with(void* data, int64_t count, double value) {
  std::fill_n(static_cast<T*>(data), count, static_cast<T>(value));
}

void fill(Tensor& tensor, double value) {
  const int64_t n = tensor.elements();
  void* data = tensor.mutable_data();
  switch (tensor.dtype()) {
    case DType::f32:
      return fill_with<float>(data, n, value);
    case DType::f64:
      return fill_with<double>(data, n, value);
    case DType::i8:
      return fill_with<int8_t>(data, n, value);
    case DType::u8:
      return fill_with<uint8_t>(data, n, value);
    case DType::i16:
      return fill_with<int16_t>(data, n, value);
    case DType::i32:
      return fill_with<int32_t>(data, n, value);
    case DType::i64:
      return fill_with<int64_t>(data, n, value);
    case DType::u16:
      return fill_with<uint16_t>(data, n, value);
    case DType::u32:
      return fill_with<uint32_t>(data, n, value);
    case DType::u64:
      return fill_with<uint64_t>(data, n, value);
    case DType::boolean:
      return fill_with<bool>(data, n, value);
    case DType::f16:
    case DType::bf16:
      break;
  }
  throw Error(ErrorCode::unsupported, text("pad value ", value, " for ", name(tensor.dtype()), ": only 0"));
}

int64_t row_elements(const Shape& shape) {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

// Copies the block `from` to the upper left corner of rows `row`... of `to`; both contiguous.
void copy_block(char* to, const Shape& to_shape, const char* from, const Shape& from_shape, size_t axis,
                size_t element) {
  size_t to_step = element, from_step = element;
  for (size_t i = axis + 1; i < to_shape.size(); ++i) {
    to_step *= static_cast<size_t>(to_shape[i]);
    from_step *= static_cast<size_t>(from_shape[i]);
  }
  const auto count = static_cast<size_t>(from_shape[axis]);
  if (to_step == from_step) {
    std::memcpy(to, from, count * from_step);
    return;
  }
  for (size_t i = 0; i < count; ++i) {
    copy_block(to + i * to_step, to_shape, from + i * from_step, from_shape, axis + 1, element);
  }
}

// `parts` one below the other in a tensor of this shape.
Tensor stacked(std::span<const Tensor> parts, const Shape& shape, double value) {
  Tensor out = Tensor::zeros(parts[0].dtype(), shape);
  bool covered = true;
  for (const Tensor& part : parts) covered = covered && row_elements(part.shape()) == row_elements(shape);
  if (!covered && value != 0) fill(out, value);
  const size_t element = size_of(out.dtype());
  const size_t row_bytes = static_cast<size_t>(row_elements(shape)) * element;
  char* at = static_cast<char*>(out.mutable_data());
  for (const Tensor& part : parts) {
    const Tensor dense = part.contiguous();
    const Shape from = dense.shape();
    copy_block(at, shape, static_cast<const char*>(dense.data()), from, 0, element);
    at += static_cast<size_t>(from[0]) * row_bytes;
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
    const auto whole = std::make_shared<const Tensor>(tensor.contiguous());
    Shape shape = whole->shape();
    const auto row_bytes = static_cast<size_t>(row_elements(shape)) * size_of(tensor.dtype());
    shape[0] = end - begin;
    const auto* data = static_cast<const char*>(whole->data()) + static_cast<size_t>(begin) * row_bytes;
    out.push_back(Tensor::borrow(data, tensor.dtype(), shape, {}, whole));
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
    const Tensor dense = results[i].contiguous();
    const auto row_bytes = static_cast<size_t>(row_elements(shape)) * size_of(dense.dtype());
    const auto* at = static_cast<const char*>(dense.data());
    for (size_t j = 0; j < jobs.size(); ++j) {
      Shape part = shape;
      part[0] = jobs[j]->rows;
      const bool shorter = padding.cut && part.size() > 1 && jobs[j]->length < part[1];
      if (shorter) part[1] = jobs[j]->length;
      Tensor own = Tensor::zeros(dense.dtype(), part);
      Shape from = shape;
      from[0] = part[0];
      auto* to = static_cast<char*>(own.mutable_data());
      if (!shorter) {
        std::memcpy(to, at, static_cast<size_t>(part[0]) * row_bytes);
      } else {
        const size_t kept = static_cast<size_t>(row_elements(part)) * size_of(dense.dtype());
        for (int64_t r = 0; r < part[0]; ++r) {
          std::memcpy(to + static_cast<size_t>(r) * kept, at + static_cast<size_t>(r) * row_bytes, kept);
        }
      }
      at += static_cast<size_t>(part[0]) * row_bytes;
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
