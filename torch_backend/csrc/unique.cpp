// unique.cpp: unique elements and rows, from sort, neighbours compared, cumsum and scatter.
#include "unique.h"

#include <ATen/WrapDimUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <tuple>

namespace heddle::torch_backend {
namespace {

using Found = std::tuple<at::Tensor, at::Tensor, at::Tensor>;

// Of lanes along the last axis, at least one element long: whether an element differs from the one before.
at::Tensor starts_of(const at::Tensor& lanes) {
  const int64_t others = lanes.size(-1) - 1;
  std::vector<int64_t> first = lanes.sizes().vec();
  first.back() = 1;
  const at::Tensor differ = lanes.narrow(-1, 1, others).ne(lanes.narrow(-1, 0, others));
  return at::cat({at::ones(first, differ.options()), differ}, -1);
}

// Elements of one axis, equals beside each other.
class Groups {
 public:
  // starts: bool[n], n > 0. order: i64[n], where the elements come from; undefined: they lie in their places.
  Groups(const at::Tensor& starts, at::Tensor order)
      : order_(std::move(order)), group_(starts.cumsum(0, at::kLong).sub_(1)) {
    const int64_t all = starts.numel();
    count_ = group_.select(0, -1).item<int64_t>() + 1;
    const at::Tensor rows = at::where(starts, group_, count_);
    ends_ = at::empty({count_ + 1}, group_.options()).zero_();
    ends_.scatter_(0, rows, at::arange(all, group_.options()));
    ends_.select(0, count_).fill_(all);
  }

  // i64[groups]: the place of the first of each, before the elements were brought beside each other.
  at::Tensor firsts() const {
    const at::Tensor here = ends_.narrow(0, 0, count_);
    return order_.defined() ? order_.index_select(0, here) : here;
  }
  at::Tensor inverse() const {  // i64[n]
    return order_.defined() ? at::zeros_like(group_).scatter_(0, order_, group_) : group_;
  }
  at::Tensor counts() const { return ends_.narrow(0, 1, count_).sub(ends_.narrow(0, 0, count_)); }

 private:
  at::Tensor order_;
  at::Tensor group_;
  int64_t count_ = 0;
  at::Tensor ends_;  // i64[groups + 1]: where each begins, and the last one ends
};

Groups sorted_groups(const at::Tensor& flat) {
  const auto [sorted, order] = at::sort(flat, /*stable=*/true, 0, /*descending=*/false);
  return {starts_of(sorted), order};
}

Found unique_elements(const at::Tensor& self, bool sorted, bool return_inverse, bool return_counts) {
  const at::Tensor none = at::empty({0}, self.options().dtype(at::kLong));
  if (self.numel() == 0) {
    const at::Tensor inverse = return_inverse ? at::empty(self.sizes(), none.options()) : none;
    return {at::empty({0}, self.options()), inverse, none};
  }
  const at::Tensor flat = self.reshape(-1);
  const Groups groups = sorted ? sorted_groups(flat) : Groups(starts_of(flat), {});
  return {flat.index_select(0, groups.firsts()),
          return_inverse ? groups.inverse().reshape(self.sizes()) : none,
          return_counts ? groups.counts() : none};
}

// ---- rows: what lies at one place of an axis

// Of each lane along the last axis, the place of an element's equals in their order.
at::Tensor ranks_of(const at::Tensor& lanes) {
  const auto [sorted, order] = at::sort(lanes, /*stable=*/true, -1, /*descending=*/false);
  const at::Tensor ranks = starts_of(sorted).cumsum(-1, at::kLong);
  return at::zeros_like(ranks).scatter_(-1, order, ranks);
}

// columns: [k, n], k > 0; i64[n], which orders the rows as their elements do from the first on. Each round
// joins neighbours.
at::Tensor rank_of_rows(const at::Tensor& columns) {
  at::Tensor ranks = ranks_of(columns);
  while (ranks.size(0) > 1) {
    const int64_t paired = ranks.size(0) / 2 * 2;
    at::Tensor joined = ranks.slice(0, 0, paired, 2).mul(ranks.size(1) + 1).add(ranks.slice(0, 1, paired, 2));
    if (paired != ranks.size(0)) joined = at::cat({joined, ranks.narrow(0, paired, 1)});
    ranks = ranks_of(joined);
  }
  return ranks.select(0, 0);
}

Found unique_rows(const at::Tensor& self, int64_t dim, bool sorted) {
  const int64_t axis = c10::maybe_wrap_dim(dim, self.dim(), /*wrap_scalar=*/false);
  const auto empty = std::ranges::count(self.sizes(), 0);
  TORCH_CHECK(empty <= 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
  if (self.size(axis) == 0) {
    const at::Tensor none = at::empty({0}, self.options().dtype(at::kLong));
    return {at::empty(self.sizes(), self.options()), none, none};
  }
  TORCH_CHECK(empty == 0,
              "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  const at::Tensor columns = self.movedim(axis, 0).reshape({self.size(axis), -1}).t();
  const Groups groups = sorted ? sorted_groups(rank_of_rows(columns)) : Groups(starts_of(columns).any(0), {});
  return {self.index_select(axis, groups.firsts()), groups.inverse(), groups.counts()};
}

// ---- from and to the stack

std::vector<c10::IValue> taken(c10::Stack& stack, size_t count) {
  std::vector<c10::IValue> arguments(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  torch::jit::drop(stack, count);
  return arguments;
}

void give(c10::Stack& stack, const Found& results, size_t count) {
  stack.emplace_back(std::get<0>(results));
  stack.emplace_back(std::get<1>(results));
  if (count == 3) stack.emplace_back(std::get<2>(results));
}

void unique(c10::Stack& stack) {  // self, sorted, return_inverse
  const auto given = taken(stack, 3);
  give(stack, unique_elements(given[0].toTensor(), true, given[2].toBool(), false), 2);
}

void unique2(c10::Stack& stack) {  // self, sorted, return_inverse, return_counts
  const auto given = taken(stack, 4);
  give(stack, unique_elements(given[0].toTensor(), true, given[2].toBool(), given[3].toBool()), 3);
}

void unique_consecutive(c10::Stack& stack) {  // self, return_inverse, return_counts, dim
  const auto given = taken(stack, 4);
  const at::Tensor& self = given[0].toTensor();
  const bool of_rows = !given[3].isNone() && !(self.dim() == 1 && given[3].toInt() == 0);
  give(stack,
       of_rows ? unique_rows(self, given[3].toInt(), false)
               : unique_elements(self, false, given[1].toBool(), given[2].toBool()),
       3);
}

void unique_dim(c10::Stack& stack) {  // self, dim, sorted, return_inverse, return_counts
  const auto given = taken(stack, 5);
  give(stack, unique_rows(given[0].toTensor(), given[1].toInt(), true), 3);
}

void unique_dim_consecutive(c10::Stack& stack) {  // self, dim, return_inverse, return_counts
  const auto given = taken(stack, 4);
  give(stack, unique_rows(given[0].toTensor(), given[1].toInt(), false), 3);
}

}  // namespace

void (*unique_on_device(std::string_view overload))(c10::Stack&) {
  if (overload == "aten::_unique") return &unique;
  if (overload == "aten::_unique2") return &unique2;
  if (overload == "aten::unique_consecutive") return &unique_consecutive;
  if (overload == "aten::unique_dim") return &unique_dim;
  if (overload == "aten::unique_dim_consecutive") return &unique_dim_consecutive;
  return nullptr;
}

}  // namespace heddle::torch_backend
