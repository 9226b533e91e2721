// block_program.h: an element-wise expression as a small register program that runs block by block.
//
//   What       Sources are operands broadcast to the shape of the results; instructions are the loops of
//              blocks.h; results are written where they belong by the instruction that makes them, when the
//              types allow it.
//   Invariant  Immutable after finish(). All results have one shape. Every element's bits are the same
//              however the range is cut.
//   Threads    run() by any number of threads, each with its own scratch.
#pragma once

#include <vector>

#include "drivers/host/kernels/elementwise/blocks.h"
#include "drivers/host/kernels/movement/strided.h"
#include "drivers/host/step.h"

namespace heddle::host {

class BlockProgram {
 public:
  using Register = int;

  explicit BlockProgram(const ir::Extents& shape) : shape_(shape), elements_(shape.elements()) {}

  Register source(const Operand& operand);
  Register emit(BlockKernel kernel, Register a, Register b = -1, Register c = -1, double alpha = 0,
                double beta = 0);
  void result(Register value, const Operand& output);
  void finish();

  int64_t elements() const { return elements_; }
  int64_t work() const { return elements_ * static_cast<int64_t>(instructions_.size()); }
  int64_t scratch_bytes() const;  // for one run at a time
  // Elements [begin, end); begin is a multiple of kBlock.
  void run(const RunContext& context, int64_t begin, int64_t end, std::byte* scratch) const;

 private:
  struct Source {
    Operand operand;
    Strided view;
    int64_t size;
    BlockKernel load;  // null: registers hold the same bytes
    Register target;
  };
  struct Instruction {
    BlockKernel run;
    Register a, b, c, d;
    double alpha, beta;
  };
  struct Result {
    Operand operand;
    Register value;
    int64_t size;
  };
  static constexpr int kInMemory = -1;  // the slot of a register that is an operand's own memory

  Register add_register() {
    slots_.push_back(kInMemory);
    return static_cast<Register>(slots_.size()) - 1;
  }
  Register unrounded(Register value, ir::DType dtype) const;
  void drop_unread();
  bool needs_slot(const Source& source) const;
  void assign_slots();
  const std::byte* load(const RunContext& context, const Source& source, int64_t begin, int64_t count,
                        std::byte* slot, std::byte* staging) const;

  ir::Extents shape_;
  int64_t elements_;
  std::vector<Source> sources_;
  std::vector<Instruction> instructions_;
  std::vector<Result> results_;
  std::vector<int> slots_;  // by register
  int slot_count_ = 0;
};

}  // namespace heddle::host
