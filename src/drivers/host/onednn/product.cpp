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

int64_t element_of(bool narrow) { return narrow ? sizeof(uint16_t) : sizeof(float); }

Result<Ref<const Primitive>> primitive_for(const Engine& engine, const ProductProblem& p,
                                           const LinearWeight& weight, int64_t rows, int64_t columns) {
  dnnl::post_ops ops;
  HEDDLE_TRY(append_activation(p.activation, ops));
  HEDDLE_TRY_ASSIGN(auto desc, caught("preparing a matrix product", [&] {
                      const dnnl::memory::desc y({rows, columns}, float_type(p.narrow_y), PlainTag::ab);
                      if (p.residual) {
                        ops.append_binary(dnnl::algorithm::binary_add,
                                          {{rows, columns}, float_type(p.narrow_residual), PlainTag::ab});
                      }
                      dnnl::primitive_attr attr = engine.attributes();
                      attr.set_post_ops(ops);
                      const dnnl::memory::desc x({rows, p.k}, float_type(weight.bf16), PlainTag::ab);
                      const dnnl::memory::desc w = weight.desc(columns);
                      if (!p.bias) return dnnl::matmul::primitive_desc(engine.cpu, x, w, y, attr);
                      return dnnl::matmul::primitive_desc(engine.cpu, x, w, f32_desc({1, columns}), y, attr);
                    }));
  std::vector<Primitive::Argument> arguments = {{DNNL_ARG_SRC, desc.src_desc()},
                                                {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                {DNNL_ARG_DST, desc.dst_desc()}};
  if (p.bias) arguments.push_back({DNNL_ARG_BIAS, desc.bias_desc()});
  if (p.residual) {
    const int index = ops.len() - 1;
    HEDDLE_TRY_ASSIGN(auto residual, caught("describing a residual", [&] {
                        return dnnl::memory::desc({rows, columns}, float_type(p.narrow_residual),
                                                  PlainTag::ab);
                      }));
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, std::move(residual)});
  }
  return Primitive::make<dnnl::matmul::primitive_desc, dnnl::matmul>(engine, desc, std::move(arguments));
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
  shape.rows_only = !weight.cuts() || (problem.m > 1 && engine.exact && engine.bf16);
  return shape;
}

Result<Ref<const Product>> Product::make(const Engine& engine, const ProductProblem& problem,
                                         Ref<const LinearWeight> weight, const Way& way) {
  auto product = std::make_shared<Product>();
  product->p_ = problem;
  product->way_ = way;
  product->weight_ = std::move(weight);
  product->cut_ = cut(shape_of(engine, problem, *product->weight_), way);
  const Cut& size = product->cut_;
  for (int64_t row = 0; row < problem.m; row += size.rows) {
    for (int64_t column = 0; column < problem.n; column += size.columns) {
      const Size piece = {std::min(size.rows, problem.m - row), std::min(size.columns, problem.n - column)};
      product->pieces_.push_back({row, column, piece});
      const int64_t before_last = size.block * (size.blocks_of(piece.rows) - 1);
      if (before_last > 0) HEDDLE_TRY(product->add_kind(engine, {size.block, piece.columns}));
      HEDDLE_TRY(product->add_kind(engine, {piece.rows - before_last, piece.columns}));
    }
  }
  return Ref<const Product>(std::move(product));
}

Status Product::add_kind(const Engine& engine, Size size) {
  if (std::ranges::any_of(kinds_, [&](const Kind& kind) { return kind.size == size; })) return {};
  HEDDLE_TRY_ASSIGN(auto primitive, primitive_for(engine, p_, *weight_, size.rows, size.columns));
  fast_ = fast_ && !is_reference(primitive->implementation());
  const uint64_t residual = p_.residual ? apart_bytes(size, element_of(p_.narrow_residual)) : 0;
  scratch_bytes_ = std::max(scratch_bytes_, narrow_bytes(size) + apart_bytes(size, element_of(p_.narrow_y)) +
                                                residual + aligned(primitive->scratch_bytes()));
  kinds_.push_back({size, std::move(primitive)});
  return {};
}

const Product::Kind& Product::kind_of(Size size) const {
  return *std::ranges::find_if(kinds_, [&](const Kind& kind) { return kind.size == size; });
}

std::vector<Ref<const Primitive>> Product::primitives() const {
  std::vector<Ref<const Primitive>> all;
  for (const Kind& kind : kinds_) all.push_back(kind.primitive);
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
  const int64_t last = cut_.block * (cut_.blocks_of(piece.size.rows) - 1);
  for (int64_t row = 0; row <= last; row += cut_.block) {
    const Size size = {row < last ? cut_.block : piece.size.rows - last, piece.size.columns};
    HEDDLE_TRY(run_block(memory, {piece.row + row, piece.column, &kind_of(size)}, scratch));
  }
  return {};
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
  addresses[count++] = scratch;
  HEDDLE_TRY(block.kind->primitive->run(addresses));
  if (apart) {
    copy_rows(written, size.columns * y_element, y, p_.n * y_element, size.rows, size.columns * y_element);
  }
  return {};
}

}  // namespace heddle::host
