// dynamic_shapes.h: which extents vary among the calls of an operator, so that one graph serves them all.
//
//   What       Calls that are alike in all but extents are of one kind. The first call of a kind gets a graph
//              of its own extents. From the second shape on, the extents that were seen to differ are free
//              dimensions of the graph, and those of them that are equal in the call share a name. An extent
//              of 0 or 1, of an operand or a result, is never free: it decides what is empty and what is
//              broadcast.
//   Source     torch.compile treats shapes alike ("automatic dynamic", "duck shaping", "0/1 specialization").
//   Threads    Any. What varies is a set of bits that only grows; who misses the latest gets a graph that
//              serves fewer calls.
#pragma once

#include <heddle/heddle.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "call_key.h"

namespace heddle::torch_backend {

class Dims {
 public:
  // Those of a call that vary are free. `results`: extents of its results; none where they follow from the
  // operands' as is_checked_by_equality() says.
  static Dims free(const CallKey& call, const std::vector<int64_t>& results = {});
  static Dims fixed(const CallKey& call);

  bool any_free() const { return any_free_; }
  const std::string& key() const { return key_; }  // of the graph for such calls
  // The nth extent of the call, as a dimension of a graph's input.
  GraphBuilder::DimArgument operator[](size_t n) const;

 private:
  explicit Dims(const CallKey& call) : call_(call), names_(call.extents.size()), key_(call.kind()) {}
  void name(uint64_t free);

  const CallKey& call_;
  std::vector<std::optional<int>> names_;  // by extent; none: it is fixed
  bool any_free_ = false;
  std::string key_;
};

// Whether PyTorch takes or refuses the operator's calls by which extents are equal and which are 0 or 1: what
// it said of one call with free dimensions it says of all of that key. Elsewhere an extent may be too small:
// for a window, an index, a part.
bool is_checked_by_equality(std::string_view op);

void forget_kinds();

}  // namespace heddle::torch_backend
