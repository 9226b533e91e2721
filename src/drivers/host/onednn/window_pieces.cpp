#include "drivers/host/onednn/window_pieces.h"

#include <algorithm>

#include "base/status.h"

namespace heddle::host {
namespace {

// Operations that a core could do meanwhile, roughly: starting a piece, and reading or writing a byte.
constexpr double kOfPiece = 150'000, kOfByte = 4;
// So many pieces for each core even out what does not divide.
constexpr int64_t kPiecesPerCore = 3;

int64_t most_of(int64_t total, int64_t parts) { return (total + parts - 1) / parts; }

struct Largest {  // piece, as parts of the whole
  double images, rows, channels;
  double part() const { return images * rows * channels; }
};

Largest largest_of(const WindowWork& work, const WindowCut& cut, int64_t block) {
  const auto part = [](int64_t total, int64_t parts) {
    return static_cast<double>(most_of(total, parts)) / static_cast<double>(total);
  };
  const int64_t blocks = block == 0 ? 1 : most_of(work.channels, block);
  return {part(work.images, cut.images), part(work.rows, cut.rows), part(blocks, cut.panels)};
}

double rounds_of(const WindowCut& cut, int width) {
  return static_cast<double>(most_of(cut.pieces(), width));
}

}  // namespace

double cost_of(const WindowWork& work, const WindowCut& cut, int64_t block, int width) {
  const Largest piece = largest_of(work, cut, block);
  // A panel is written apart, and copied.
  const double written = static_cast<double>(work.y_bytes) * piece.part() * (cut.panels > 1 ? 3 : 1);
  const double read = static_cast<double>(work.x_bytes) * piece.images * piece.rows +
                      static_cast<double>(work.weight_bytes) * piece.channels;
  return rounds_of(cut, width) *
         (static_cast<double>(work.operations) * piece.part() + kOfByte * (read + written) + kOfPiece);
}

std::vector<WindowCut> cuts_of(const WindowWork& work, int64_t block, int width, size_t most) {
  const int64_t pieces = kPiecesPerCore * width;
  const int64_t blocks = block == 0 ? 1 : most_of(work.channels, block);
  struct Costed {
    WindowCut cut;
    double cost;
  };
  std::vector<Costed> all;
  for (int64_t panels = 1; panels <= std::min(pieces, blocks); ++panels) {
    // More panels of no fewer blocks.
    if (panels > 1 && most_of(blocks, panels) == most_of(blocks, panels - 1)) continue;
    for (int64_t images = 1; images <= std::min(pieces / panels, work.images); ++images) {
      const int64_t rows_most = images < work.images ? 1 : std::min(pieces / panels / images, work.rows);
      for (int64_t rows = 1; rows <= rows_most; ++rows) {
        const WindowCut cut{images, rows, panels};
        all.push_back({cut, cost_of(work, cut, block, width)});
      }
    }
  }
  std::ranges::stable_sort(all, {}, &Costed::cost);
  std::vector<WindowCut> cuts;
  for (const Costed& each : all) {
    if (cuts.size() < most) cuts.push_back(each.cut);
  }
  return cuts;
}

double balance_of(const WindowWork& work, const WindowCut& cut, int64_t block, int width) {
  // Of several rounds the largest pieces are rarely all one core's.
  return std::min(1.0, 1 / (largest_of(work, cut, block).part() * rounds_of(cut, width) * width));
}

std::string words_of(const WindowCut& cut) {
  std::string words;
  const auto add = [&](int64_t parts, const char* of) {
    if (parts > 1) words += text(words.empty() ? "" : " x ", parts, " ", of);
  };
  add(cut.images, "images");
  add(cut.rows, "rows");
  add(cut.panels, "panels");
  return words;
}

std::vector<WindowPiece> cut_images(const WindowPiece& whole, int64_t pieces) {
  const int64_t images = whole.y[0];
  const int64_t x_image = elements_of(whole.x) / images, y_image = elements_of(whole.y) / images;
  std::vector<WindowPiece> cut;
  for (int64_t i = 0; i < pieces; ++i) {
    const int64_t first = images * i / pieces, last = images * (i + 1) / pieces;
    WindowPiece piece = whole;
    piece.x[0] = piece.y[0] = last - first;
    piece.x_offset = first * x_image;
    piece.y_offset = first * y_image;
    cut.push_back(std::move(piece));
  }
  return cut;
}

std::vector<WindowPiece> cut_window_rows(const WindowPiece& image, int64_t pieces, int64_t stride,
                                         int64_t reach) {
  if (pieces == 1) return {image};
  const int64_t x_row = elements_of(image.x) / image.x[2], y_row = elements_of(image.y) / image.y[2];
  const int64_t rows = image.y[2];
  std::vector<WindowPiece> cut;
  for (int64_t i = 0; i < pieces; ++i) {
    WindowPiece piece = image;
    const int64_t first = rows * i / pieces, last = rows * (i + 1) / pieces;
    const int64_t from = first * stride - image.begin[0];
    const int64_t to = (last - 1) * stride + reach - image.begin[0];
    const int64_t begin = std::clamp<int64_t>(from, 0, image.x[2]),
                  end = std::clamp<int64_t>(to, begin, image.x[2]);
    if (begin == end) return {};
    piece.begin[0] = begin - from;
    piece.end[0] = to - end;
    piece.x[2] = end - begin;
    piece.y[2] = last - first;
    piece.x_offset = image.x_offset + begin * x_row;
    piece.y_offset = image.y_offset + first * y_row;
    cut.push_back(std::move(piece));
  }
  return cut;
}

std::vector<WindowPiece> cut_panels(const std::vector<WindowPiece>& pieces, int64_t panels, int64_t block) {
  if (panels == 1) return pieces;
  std::vector<WindowPiece> cut;
  // One panel after the other, so that cores that are at it together read one part of the weight.
  for (int64_t i = 0; i < panels; ++i) {
    for (const WindowPiece& piece : pieces) {
      const int64_t channels = piece.y[1], blocks = most_of(channels, block);
      WindowPiece panel = piece;
      panel.channel = blocks * i / panels * block;
      panel.y[1] = std::min(blocks * (i + 1) / panels * block, channels) - panel.channel;
      cut.push_back(std::move(panel));
    }
  }
  return cut;
}

std::vector<const WindowPiece*> find_kinds(std::vector<WindowPiece>& pieces) {
  std::vector<const WindowPiece*> kinds;
  for (WindowPiece& piece : pieces) {
    piece.kind = 0;
    while (piece.kind < kinds.size() && !kinds[piece.kind]->is_like(piece)) ++piece.kind;
    if (piece.kind == kinds.size()) kinds.push_back(&piece);
  }
  return kinds;
}

}  // namespace heddle::host
