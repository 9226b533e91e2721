// expected_fixture.h: what a graph gives by the references, and how far a right answer may be from that.
//
//   What       Each node is computed three times: as its reference has it, and twice with its float operands
//              and results moved by some units in the last place. How far those two end from the first is
//              what rounding does to this graph with these operands; a tolerance is a multiple of it.
//   Steady     A value whose bits rounding cannot change: an input, a constant, and what is only moved,
//              chosen or compared of such. Floor, comparisons and the like jump, so that they are refused
//              operands that are not steady.
//   Threads    One thread.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "ir/graph.h"
#include "ir/op.h"

namespace heddle::differential {

inline constexpr size_t kMoved = 2;

struct Known {
  ir::Tensor right;
  std::array<ir::Tensor, kMoved> moved;
  bool steady = true;

  static Known exactly(const ir::Tensor& tensor) { return {tensor, {tensor, tensor}, true}; }
  // The largest difference that rounding made, over all elements; 0 of what is no float.
  double spread() const;
};

// The coarsest rounding that is taken for right. kBf16: products of f32 with factors rounded to bf16.
enum class Rounding : uint8_t { kOwn, kBf16 };

class Expected {
 public:
  explicit Expected(Rounding rounding = Rounding::kOwn) : rounding_(rounding) {}

  void set(ir::ValueId id, Known known) { known_[id] = std::move(known); }
  const Known& of(ir::ValueId id) const { return known_.at(id); }

  // The outputs of a node over values that are known. unsupported: its results say nothing, since they are
  // too large, not finite, or what they are depends on rounding. Others: what the reference says.
  Result<std::vector<Known>> compute(const ir::Node& node) const;

 private:
  Result<std::vector<Known>> chain(const ir::Node& node) const;
  Result<std::vector<ir::Tensor>> moved(const ir::Node& node, size_t which, bool steady,
                                        std::span<const ir::Tensor> right) const;

  Rounding rounding_;
  std::map<ir::ValueId, Known> known_;
};

// All outputs of a graph for these inputs, which may themselves be known up to rounding.
Result<std::vector<Known>> through(const ir::Graph& graph, std::span<const Known> inputs, Rounding rounding);
Result<std::vector<Known>> expect(const ir::Graph& graph, std::span<const ir::Tensor> inputs,
                                  Rounding rounding = Rounding::kOwn);

// Empty when `got` is within what rounding may do, else what differs first.
std::string difference(const ir::Tensor& got, const Known& wanted, Rounding rounding = Rounding::kOwn);

}  // namespace heddle::differential
