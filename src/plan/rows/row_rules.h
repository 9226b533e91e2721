// row_rules.h: per operator, where the rows of its result lie when one knows where those of its operands lie.
//
//   What       A Row is what one caller brings: index i along axis 0 of every input. joined(): for a node,
//              the place of the rows in its outputs, or why they cannot be told apart any more. A rule may
//              only look at types and at operands that are fixed.
//   Invariant  Sound, not complete: a rule that does not see why rows stay apart says that they do not.
//              Results are checked against the inferred shape afterwards, in batchable().
//   Threads    Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ir/op.h"

namespace heddle::plan {

struct Rows {
  enum class Kind : uint8_t {
    kAbsent,  // an optional operand that was left out
    kFixed,   // the same for every batch
    kShaped,  // follows from shapes, the batch's extent among them: good as a shape, not as data
    kRows,    // along `axis`, whose extent is batch * block, row r owns [r * block, (r + 1) * block)
    kMixed,   // rows meet; `reason` says where
  };
  Kind kind = Kind::kFixed;
  size_t axis = 0;
  ir::Dim block = 1;
  std::string reason;

  bool rows() const { return kind == Kind::kRows; }
  bool fixed() const { return kind == Kind::kFixed || kind == Kind::kAbsent; }
  static Rows along(size_t axis, ir::Dim block) { return {Kind::kRows, axis, std::move(block), {}}; }
  static Rows mixed(std::string reason) { return {Kind::kMixed, 0, 1, std::move(reason)}; }
};

// One node with at least one operand of kind kRows and none of kind kMixed or, as data, kShaped.
struct RowContext {
  const ir::Graph& graph;
  const ir::Node& node;
  const std::vector<Rows>& in;
  const ir::Dim& batch;

  const ir::Shape& shape(size_t input) const { return graph.type(node.inputs[input]).shape; }
  const ir::Shape& result() const { return graph.type(node.outputs[0]).shape; }
  bool rows(size_t input) const { return input < in.size() && in[input].rows(); }
  bool fixed(size_t input) const { return input >= in.size() || in[input].fixed(); }
};

struct RowRule {
  std::string_view op;
  Rows (*rule)(const RowContext& context);
  int first_shape_operand = -1;  // from here on operands are shapes, positions or counts; -1: none
};

// Null for an operator without a rule of its own; element-wise operators share one.
const RowRule* find_row_rule(const ir::OpDef& op);

// The families.
std::vector<RowRule> movement_row_rules();
std::vector<RowRule> arithmetic_row_rules();
std::vector<RowRule> placement_row_rules();
Rows elementwise_rows(const RowContext& context);
// Operands that broadcast together, the last `keep` axes of each left out of account.
Rows broadcast_rows(const RowContext& context, const std::vector<size_t>& operands, size_t keep);

}  // namespace heddle::plan
