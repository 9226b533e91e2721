// window_pieces.h: the output of a convolution cut into pieces that share one layout of the weight.
//
//   What       A WindowPiece is whole images, or rows of one image (a row: one index of the first spatial
//              axis), with the part of the input that it needs. With channels last both are contiguous.
//              describe_pieces() tries the layouts of the weight that oneDNN would choose for each kind of
//              piece alone. It prefers one in which every piece keeps the implementation that it has alone,
//              then one in which none has the reference.
//   Errors     Those of the callback.
//   Threads    Any.
#pragma once

#include <algorithm>
#include <string_view>
#include <vector>

#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"

namespace heddle::host {

struct WindowPiece {
  int64_t x_offset = 0, y_offset = 0;  // elements
  Dims x, y, begin, end;               // begin, end: the padding, or what a transposed convolution cuts off
  size_t kind = 0;                     // pieces of one kind differ in their offsets only

  bool is_like(const WindowPiece& other) const {
    return x == other.x && y == other.y && begin == other.begin && end == other.end;
  }
};

// Empty unless the images divide evenly.
std::vector<WindowPiece> cut_images(const WindowPiece& whole, int pieces);

struct WindowDivision {
  std::vector<WindowPiece> pieces;
  std::vector<dnnl::primitive_desc> kinds;
  bool fast = true;

  dnnl::memory::desc weights() const { return kinds[0].weights_desc(); }
};

// describe(piece, layout of the weight) -> Result<dnnl::primitive_desc>. `any` leaves the layout to oneDNN.
// Sets the pieces' kinds.
template <class Describe>
Result<WindowDivision> describe_pieces(std::vector<WindowPiece> pieces, const dnnl::memory::desc& any,
                                       Describe describe) {
  using Desc = dnnl::primitive_desc;
  std::vector<const WindowPiece*> kinds;
  std::vector<Desc> alone;  // as oneDNN would compute each kind
  for (WindowPiece& piece : pieces) {
    piece.kind = 0;
    while (piece.kind < kinds.size() && !kinds[piece.kind]->is_like(piece)) ++piece.kind;
    if (piece.kind < kinds.size()) continue;
    HEDDLE_TRY_ASSIGN(Desc desc, describe(piece, any));
    kinds.push_back(&piece);
    alone.push_back(std::move(desc));
  }
  WindowDivision best;
  int best_rank = -1;  // 2: every piece as alone; 1: none in the reference
  std::vector<dnnl::memory::desc> layouts;
  for (const Desc& wish : alone) {
    const dnnl::memory::desc layout = wish.weights_desc();
    if (best_rank == 2 || std::ranges::find(layouts, layout) != layouts.end()) continue;
    layouts.push_back(layout);
    WindowDivision tried;
    bool as_alone = true;
    for (size_t i = 0; i < kinds.size(); ++i) {
      HEDDLE_TRY_ASSIGN(Desc desc, alone[i].weights_desc() == layout ? Result<Desc>(alone[i])
                                                                     : describe(*kinds[i], layout));
      const std::string_view name = desc.impl_info_str();
      tried.fast = tried.fast && !is_reference(name);
      as_alone = as_alone && name == alone[i].impl_info_str();
      tried.kinds.push_back(std::move(desc));
    }
    const int rank = !tried.fast ? 0 : as_alone ? 2 : 1;
    if (rank > best_rank) best = std::move(tried);
    best_rank = std::max(best_rank, rank);
  }
  best.pieces = std::move(pieces);
  return best;
}

// cut(n) -> std::vector<WindowPiece>: empty where there are no such n pieces.
template <class Cut, class Describe>
Result<WindowDivision> divide_window(int most, const dnnl::memory::desc& any, Cut cut, Describe describe) {
  return finest_division<WindowDivision>(most, [&](int n) -> Result<std::optional<WindowDivision>> {
    std::vector<WindowPiece> pieces = cut(n);
    if (pieces.empty()) return std::optional<WindowDivision>();
    HEDDLE_TRY_ASSIGN(WindowDivision division, describe_pieces(std::move(pieces), any, describe));
    return std::optional<WindowDivision>(std::move(division));
  });
}

}  // namespace heddle::host
