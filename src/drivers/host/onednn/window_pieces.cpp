#include "drivers/host/onednn/window_pieces.h"

namespace heddle::host {

std::vector<WindowPiece> cut_images(const WindowPiece& whole, int pieces) {
  if (whole.y[0] % pieces != 0) return {};
  WindowPiece piece = whole;
  piece.x[0] = whole.x[0] / pieces;
  piece.y[0] = whole.y[0] / pieces;
  const int64_t x_elements = elements_of(piece.x), y_elements = elements_of(piece.y);
  std::vector<WindowPiece> cut;
  for (int i = 0; i < pieces; ++i) {
    piece.x_offset = i * x_elements;
    piece.y_offset = i * y_elements;
    cut.push_back(piece);
  }
  return cut;
}

}  // namespace heddle::host
