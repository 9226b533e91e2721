// control.h: the parts of If and Loop that the shape rule, the passes and the drivers read alike.
//
//   If         Inputs: condition (one bool), then what the branches read of the graph around them. Both
//              branches take all of that, in this order, as their inputs. A branch that no shape rule can
//              type (its file is wrong for these ranks) is absent, and a text says why: a run that chooses it
//              is refused.
//   Loop       Inputs: trip count (i64), condition (bool), `carried` values, then what the body reads of the
//              graph around it. The body takes the number of the iteration, the condition, the carried values
//              and the rest; it gives the condition, the carried values, and values that are stacked along a
//              new axis 0. Scan is read as a Loop.
//   Rule       A loop of up to kMaxUnrolled iterations is unrolled once its count is known. A longer one runs
//              its body as a program of its own, so its carried values keep their shapes and its condition
//              stays true.
//   Threads    Pure.
#pragma once

#include <memory>
#include <optional>

#include "ir/op.h"

namespace heddle::ir {

inline constexpr int64_t kMaxUnrolled = 64;

// Of a value with one element, when it is known while compiling.
std::optional<int64_t> known_number(const Value& value);

struct Branch {
  std::shared_ptr<const Graph> graph;  // null: absent
  std::string refusal;
};
Branch branch_of(const Node& node, bool taken);
Status refused(const Branch& branch, bool taken);

struct LoopForm {
  const Graph* body;
  size_t carried;
  size_t scans;
};
LoopForm loop_form(const Node& loop);  // of a node that check_loop() has seen
Status check_loop(const Node& loop);

// One iteration by the shape rules, whatever its number: does the body say that the condition stays true, and
// do its carried values keep their types?
struct Iteration {
  std::vector<Value> outputs;
  bool goes_on;
  bool steady;
};
Result<Iteration> any_iteration(const Node& loop, std::span<const Value* const> in);

}  // namespace heddle::ir
