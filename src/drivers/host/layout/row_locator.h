// row_locator.h: which row an element of an operand belongs to.
//
//   What       Made while lowering, from what the plan has proven about the node's operand. report() is for
//              steps that find a mistake in the data: it is recorded for the row, when the run has rows.
//   Invariant  Unknown, unless the operand has an axis that holds the rows: then every element has one row.
//   Threads    A value; report() may be called by all threads of a run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "drivers/host/lowering.h"

namespace heddle::host {

class RowLocator {
 public:
  RowLocator() = default;
  RowLocator(const Lowering& lowering, size_t input);

  // The mistake itself when the caller did not ask for rows, or when all rows share the element. Otherwise
  // records the fault and returns the end of that row's block, where checking resumes.
  Result<int64_t> report(const RunContext& context, int64_t element, Status mistake) const;

 private:
  int64_t extent_ = 0;  // of the axis with the rows; 0: unknown
  int64_t inner_ = 1;   // elements below it
};

}  // namespace heddle::host
