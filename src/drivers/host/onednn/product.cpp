#include "drivers/host/onednn/product.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"

namespace heddle::host {
namespace {

using PlainTag = dnnl::memory::format_tag;
using MatmulDesc = dnnl::matmul::primitive_desc;

int64_t element_of(bool narrow) { return narrow ? sizeof(uint16_t) : sizeof(float); }

// Of K: what a primitive sums. The last one adds bias and the rest.
struct Depth {
  int64_t first, count;
  bool begins() const { return first == 0; }
};

Result<Ref<const Primitive>> primitive_for(const Engine& engine, const ProductProblem& p,
                                           const LinearWeight& weight, int64_t rows, int64_t columns,
                                           Depth depth) {
  const bool ends = depth.first + depth.count == p.k, bias = p.bias && ends, residual = p.residual && ends;
  const auto y_type = float_type(ends && p.narrow_y), residual_type = float_type(p.narrow_residual);
  const auto addend = [&](auto type) { return dnnl::memory::desc({rows, columns}, type, PlainTag::ab); };
  dnnl::post_ops ops;
  HEDDLE_TRY_ASSIGN(auto desc, caught("preparing a matrix product", [&]() -> Result<MatmulDesc> {
                      if (!depth.begins())
                        ops.append_binary(dnnl::algorithm::binary_add, addend(float_type(false)));
                      if (ends) HEDDLE_TRY(append_activation(p.activation, ops));
                      if (residual) ops.append_binary(dnnl::algorithm::binary_add, addend(residual_type));
                      dnnl::primitive_attr attr = engine.attributes();
                      attr.set_post_ops(ops);
                      const dnnl::memory::desc x({rows, depth.count}, float_type(weight.bf16), Dims{p.k, 1});
                      const dnnl::memory::desc w = weight.desc(columns, depth.count);
                      if (!bias) return MatmulDesc(engine.cpu, x, w, addend(y_type), attr);
                      return MatmulDesc(engine.cpu, x, w, f32_desc({1, columns}), addend(y_type), attr);
                    }));
  HEDDLE_TRY(desc.status());
  std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc->src_desc()},
                                                {DNNL_ARG_WEIGHTS, desc->weights_desc()},
                                                {DNNL_ARG_DST, desc->dst_desc()}};
  const auto add = [&](int index, auto type) {
    return status_of(caught("describing an addend", [&] {
      arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, addend(type)});
      return true;
    }));
  };
  if (bias) arguments.push_back({DNNL_ARG_BIAS, desc->bias_desc()});
  if (residual) HEDDLE_TRY(add(ops.len() - 1, residual_type));
  if (!depth.begins()) HEDDLE_TRY(add(0, float_type(false)));
  return Primitive::make<MatmulDesc, dnnl::matmul>(engine, *desc, std::move(arguments));
}

// `rows` rows of `bytes` bytes, which begin `from_stride` and `to_stride` bytes after each other.
void copy_rows(const std::byte* from, int64_t from_stride, std::byte* to, int64_t to_stride, int64_t rows,
               int64_t bytes) {
  for (int64_t row = 0; row < rows; ++row, from += from_stride, to += to_stride)
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

}  // namespace

ProductShape shape_of(const Engine& engine, const ProductProblem& problem, const LinearWeight& weight) {
  ProductShape shape{problem.m, problem.k, problem.n, weight.block, false, engine.bf16};
  // On matrix units a panel of some rows is summed in another order than the whole.
  shape.rows_only =
      !weight.cuts() || engine.row_bits != nullptr || (problem.m > 1 && engine.exact && engine.bf16);
  return shape;
}

Result<Ref<const Product>> Product::make(const Engine& engine, const ProductProblem& problem,
                                         Ref<const LinearWeight> weight, const Way& way) {
  RowPlan plan{problem.k, {}};
  if (engine.row_bits != nullptr) {
    HEDDLE_TRY_ASSIGN(const Ref<const RowPlan> known, engine.row_bits->plan(engine, problem, *weight));
    plan = *known;
  }
  const Cut size = cut(shape_of(engine, problem, *weight), way);
  return make(engine,
              std::shared_ptr<Product>(new Product(problem, std::move(weight), way, size, std::move(plan))));
}

Result<Ref<const Product>> Product::make(const Engine& engine, const ProductProblem& problem,
                                         Ref<const LinearWeight> weight, const RowPlan& plan) {
  const Cut whole{problem.m, problem.n, problem.m};
  return make(engine, std::shared_ptr<Product>(new Product(problem, std::move(weight), Way{}, whole, plan)));
}

Result<Ref<const Product>> Product::make(const Engine& engine, std::shared_ptr<Product> product) {
  const Cut& size = product->cut_;
  for (int64_t row = 0; row < product->p_.m; row += size.rows) {
    const int64_t rows = std::min(size.rows, product->p_.m - row);
    const std::vector<int64_t> blocks = product->blocks_of(rows);
    for (int64_t column = 0; column < product->p_.n; column += size.columns) {
      const int64_t columns = std::min(size.columns, product->p_.n - column);
      product->pieces_.push_back({row, column, {rows, columns}, blocks});
      for (const int64_t block : blocks) HEDDLE_TRY(product->add_kind(engine, {block, columns}));
    }
  }
  return Ref<const Product>(std::move(product));
}

std::vector<int64_t> Product::blocks_of(int64_t rows) const {
  std::vector<int64_t> blocks;
  if (plan_.rows.empty()) {
    blocks.assign(static_cast<size_t>(cut_.blocks_of(rows)), cut_.block);
    blocks.back() = rows - cut_.block * (cut_.blocks_of(rows) - 1);
    return blocks;
  }
  for (const int64_t count : plan_.rows) {
    if (count > cut_.block && count > 1) continue;
    for (; rows >= count; rows -= count) blocks.push_back(count);
  }
  return blocks;
}

Status Product::add_kind(const Engine& engine, Size size) {
  if (std::ranges::any_of(kinds_, [&](const Kind& kind) { return kind.size == size; })) return {};
  Kind kind{size, {}};
  uint64_t scratch = 0;
  for (int64_t first = 0; first < p_.k; first += plan_.depth) {
    const Depth depth{first, std::min(plan_.depth, p_.k - first)};
    HEDDLE_TRY_ASSIGN(auto primitive, primitive_for(engine, p_, *weight_, size.rows, size.columns, depth));
    fast_ = fast_ && !is_reference(primitive->implementation());
    scratch = std::max(scratch, aligned(primitive->scratch_bytes()));
    kind.primitives.push_back(std::move(primitive));
  }
  const uint64_t residual = p_.residual ? apart_bytes(size, element_of(p_.narrow_residual)) : 0;
  scratch_bytes_ = std::max(scratch_bytes_, narrow_bytes(size) + apart_bytes(size, element_of(p_.narrow_y)) +
                                                residual + 2 * partial_bytes(size) + scratch);
  kinds_.push_back(std::move(kind));
  return {};
}

uint64_t Product::partial_bytes(Size size) const {
  return plan_.depth < p_.k ? aligned(static_cast<uint64_t>(size.rows * size.columns) * sizeof(float)) : 0;
}

const Product::Kind& Product::kind_of(Size size) const {
  return *std::ranges::find_if(kinds_, [&](const Kind& kind) { return kind.size == size; });
}

std::vector<Ref<const Primitive>> Product::primitives() const {
  std::vector<Ref<const Primitive>> all;
  for (const Kind& kind : kinds_) all.insert(all.end(), kind.primitives.begin(), kind.primitives.end());
  return all;
}

uint64_t Product::apart_bytes(Size size, int64_t element) const {
  return is_apart(size) ? aligned(static_cast<uint64_t>(size.rows * size.columns * element)) : 0;
}

uint64_t Product::narrow_bytes(Size size) const {
  if (!weight_->bf16 || p_.narrow_x) return 0;
  return aligned(static_cast<uint64_t>(size.rows * p_.k) * sizeof(uint16_t));
}

Status Product::run_piece(const ProductMemory& memory, size_t index, std::byte* scratch) const {
  const Piece& piece = pieces_[index];
  int64_t row = piece.row;
  for (const int64_t rows : piece.blocks) {
    HEDDLE_TRY(run_block(memory, {row, piece.column, &kind_of({rows, piece.size.columns})}, scratch));
    row += rows;
  }
  return {};
}

// The sum over each part of K is added to that over those before it. `addresses`: of a primitive that sums
// all of K.
Status Product::run_depths(const Kind& kind, std::span<const void*> addresses, std::byte* scratch) const {
  const uint64_t bytes = partial_bytes(kind.size);
  std::byte* const after = scratch + 2 * bytes;
  const auto* x = static_cast<const float*>(addresses[0]);
  const auto* w = static_cast<const std::byte*>(addresses[1]);
  for (size_t i = 0; i + 1 < kind.primitives.size(); ++i) {
    const int64_t first = static_cast<int64_t>(i) * plan_.depth;
    const std::byte* const before = scratch + (i + 1) % 2 * bytes;
    const std::array<const void*, 5> operands = {x + first, w + weight_->bytes_to_row(first),
                                                 scratch + i % 2 * bytes, i == 0 ? after : before, after};
    HEDDLE_TRY(kind.primitives[i]->run(std::span(operands).first(i == 0 ? 4 : 5)));
  }
  const auto last = static_cast<int64_t>(kind.primitives.size()) - 1;
  std::array<const void*, 7> operands{};
  std::ranges::copy(addresses, operands.begin());
  operands[0] = x + last * plan_.depth;
  operands[1] = w + weight_->bytes_to_row(last * plan_.depth);
  operands[addresses.size()] = scratch + static_cast<uint64_t>((last + 1) % 2) * bytes;
  operands[addresses.size() + 1] = after;
  return kind.primitives.back()->run(std::span(operands).first(addresses.size() + 2));
}

Status Product::run_block(const ProductMemory& memory, const Block& block, std::byte* scratch) const {
  const Size size = block.kind->size;
  const bool apart = is_apart(size);
  const int64_t y_element = element_of(p_.narrow_y), residual_element = element_of(p_.narrow_residual);
  const int64_t at = block.row * p_.n + block.column;
  std::array<const void*, 6> addresses{};
  size_t count = 0;
  const std::byte* x = memory.x + block.row * p_.k * element_of(p_.narrow_x);
  addresses[count++] = x;
  if (weight_->bf16 && !p_.narrow_x) {
    auto* narrow = reinterpret_cast<uint16_t*>(std::exchange(scratch, scratch + narrow_bytes(size)));
    f32_to_bf16(reinterpret_cast<const float*>(x), narrow, size.rows * p_.k);
    addresses[0] = narrow;
  }
  addresses[count++] = weight_->packed != nullptr ? weight_->panel(block.column)
                                                  : memory.w + weight_->plain_offset(block.column);
  std::byte* const y = memory.y + at * y_element;
  std::byte* const written = apart ? std::exchange(scratch, scratch + apart_bytes(size, y_element)) : y;
  addresses[count++] = written;
  if (p_.bias) addresses[count++] = memory.bias + block.column;
  if (p_.residual) {
    const std::byte* residual = memory.residual + at * residual_element;
    if (apart) {
      std::byte* const mine = std::exchange(scratch, scratch + apart_bytes(size, residual_element));
      copy_rows(residual, p_.n * residual_element, mine, size.columns * residual_element, size.rows,
                size.columns * residual_element);
      residual = mine;
    }
    addresses[count++] = residual;
  }
  if (block.kind->primitives.size() > 1) {
    HEDDLE_TRY(run_depths(*block.kind, std::span(addresses).first(count), scratch));
  } else {
    addresses[count++] = scratch;
    HEDDLE_TRY(block.kind->primitives[0]->run(addresses));
  }
  if (apart) {
    copy_rows(written, size.columns * y_element, y, p_.n * y_element, size.rows, size.columns * y_element);
  }
  return {};
}

}  // namespace heddle::host
