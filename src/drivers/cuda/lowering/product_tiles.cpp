#include "drivers/cuda/lowering/product_tiles.h"

#include <algorithm>

#include "drivers/cuda/kernels/few_rows.h"
#include "drivers/cuda/kernels/tensor_product.h"
#include "drivers/cuda/libraries/algorithm_store.h"

namespace heddle::cuda {
namespace {

struct ProductTile {
  std::string_view name;
  int64_t rows, columns, threads, shared_bytes;
  double rate = 1;  // of its arithmetic, of the fastest one's
};
template <class Shape>
constexpr ProductTile tile_of(std::string_view name, double rate = 1) {
  return {name, Shape::kRows, Shape::kColumns, Shape::kThreads, Shape::kSharedBytes, rate};
}
constexpr ProductTile kTiles[] = {
    tile_of<Tile4x8>("product_4x8", 0.1),
    tile_of<Tile16x16>("product_16x16", 0.5),
    tile_of<Tile32x32>("product_32x32", 0.7),
    tile_of<Tile64x64>("product_64x64", 1),
};
constexpr ProductTile kFewRowsTiles[] = {
    tile_of<Few8x16>("product_few_8x16"),   tile_of<Few8x32>("product_few_8x32"),
    tile_of<Few8x64>("product_few_8x64"),   tile_of<Few16x32>("product_few_16x32"),
    tile_of<Few24x32>("product_few_24x32"), tile_of<Few32x32>("product_few_32x32"),
};
// From the one that takes the least of the GPU to the one that leaves it the soonest.
constexpr ProductTile kTensorTiles[] = {
    tile_of<Tensor64x64>("product_tensor_64x64"),
    tile_of<Tensor64x32By2>("product_tensor_64x32_by_2"),
    tile_of<Tensor32x32By4>("product_tensor_32x32_by_4"),
};
constexpr int64_t kMostFewRows = 96;
constexpr char kFewRows[] = "ours for few rows";
constexpr float kGainOfFewRows = 1.2F;

int64_t count_of(const ProductTile& tile, const ProductParams& params) {
  return params.batches * ((params.m + tile.rows - 1) / tile.rows) *
         ((params.n + tile.columns - 1) / tile.columns);
}

// The one that is done first, when each multiprocessor takes one after another.
const ProductTile& choose_tile(const ProductParams& params, int multiprocessors) {
  const auto time = [&](const ProductTile& tile) {
    const int64_t turns = (count_of(tile, params) + multiprocessors - 1) / multiprocessors;
    return static_cast<double>(turns * tile.rows * tile.columns) / tile.rate;
  };
  return *std::min_element(std::begin(kTiles), std::end(kTiles),
                           [&](const ProductTile& a, const ProductTile& b) { return time(a) < time(b); });
}

// ---- few rows

// Below that k some of a cluster's threads have no part of it.
bool takes_few_rows(const Lowering& l, const ProductParams& params) {
  constexpr int64_t kLeastK = 256;
  return l.emit.clusters() && l.inputs[0].dtype == ir::DType::kF32 && params.batches == 1 && params.m > 1 &&
         params.m <= kMostFewRows && params.n > 0 && params.k >= kLeastK && params.x_column == 1;
}

// The fastest by an estimate, in half multiplications, fitted to what an H100 took for 2 to 96 rows of six
// matrices. Multiprocessors take the tiles in turns. A turn costs kBegun and the tile's work: its
// multiplications, and kReading for each row and column. Half of that work is added once: nothing overlaps
// with the first loads. Clusters of four do not reach all multiprocessors.
const ProductTile& choose_few_rows(const ProductParams& params, int multiprocessors) {
  constexpr int64_t kBegun = 1100, kReading = 14;
  const int64_t reached = std::max<int64_t>(multiprocessors * 95 / 100, 1);
  const auto time = [&](const ProductTile& tile) {
    const int64_t turns = (kSums * count_of(tile, params) + reached - 1) / reached;
    return turns * kBegun +
           (2 * turns + 1) * (tile.rows * tile.columns + kReading * (tile.rows + tile.columns));
  };
  return *std::min_element(std::begin(kFewRowsTiles), std::end(kFewRowsTiles),
                           [&](const ProductTile& a, const ProductTile& b) { return time(a) < time(b); });
}

TileLaunch few_rows_for(const Lowering& l, const ProductParams& params) {
  const ProductTile& tile = choose_few_rows(params, l.emit.multiprocessors());
  return {std::string(tile.name), {kSums * count_of(tile, params), tile.threads, tile.shared_bytes}};
}

// ---- tensor cores

// Few rows would leave most of a fragment empty.
bool takes_tensor_tiles(const Lowering& l, const ProductParams& params) {
  constexpr int64_t kLeastRows = 33, kLeastK = 64;
  return !l.emit.exact() && l.emit.has_kernel(kTensorTiles[0].name) && l.inputs[0].dtype == ir::DType::kF32 &&
         params.m >= kLeastRows && params.n > 0 && params.k >= kLeastK && params.x_column == 1;
}

TileLaunch tensor_tile_for(const ProductTile& tile, const ProductParams& params) {
  return {std::string(tile.name), {count_of(tile, params), tile.threads, tile.shared_bytes}};
}

// The first of which each multiprocessor has one.
const ProductTile& choose_tensor_tile(const ProductParams& params, int multiprocessors) {
  const auto fills = [&](const ProductTile& tile) { return count_of(tile, params) >= multiprocessors; };
  const auto* const found = std::find_if(std::begin(kTensorTiles), std::end(kTensorTiles), fills);
  return found == std::end(kTensorTiles) ? *std::prev(found) : *found;
}

std::string word_of(const ProductTile& tile) { return text("ours, ", tile.name); }

}  // namespace

TileLaunch tiles_for(const Lowering& l, const ProductParams& params) {
  constexpr int64_t kTilesEach = 32;
  const ProductTile& tile = choose_tile(params, l.emit.multiprocessors());
  const int64_t blocks = std::min(count_of(tile, params), kTilesEach * l.emit.multiprocessors());
  return {text(tile.name, "_", ir::name(l.inputs[0].dtype)), {blocks, tile.threads, tile.shared_bytes}};
}

std::vector<OwnProduct> other_products(const Lowering& l, const ProductParams& params) {
  std::vector<OwnProduct> made;
  if (takes_few_rows(l, params)) made.push_back({kFewRows, few_rows_for(l, params), kGainOfFewRows});
  if (!takes_tensor_tiles(l, params)) return made;
  for (const ProductTile& tile : kTensorTiles) made.push_back({word_of(tile), tensor_tile_for(tile, params)});
  return made;
}

TileLaunch own_product(const Lowering& l, const ProductParams& params, const std::string& word) {
  const bool few = takes_few_rows(l, params), tensor = takes_tensor_tiles(l, params);
  if (word.empty() && tensor && params.m > kMostFewRows)
    return tensor_tile_for(choose_tensor_tile(params, l.emit.multiprocessors()), params);
  if (few && (word.empty() || word == kFewRows)) return few_rows_for(l, params);
  for (const ProductTile& tile : kTensorTiles) {
    if (tensor && word == word_of(tile)) return tensor_tile_for(tile, params);
  }
  return tiles_for(l, params);
}

}  // namespace heddle::cuda
