// expression.h: element-wise nodes, one or a fused graph of them, compiled to a BlockProgram.
//
//   What       Expression turns operator names, dtypes and attributes into instructions. Sixteen-bit floats
//              stay f32 between the instructions of one program, except where a Cast asks for the rounding;
//              narrow integers wrap after each.
//   Threads    Used by one thread while lowering.
#pragma once

#include <map>
#include <vector>

#include "drivers/host/kernels/elementwise/block_program.h"
#include "ir/graph.h"

namespace heddle::host {

class Expression {
 public:
  struct Term {
    BlockProgram::Register value = -1;
    ir::DType dtype = ir::DType::kF32;
    const ir::Tensor* constant = nullptr;  // when it is known now and has one element
    bool whole = true;                     // value holds exactly what dtype can hold
    bool present() const { return value >= 0; }
  };

  explicit Expression(BlockProgram& program) : program_(program) {}

  Term operand(const Operand& operand, const ir::Tensor* constant = nullptr);
  Result<Term> node(const ir::Node& node, const std::vector<Term>& inputs);
  void result(const Term& term, const Operand& output) { program_.result(term.value, output); }

 private:
  Result<Term> apply(std::string_view op, std::vector<Term> inputs, double alpha = 0, double beta = 0);
  Result<Term> fold(std::string_view op, const std::vector<Term>& inputs);
  Result<Term> clip(const std::vector<Term>& inputs);
  Result<Term> power(const std::vector<Term>& inputs);
  Term cast(Term term, ir::DType to);
  Term whole(Term term);

  BlockProgram& program_;
};

}  // namespace heddle::host
