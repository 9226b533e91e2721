// indices.h: an operand whose elements are positions along axes of another.
//
//   What       check() is called before a step moves anything. A Position counts from the end where its index
//              is negative. Points are indices whose last axis holds a position for each of several axes.
//   Errors     invalid, naming the node, the first index outside and what would be right; unless each index
//              outside belongs to a row that could be told so.
//   Threads    A value; the functions read the run's memory only.
#pragma once

#include <string>
#include <vector>

#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/layout/row_locator.h"

namespace heddle::host {

// Of one run.
class Positions {
 public:
  static constexpr int64_t kNone = -1;

  Positions(const RunContext& context, const Operand& indices)
      : narrow_(indices.dtype == ir::DType::kI32 ? context.read<int32_t>(indices) : nullptr),
        wide_(context.read<int64_t>(indices)) {}

  int64_t index(int64_t at) const { return narrow_ != nullptr ? narrow_[at] : wide_[at]; }
  // With kOutside: kNone for an index outside.
  template <bool kOutside>
  int64_t of(int64_t at, int64_t extent) const {
    const int64_t found = index(at);
    if constexpr (kOutside) {
      if (found < -extent || found >= extent) return kNone;
    }
    return found < 0 ? found + extent : found;
  }

 private:
  const int32_t* narrow_;  // null: wide
  const int64_t* wide_;
};

class Indices {
 public:
  Indices(const Lowering& lowering, size_t input)
      : operand_(lowering.inputs[input]), rows_(lowering, input), node_(lowering.node.describe()) {}

  const ir::Extents& extents() const { return operand_.extents; }
  int64_t elements() const { return operand_.elements(); }

  // Every step-th from `first` on has to lie within [-extent, extent). True: some do not, which their rows
  // have been told, and positions have to be asked for with kOutside from now on.
  Result<bool> check(const RunContext& context, int64_t first, int64_t step, int64_t extent) const;

  Positions positions(const RunContext& context) const { return {context, operand_}; }

 private:
  int64_t find_outside(const RunContext& context, int64_t from, int64_t step, int64_t extent) const;

  Operand operand_;
  RowLocator rows_;
  std::string node_;
};

class Points {
 public:
  // Of input 0, from its axis `first_axis` on.
  Points(const Lowering& lowering, size_t input, size_t first_axis);

  size_t depth() const { return axes_.size(); }  // axes that a point names
  Result<bool> check(const RunContext& context) const;
  Positions positions(const RunContext& context) const { return indices_.positions(context); }
  // Where point `at` lies, from that of the first. With kOutside: kNone for one outside.
  template <bool kOutside>
  int64_t offset(const Positions& positions, int64_t at) const {
    int64_t offset = 0;
    int64_t element = at * static_cast<int64_t>(axes_.size());
    for (const Axis& axis : axes_) {
      const int64_t position = positions.of<kOutside>(element++, axis.extent);
      if (kOutside && position == Positions::kNone) return position;
      offset += position * axis.stride;
    }
    return offset;
  }

 private:
  struct Axis {
    int64_t extent, stride;
  };
  Indices indices_;
  std::vector<Axis> axes_;
};

}  // namespace heddle::host
