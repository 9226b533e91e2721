// sequence_lengths.h: how many steps each example of a recurrent node has.
//
//   What       check() is called before anything is computed; of() is 0 for a length that makes no sense.
//   Errors     As indices.h: invalid, or recorded for the rows whose lengths are wrong.
//   Threads    A value; the functions read the run's memory only.
#pragma once

#include <string>

#include "drivers/host/kernels/movement/movement.h"
#include "drivers/host/layout/row_locator.h"

namespace heddle::host {

class SequenceLengths {
 public:
  static constexpr size_t kInput = 4;  // of RNN, GRU and LSTM

  SequenceLengths() = default;                         // nothing to check
  explicit SequenceLengths(const Lowering& lowering);  // of a recurrent node: all steps where it has no input

  Result<bool> check(const RunContext& context) const;  // true: some are wrong, which their rows were told
  int64_t of(const RunContext& context, int64_t example) const {
    if (!operand_.present()) return steps_;
    const int64_t length = read_index(context, operand_, example);
    return right(length) ? length : 0;
  }
  ir::Tensor tensor(const RunContext& context) const;  // of all examples, as of() tells them

 private:
  bool right(int64_t length) const { return length >= 0 && length <= steps_; }

  Operand operand_;
  RowLocator rows_;
  std::string node_;
  int64_t steps_ = 0;
};

}  // namespace heddle::host
