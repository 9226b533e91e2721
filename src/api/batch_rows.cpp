#include "api/batch_rows.h"

#include <algorithm>
#include <cstring>
#include <ranges>

#include "api/internals.h"
#include "batch/calls/row_layout.h"

namespace heddle {
namespace {

std::vector<Shape> shapes_of(std::span<const Tensor> tensors) {
  std::vector<Shape> shapes;
  shapes.reserve(tensors.size());
  for (const Tensor& tensor : tensors) shapes.push_back(tensor.shape());
  return shapes;
}

// `parts` one below the other in a tensor of this shape, filled up with `value`.
Tensor stacked(std::span<const Tensor> parts, const Shape& shape, double value) {
  Tensor out = Tensor::zeros(parts[0].dtype(), shape);
  const device::View& whole = Internals::view(out);
  const ir::Extents row(whole.extents.span().subspan(1));
  const ir::Tensor pad = ir::Tensor::scalar(whole.dtype, value);
  int64_t first = 0;
  for (const Tensor& part : parts) {
    const Tensor here = part.to_host();
    batch::write_rows(Internals::view(here), row, static_cast<const std::byte*>(pad.data()), first,
                      whole.host());
    first += part.shape()[0];
  }
  return out;
}

}  // namespace

batch::RequestRows::Described describe(std::span<const Tensor> inputs, const batch::RequestRows& rows) {
  std::vector<int64_t> dtypes;
  for (const Tensor& input : inputs) dtypes.push_back(static_cast<int64_t>(input.dtype()));
  return take(rows.describe(dtypes, shapes_of(inputs)));
}

std::vector<Tensor> slice_rows(std::span<const Tensor> tensors, int64_t begin, int64_t end) {
  std::vector<Tensor> out;
  for (const Tensor& tensor : tensors) {
    Shape shape = tensor.shape();
    const Shape strides = tensor.strides();
    shape[0] = end - begin;
    out.push_back(tensor.view(tensor.dtype(), shape, strides,
                              begin * strides[0] * static_cast<int64_t>(size_of(tensor.dtype()))));
  }
  return out;
}

std::vector<Tensor> stack_rows(std::span<const std::unique_ptr<Job>> jobs, const batch::RequestRows& rows,
                               double pad) {
  int64_t longest = 0;
  for (const auto& job : jobs) longest = std::max(longest, job->length);
  std::vector<Tensor> out, column;
  for (size_t i = 0; i < jobs[0]->inputs.size(); ++i) {
    column.clear();
    for (const auto& job : jobs) column.push_back(job->inputs[i]);
    const Shape shape = rows.stacked(shapes_of(column), longest);
    const bool as_it_is = column.size() == 1 && column[0].shape() == shape;
    out.push_back(as_it_is ? column[0] : stacked(column, shape, pad));
  }
  return out;
}

std::vector<std::vector<Tensor>> split_rows(std::span<const Tensor> results,
                                            std::span<const std::unique_ptr<Job>> jobs,
                                            const batch::RequestRows& layout) {
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
    const Tensor here = results[i].to_host();
    int64_t first = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      Shape part = shape;
      part[0] = jobs[j]->rows;
      if (part.size() > 1) part[1] = layout.own_length(part[1], jobs[j]->length);
      Tensor own = Tensor::zeros(results[i].dtype(), part);
      batch::read_rows(Internals::view(here), first, Internals::view(own));
      first += part[0];
      out[j].push_back(std::move(own));
    }
  }
  return out;
}

std::vector<Tensor> join_rows(std::span<const std::vector<Tensor>> parts) {
  std::vector<Tensor> out, column;
  for (size_t i = 0; i < parts[0].size(); ++i) {
    column.clear();
    for (const std::vector<Tensor>& part : parts) {
      if (part.size() != parts[0].size() || part[i].dtype() != parts[0][i].dtype() ||
          !std::ranges::equal(part[i].shape() | std::views::drop(1),
                              parts[0][i].shape() | std::views::drop(1))) {
        throw Error(ErrorCode::invalid,
                    "the function gave results of unequal shapes or types for the parts of one request, "
                    "which has more rows than max_batch: they cannot be joined");
      }
      column.push_back(part[i]);
    }
    Shape shape = parts[0][i].shape();
    shape[0] = 0;
    for (const Tensor& part : column) shape[0] += part.shape()[0];
    out.push_back(stacked(column, shape, 0));
  }
  return out;
}

Tensor resized_rows(const Tensor& tensor, int64_t rows, int64_t length) {
  const Tensor dense = tensor.to_host().contiguous();
  const Shape from = dense.shape();
  Shape shape = from;
  shape[0] = rows;
  if (length != 0 && shape.size() > 1) shape[1] = length;
  Tensor out = Tensor::zeros(dense.dtype(), shape);
  if (dense.elements() == 0) return out;
  const bool ragged = shape.size() > 1;
  const int64_t inner = ragged ? dense.elements() / from[0] / from[1] : 1;
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
