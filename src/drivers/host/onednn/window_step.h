// window_step.h: what a convolution and a transposed one have in common: y = activation(op(x, w) + b), in
// pieces that the team may share.
//
//   What       A derived class says how an image is cut into rows and which operation computes a piece.
//              prepare() cuts what is worth it into images, rows and panels of channels, so that every core
//              has a piece, however few images there are. A caller that no thread helps runs the whole, with
//              a packed weight of its own where the pieces need another layout than it has alone.
//   Invariant  Where the engine is exact, every image is computed by the primitives of a lone one, in the
//              same pieces whoever helps: its bits depend neither on the other images nor on how many.
//   Threads    As step.h says.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "drivers/host/lowering.h"
#include "drivers/host/onednn/channels.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/window_division.h"
#include "ir/window.h"

namespace heddle::host {

class WindowStep : public Step {
 public:
  Status run(const RunContext& context) const final;
  uint64_t scratch_bytes() const final { return scratch_; }
  void set_scratch(uint64_t offset) final { base_ = offset; }
  uint64_t resident_bytes() const final {
    return 1024 + (primitives_.size() + 1) * Primitive::kResidentBytes + weight_.resident_bytes();
  }
  std::string path() const final { return path_of(primitives_, runs()); }
  Sharing sharing() const final { return sharing_; }

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
  std::vector<WindowPiece> pieces_of(const WindowPiece& whole, const WindowCut& cut, int64_t block) const;
  Result<dnnl::primitive_desc> describe_piece(const Lowering& lowering, const ir::Window& window,
                                              const WindowPiece& piece,
                                              const dnnl::memory::desc& weights) const;
  Result<Ref<const Primitive>> make_primitive(const Engine& engine, const dnnl::primitive_desc& desc) const;
  Status prepare_pieces(const Engine& engine, const WindowDivision& division);
  Status prepare_whole(const Lowering& lowering, const ir::Window& window, const Problem& problem,
                       const dnnl::memory::desc& plain);
  Status run_piece(const RunContext& context, const WindowPiece& piece, const Primitive& primitive,
                   const std::byte* weight, int64_t image, uint64_t scratch) const;
  Status run_pieces(const RunContext& context, size_t first, size_t last, uint64_t scratch) const;

  bool narrows() const { return bf16_ && !x_.narrow(); }  // the operand has to be rounded
  size_t runs() const { return pieces_.size() * repeats_; }
  // oneDNN's kernels want channels that lie side by side: a panel is computed apart.
  bool is_apart(const WindowPiece& piece) const { return piece.y[1] < channels_; }
  uint64_t narrow_bytes(const WindowPiece& piece) const;
  uint64_t apart_bytes(const Turned& operand, const WindowPiece& piece) const;
  uint64_t scratch_of(const WindowPiece& piece, const Primitive& primitive) const;
  void copy_panel(const WindowPiece& piece, const std::byte* from, std::byte* to, int64_t element,
                  bool into_panel) const;

  Operand bias_;
  bool has_residual_ = false;
  bool bf16_ = false;
  int64_t channels_ = 0;
  Turned x_, y_, residual_;
  WeightOperand weight_;
  WindowLayout layout_;
  std::vector<WindowPiece> pieces_;               // of the batch, or of each image of it
  size_t repeats_ = 1;                            // how often the pieces are run: once, or for each image
  int64_t x_image_ = 0, y_image_ = 0;             // elements from one repeat to the next
  std::vector<Ref<const Primitive>> primitives_;  // by kind of piece
  WindowPiece whole_;
  Ref<const Primitive> whole_primitive_;         // null: pieces are all there is
  std::optional<WeightOperand> whole_weight_;    // none: it lies as for the pieces
  size_t tasks_ = 1;                             // that the team shares; each runs pieces one after another
  uint64_t tasks_scratch_ = 0, task_bytes_ = 0;  // where the tasks' scratch begins, and its size for each
  Sharing sharing_;
  uint64_t scratch_ = 0;
  uint64_t base_ = 0;
};

}  // namespace heddle::host
