// window_step.h: what a convolution and a transposed one have in common: y = activation(op(x, w) + b), in
// pieces that the team may share.
//
//   What       A derived class says how an image is cut into rows and which operation computes a piece.
//              prepare() cuts the batch into images, and a lone image into rows.
//   Invariant  Where the engine is exact, every image is computed by the primitives of a lone one: its bits
//              depend neither on the other images nor on how many there are.
//   Threads    As step.h says.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "drivers/host/lowering.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/window_pieces.h"
#include "ir/window.h"

namespace heddle::host {

class WindowStep : public Step {
 public:
  Status run(const RunContext& context) const final;
  uint64_t scratch_bytes() const final { return scratch_; }
  void set_scratch(uint64_t offset) final { base_ = offset; }
  uint64_t resident_bytes() const final {
    return 1024 + primitives_.size() * Primitive::kResidentBytes + weight_.resident_bytes();
  }
  std::string path() const final { return path_of(primitives_, runs()); }

 protected:
  struct Problem {
    std::string_view kind;  // of the weight, for the store
    Dims weight_dims, weight_strides;
    WindowPiece whole;
    int64_t work;  // operations
    bool bf16 = false;
  };
  struct Operands {  // of one piece
    dnnl::memory::desc x, weights, bias, y;
    Dims strides, dilations;  // a dilation of 0 is none
    const dnnl::primitive_attr& attributes;
  };
  Status prepare(const Lowering& lowering, const ir::Window& window, Problem problem);

 private:
  // Empty when it cannot be cut into so many pieces.
  virtual std::vector<WindowPiece> cut_rows(const WindowPiece& image, int pieces) const = 0;
  // May throw dnnl::error.
  virtual dnnl::primitive_desc describe(const Engine& engine, const WindowPiece& piece,
                                        const Operands& operands) const = 0;

  Result<WindowDivision> divide(const Lowering& lowering, const ir::Window& window, const Problem& problem);
  Result<dnnl::primitive_desc> describe_piece(const Lowering& lowering, const ir::Window& window,
                                              const WindowPiece& piece,
                                              const dnnl::memory::desc& weights) const;
  Status prepare_pieces(const Engine& engine, WindowDivision division);
  Status run_piece(const RunContext& context, size_t index, uint64_t scratch) const;

  bool narrows() const { return bf16_ && !x_.narrow(); }  // the operand has to be rounded
  size_t runs() const { return pieces_.size() * repeats_; }

  Operand bias_;
  bool has_residual_ = false;
  bool bf16_ = false;
  Turned x_, y_, residual_;
  WeightOperand weight_;
  std::vector<WindowPiece> pieces_;               // of the batch, or of each image of it
  size_t repeats_ = 1;                            // how often the pieces are run: once, or for each image
  int64_t x_image_ = 0, y_image_ = 0;             // elements from one repeat to the next
  std::vector<Ref<const Primitive>> primitives_;  // by kind of piece
  size_t tasks_ = 1;                              // that the team shares; each runs pieces one after another
  uint64_t narrow_bytes_ = 0;                     // of a task's scratch: x in bf16
  uint64_t tasks_scratch_ = 0, task_bytes_ = 0;   // where the tasks' scratch begins, and its size for each
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

}  // namespace heddle::host
