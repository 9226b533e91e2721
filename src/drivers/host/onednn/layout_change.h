// layout_change.h: an operand of a step in another layout, inside the step's scratch.
//
//   What       The reorder between the operand where it lies (outside) and its copy in the scratch, one way
//              or the other. A large one is cut along an axis into pieces that the team shares. An outside of
//              f16 or bf16 may go into f32: a piece at a time is widened and reordered in a core's cache.
//   Threads    Prepared once, run by any number of threads.
#pragma once

#include <optional>
#include <vector>

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/step.h"

namespace heddle::host {

class LayoutChange {
 public:
  enum class Way : uint8_t { kInput, kOutput };
  LayoutChange() = default;  // none
  // `scratch` grows by what a run needs. An outside that is widened is an input, contiguous and row-major.
  static Result<LayoutChange> make(const Engine& engine, const dnnl::memory::desc& outside,
                                   const dnnl::memory::desc& inside, Way way, uint64_t& scratch,
                                   int width = 1);

  explicit operator bool() const { return !pieces_.empty(); }
  size_t pieces() const { return pieces_.size(); }
  // `base` is where the step's scratch begins in the arena.
  std::byte* address(const RunContext& context, uint64_t base) const {
    return context.arena + base + offset_;
  }
  Status run(const RunContext& context, uint64_t base, const std::byte* outside) const;
  uint64_t resident_bytes() const { return reorders_.size() * Primitive::kResidentBytes; }

 private:
  struct Piece {
    size_t reorder;
    int64_t outside, inside;  // bytes from where the operand begins
    int64_t run;              // elements of the outside that lie side by side
  };
  struct Cut {
    size_t axis;
    int64_t pieces;
    int64_t grain = 1;  // of their sizes: the elements of a block
  };
  struct Widening {
    ir::DType from;
    int64_t runs;          // of each piece
    int64_t bytes_apart;   // of runs that follow each other
    uint64_t piece_bytes;  // of the largest piece in f32
  };
  static Cut choose_cut(const dnnl::memory::desc& outside, const dnnl::memory::desc& inside, int width);
  Status run_pieces(const RunContext& context, uint64_t base, const std::byte* outside, size_t task) const;
  const std::byte* widen(const Piece& piece, const std::byte* outside, std::byte* scratch) const;

  Way way_ = Way::kInput;
  std::optional<Widening> widening_;
  size_t tasks_ = 1;  // that the team shares; each runs pieces one after another
  uint64_t offset_ = 0;
  uint64_t tasks_scratch_ = 0, task_bytes_ = 0;  // where it begins, and its size for each task
  std::vector<Ref<const Primitive>> reorders_;   // by size of piece
  std::vector<Piece> pieces_;
};

}  // namespace heddle::host
