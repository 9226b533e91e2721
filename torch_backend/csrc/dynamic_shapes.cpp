// dynamic_shapes.cpp: kinds of calls, and what was seen of each.
#include "dynamic_shapes.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace heddle::torch_backend {
namespace {

constexpr std::string_view kCheckedByEquality[] = {"aten::_softmax",
                                                   "aten::_to_copy",
                                                   "aten::abs",
                                                   "aten::add.Scalar",
                                                   "aten::add.Tensor",
                                                   "aten::addmm",
                                                   "aten::amax",
                                                   "aten::argmax",
                                                   "aten::baddbmm",
                                                   "aten::bitwise_and.Tensor",
                                                   "aten::bitwise_not",
                                                   "aten::bitwise_or.Tensor",
                                                   "aten::bmm",
                                                   "aten::cat",
                                                   "aten::clamp",
                                                   "aten::clone",
                                                   "aten::cos",
                                                   "aten::cumsum",
                                                   "aten::div.Scalar",
                                                   "aten::div.Tensor",
                                                   "aten::embedding",
                                                   "aten::eq.Scalar",
                                                   "aten::eq.Tensor",
                                                   "aten::exp",
                                                   "aten::ge.Scalar",
                                                   "aten::ge.Tensor",
                                                   "aten::gelu",
                                                   "aten::gt.Scalar",
                                                   "aten::gt.Tensor",
                                                   "aten::index.Tensor",
                                                   "aten::index_select",
                                                   "aten::le.Scalar",
                                                   "aten::le.Tensor",
                                                   "aten::linear",
                                                   "aten::log",
                                                   "aten::logical_and",
                                                   "aten::logical_not",
                                                   "aten::logical_or",
                                                   "aten::lt.Scalar",
                                                   "aten::lt.Tensor",
                                                   "aten::masked_fill.Scalar",
                                                   "aten::masked_fill.Tensor",
                                                   "aten::mean.dim",
                                                   "aten::mm",
                                                   "aten::mul.Scalar",
                                                   "aten::mul.Tensor",
                                                   "aten::native_layer_norm",
                                                   "aten::ne.Scalar",
                                                   "aten::ne.Tensor",
                                                   "aten::neg",
                                                   "aten::pow.Tensor_Scalar",
                                                   "aten::reciprocal",
                                                   "aten::relu",
                                                   "aten::rms_norm",
                                                   "aten::rsqrt",
                                                   "aten::rsub.Scalar",
                                                   "aten::scaled_dot_product_attention",
                                                   "aten::sigmoid",
                                                   "aten::silu",
                                                   "aten::sin",
                                                   "aten::sqrt",
                                                   "aten::sub.Scalar",
                                                   "aten::sub.Tensor",
                                                   "aten::sum",
                                                   "aten::sum.dim_IntList",
                                                   "aten::tanh",
                                                   "aten::where.self"};
static_assert(std::ranges::is_sorted(kCheckedByEquality));

constexpr size_t kMostFree = 64;  // extents of a call that may be free: the first ones

struct Kind {
  explicit Kind(std::vector<int64_t> extents) : first(std::move(extents)) {}

  const std::vector<int64_t> first;          // extents of the first call
  mutable std::atomic<uint64_t> varying{0};  // bit n: extent n was seen to differ from it; a hint
};

OnceCache& kinds() {
  static OnceCache& made = *new OnceCache(16384);  // threads may outlive every static
  return made;
}

uint64_t varying(const CallKey& call) {
  const auto kind = std::static_pointer_cast<const Kind>(
      kinds().get_or_make(call.kind(), [&] { return std::make_shared<const Kind>(call.extents); }));
  uint64_t seen = 0;
  for (size_t i = 0; i < call.extents.size() && i < kMostFree; ++i) {
    if (call.extents[i] != kind->first[i]) seen |= uint64_t{1} << i;
  }
  return kind->varying.fetch_or(seen, std::memory_order_relaxed) | seen;
}

}  // namespace

Dims Dims::free(const CallKey& call, const std::vector<int64_t>& results) {
  Dims dims(call);
  dims.name(varying(call));
  if (!dims.any_free_) return dims;
  for (const int64_t extent : results) dims.key_.push_back(extent == 0 ? '0' : extent == 1 ? '1' : '?');
  return dims;
}

Dims Dims::fixed(const CallKey& call) {
  Dims dims(call);
  dims.name(0);
  return dims;
}

void Dims::name(uint64_t free) {
  int next = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    const int64_t extent = call_.extents[i];
    if (i >= kMostFree || (free >> i & 1) == 0 || extent < 2) {
      char bytes[sizeof extent];
      std::memcpy(bytes, &extent, sizeof extent);
      key_.push_back('=');
      key_.append(bytes, sizeof bytes);
      continue;
    }
    for (size_t before = 0; before < i && !names_[i]; ++before) {
      if (call_.extents[before] == extent) names_[i] = names_[before];
    }
    if (!names_[i]) names_[i] = next++;
    key_.push_back('s');
    key_.push_back(static_cast<char>(*names_[i]));
    any_free_ = true;
  }
}

GraphBuilder::DimArgument Dims::operator[](size_t n) const {
  if (!names_[n]) return call_.extents[n];
  return "s" + std::to_string(*names_[n]);
}

bool is_checked_by_equality(std::string_view op) {
  return std::ranges::binary_search(kCheckedByEquality, op);
}

void forget_kinds() { kinds().clear(); }

}  // namespace heddle::torch_backend
