// movement.h: what a chain of reshapes and transposes does to the axes of the tensor it starts from.
//
//   What       Each axis of the result is a row-major product of pieces; a piece walks along one axis of the
//              source with a stride. So chains that are spelled differently but move elements alike give the
//              same description, and a chain's meaning can be compared with a wanted one without listing
//              spellings.
//   Invariant  Extents are exact for all values of the symbols (Dim::divide_exact).
//   Threads    Pure.
#pragma once

#include <optional>
#include <vector>

#include "plan/passes/rewrite.h"

namespace heddle::plan {

struct Piece {
  size_t axis;  // of the source
  ir::Dim extent;
  ir::Dim stride;  // in elements along that axis; 0 repeats one place
};

// The pieces, outermost first, as the axes of a tensor with the shape `to`; nothing when its axes do not end
// where pieces do.
std::optional<std::vector<std::vector<Piece>>> regroup(std::vector<Piece> pieces, const ir::Shape& to);

struct Movement {
  ir::ValueId source = ir::kNoValue;
  std::vector<std::vector<Piece>> axes;  // of the result; an axis of extent 1 has none
  std::vector<int64_t> base;             // per source axis: where the result begins
  double scale = 1;                      // the product of constant scalars met on the way
  std::vector<const ir::Node*> nodes;    // from the source to the result

  bool whole() const;  // nothing was cut off and nothing scaled
};

struct MovementOptions {
  // Also through Gather of one index, Slice and Split, with constant positions, and Expand.
  bool picks = false;
  bool scales = false;  // also through Mul and Div by a constant scalar
};

// The longest chain that ends at `id` and can be described. At worst the source is `id` itself.
Movement trace(const Rewriter& rewriter, ir::ValueId id, MovementOptions options = {});
// The same for a chain of at most `longest` reshapes and transposes whose last node is `last`, which need not
// be kept yet.
Movement trace(const Rewriter& rewriter, const ir::Node& last, size_t longest);

// The axis of the source that an axis of the result walks along, whole and in steps of one; nothing when it
// does not.
std::optional<size_t> whole_axis(const Rewriter& rewriter, const Movement& movement, size_t result_axis);

// Nodes that do the same with at most one Transpose and one Reshape.
struct ShortMovement {
  std::vector<int64_t> perm;  // empty: none needed
  bool reshape = false;
};
std::optional<ShortMovement> shorten(const Rewriter& rewriter, const Movement& movement,
                                     const ir::Shape& result);

// The constant `shape` input (allowzero = 0) that makes Reshape give `to`, when numbers, 0 and -1 can say it.
std::optional<std::vector<int64_t>> reshape_spec(const ir::Shape& from, const ir::Shape& to);

}  // namespace heddle::plan
