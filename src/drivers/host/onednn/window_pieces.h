// window_pieces.h: the output of a convolution cut into pieces that share one layout of the weight.
//
//   What       A WindowCut says into how many parts the images, the rows of an image (a row: one index of the
//              first spatial axis) and the channels are cut. A WindowPiece is whole images, or rows of one
//              image, with the part of the input that it needs, of all channels or of a panel of them. With
//              channels last a piece of all channels is contiguous; a panel is computed apart. A panel is
//              blocks of channels that lie together in the weight, so that its weight is a part of the whole.
//   Choice     cuts_of() orders cuts by an estimate of the time that they take on so many cores: what the
//              busiest core multiplies and reads.
//   Threads    Any.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "drivers/host/onednn/descriptors.h"

namespace heddle::host {

struct WindowPiece {
  int64_t x_offset = 0, y_offset = 0;  // elements
  int64_t channel = 0;                 // the first one of y
  Dims x, y, begin, end;               // begin, end: the padding, or what a transposed convolution cuts off
  size_t kind = 0;                     // pieces of one kind differ in their offsets and channels only

  bool is_like(const WindowPiece& other) const {
    return x == other.x && y == other.y && begin == other.begin && end == other.end;
  }
};

struct WindowCut {
  int64_t images = 1, rows = 1, panels = 1;
  int64_t pieces() const { return images * rows * panels; }
  friend bool operator==(const WindowCut&, const WindowCut&) = default;
};

// What cuts are chosen by.
struct WindowWork {
  int64_t images, rows, channels;  // of the output
  int64_t operations;
  int64_t x_bytes, y_bytes, weight_bytes;
};

// In the unit of WindowWork::operations, of the busiest of `width` cores.
double cost_of(const WindowWork& work, const WindowCut& cut, int64_t block, int width);

// At most `most` cuts, the cheapest first. `block`: channels that lie together in the weight; 0: no panels.
std::vector<WindowCut> cuts_of(const WindowWork& work, int64_t block, int width, size_t most);

// Of all operations, over what `width` cores could do while the busiest of them is at it.
double balance_of(const WindowWork& work, const WindowCut& cut, int64_t block, int width);

// "2 images x 4 rows x 4 panels", without what is not cut.
std::string words_of(const WindowCut& cut);

// The images cut evenly, but for one more in some of the pieces.
std::vector<WindowPiece> cut_images(const WindowPiece& whole, int64_t pieces);

// An image whose windows begin `stride` rows after each other and reach over so many, cut into rows of the
// output. Empty when one of them would see nothing but padding.
std::vector<WindowPiece> cut_window_rows(const WindowPiece& image, int64_t pieces, int64_t stride,
                                         int64_t reach);

// Every piece cut into panels of whole blocks.
std::vector<WindowPiece> cut_panels(const std::vector<WindowPiece>& pieces, int64_t panels, int64_t block);

// Sets the pieces' kinds; returns the first piece of each.
std::vector<const WindowPiece*> find_kinds(std::vector<WindowPiece>& pieces);

}  // namespace heddle::host
