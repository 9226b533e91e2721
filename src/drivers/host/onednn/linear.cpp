#include "drivers/host/onednn/linear.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/few_rows.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {
namespace {

using Tag = dnnl::memory::format_tag;

// Weights [K, N]. With a layout, columns lie in outermost blocks, so that a panel of whole blocks is a weight
// of its own.
struct BlockedLayout {
  Tag tag;
  int64_t block;  // columns that lie together
};
constexpr BlockedLayout kF32Layouts[] = {
    {Tag::BA16a64b, 64}, {Tag::BA16a48b, 48}, {Tag::BA16a32b, 32}, {Tag::BA16a16b, 16}};
constexpr BlockedLayout kBf16Layouts[] = {
    {Tag::BA16a64b2a, 64}, {Tag::BA16a48b2a, 48}, {Tag::BA16a32b2a, 32}, {Tag::BA16a16b2a, 16}};

struct LinearWeight final : Packed {
  uint64_t bytes() const override { return (packed != nullptr ? whole.get_size() : 0) + 256; }
  const std::byte* panel(int64_t column, int64_t k) const {
    const int64_t rows = bf16 ? 32 : 16;  // that lie together
    const int64_t element = bf16 ? sizeof(uint16_t) : sizeof(float);
    return packed.get() + (tag ? column * ((k + rows - 1) / rows * rows) : column * column_stride) * element;
  }
  dnnl::memory::desc desc(int64_t k, int64_t columns) const {
    if (tag) return {{k, columns}, float_type(bf16), *tag};
    return whole.get_dims()[1] == columns ? whole : f32_desc({k, columns}, whole.get_strides());
  }

  dnnl::memory::desc whole;
  bool bf16 = false;
  std::optional<Tag> tag;
  bool cuts = true;           // into panels
  int64_t block = 1;          // columns that lie together
  int64_t column_stride = 1;  // of a plain weight
  Ref<std::byte> packed;      // null: it lies in the arena of the run
};

// Which layout the processor's kernels want. Asked for a row count in the middle: one layout serves all
// (tests compare the values).
dnnl::memory::desc wanted_layout(const Engine& engine, int64_t k, int64_t n) {
  constexpr int64_t kRows = 64;
  const auto type = float_type(engine.bf16);
  const dnnl::matmul::primitive_desc desc(engine.cpu, {{kRows, k}, type, Tag::ab}, {{k, n}, type, Tag::any},
                                          f32_desc({kRows, n}), engine.attributes());
  return desc.weights_desc();
}

Result<Ref<const LinearWeight>> pack(WeightStore& store, const void* source, int64_t k, int64_t n,
                                     bool transposed) {
  const Engine& engine = store.engine();
  auto weight = std::make_shared<LinearWeight>();
  HEDDLE_TRY_ASSIGN(weight->whole,
                    caught("choosing a weight's layout", [&] { return wanted_layout(engine, k, n); }));
  weight->bf16 = engine.bf16;
  for (const BlockedLayout& blocked : engine.bf16 ? kBf16Layouts : kF32Layouts) {
    HEDDLE_TRY_ASSIGN(const bool fits, caught("comparing layouts", [&] {
                        return weight->whole ==
                               dnnl::memory::desc({k, n}, float_type(engine.bf16), blocked.tag);
                      }));
    if (!fits) continue;
    weight->tag = blocked.tag;
    weight->block = blocked.block;
  }
  weight->cuts = weight->tag.has_value();
  HEDDLE_TRY_ASSIGN(weight->packed, store.room(source, weight->whole.get_size()));
  HEDDLE_TRY_ASSIGN(const bool reordered, caught("packing a weight", [&] {
                      const dnnl::memory::desc plain =
                          transposed ? f32_desc({k, n}, {1, k}) : f32_desc({k, n});
                      dnnl::memory from(plain, engine.cpu, const_cast<void*>(source));
                      dnnl::memory to(weight->whole, engine.cpu, weight->packed.get());
                      dnnl::stream stream(engine.cpu);
                      dnnl::reorder(from, to).execute(stream, from, to);
                      return true;
                    }));
  static_cast<void>(reordered);
  return Ref<const LinearWeight>(std::move(weight));
}

Result<Ref<const LinearWeight>> plain_weight(int64_t k, int64_t n, bool transposed) {
  auto weight = std::make_shared<LinearWeight>();
  weight->column_stride = transposed ? k : 1;
  weight->block = 16;
  HEDDLE_TRY_ASSIGN(weight->whole, caught("describing a weight", [&] {
                      return transposed ? f32_desc({k, n}, {1, k}) : f32_desc({k, n});
                    }));
  return Ref<const LinearWeight>(std::move(weight));
}

struct LinearPiece {
  int64_t row, rows, column, columns;
  Ref<const Primitive> primitive;
};

struct LinearDivision {
  std::vector<LinearPiece> pieces;
  bool fast = true;
};

struct Problem {
  int64_t m, k, n;
  bool bias, residual;
  bool narrow_y, narrow_residual;  // bf16 in memory
  ir::Activation activation;
};

constexpr int64_t kFewestRows = 4;  // of a piece: fewer leave the multipliers waiting for the weight
constexpr int64_t kManyRows = 16;   // of a piece: with as many, reading all of the weight costs little

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Of few rows each core takes panels of columns, and reads that part of the weight for all rows. Of many rows
// it takes some: what they need of the weight is paid back by then, and the result lies where it is written.
LinearPiece cut(const Engine& engine, const Problem& p, const LinearWeight& weight, int pieces) {
  const int64_t blocks = ceil_div(p.n, weight.block);
  // On matrix units a panel of some rows is summed in another order than the whole.
  const bool may_cut = weight.cuts && (p.m == 1 || !engine.exact || !engine.bf16);
  if (!may_cut || p.m >= kManyRows * pieces) {
    const int64_t parts = p.m >= kFewestRows * pieces ? pieces : 1;
    return {0, ceil_div(p.m, parts), 0, p.n, nullptr};
  }
  const int64_t panels = std::min<int64_t>(pieces, blocks);
  const int64_t parts = std::clamp<int64_t>(pieces / panels, 1, ceil_div(p.m, kFewestRows));
  return {0, ceil_div(p.m, parts), 0, std::min(ceil_div(blocks, panels) * weight.block, p.n), nullptr};
}

Result<Ref<const Primitive>> make_primitive(const Engine& engine, const Problem& p,
                                            const LinearWeight& weight, int64_t rows, int64_t columns) {
  dnnl::post_ops ops;
  HEDDLE_TRY(append_activation(p.activation, ops));
  HEDDLE_TRY_ASSIGN(auto desc, caught("preparing a matrix product", [&] {
                      const dnnl::memory::desc y({rows, columns}, float_type(p.narrow_y), Tag::ab);
                      if (p.residual) {
                        ops.append_binary(dnnl::algorithm::binary_add,
                                          {{rows, columns}, float_type(p.narrow_residual), Tag::ab});
                      }
                      dnnl::primitive_attr attr = engine.attributes();
                      attr.set_post_ops(ops);
                      const dnnl::memory::desc x({rows, p.k}, float_type(weight.bf16), Tag::ab);
                      const dnnl::memory::desc w = weight.desc(p.k, columns);
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
                        return dnnl::memory::desc({rows, columns}, float_type(p.narrow_residual), Tag::ab);
                      }));
    arguments.push_back({DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1, std::move(residual)});
  }
  return Primitive::make<dnnl::matmul::primitive_desc, dnnl::matmul>(engine, desc, std::move(arguments));
}

class LinearStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering, const Problem& problem) {
    auto step = std::make_unique<LinearStep>();
    step->p_ = problem;
    step->x_ = lowering.inputs[0];
    step->w_ = lowering.inputs[1];
    if (problem.bias) step->bias_ = lowering.inputs[2];
    if (problem.residual) step->residual_ = lowering.inputs[3];
    step->y_ = lowering.outputs[0];
    const bool transposed = lowering.node.attributes.i64("trans_w") != 0;
    const Engine& engine = lowering.weights.engine();
    if (step->w_.location == Operand::Location::kConstant) {
      const void* source = step->w_.constant;
      HEDDLE_TRY_ASSIGN(step->weight_,
                        lowering.weights.get<LinearWeight>(
                            source, text("linear ", problem.k, "x", problem.n, transposed ? "t" : ""), [&] {
                              return pack(lowering.weights, source, problem.k, problem.n, transposed);
                            }));
    } else {
      HEDDLE_TRY_ASSIGN(step->weight_, plain_weight(problem.k, problem.n, transposed));
    }
    const auto divided = [&](int n) { return step->divide(engine, cut(engine, problem, *step->weight_, n)); };
    HEDDLE_TRY_ASSIGN(std::optional<LinearDivision> whole, divided(1));
    step->whole_ = step->take(*std::move(whole)).front();
    if (lowering.width > 1 && 2 * problem.m * problem.k * problem.n >= kWorthSharing) {
      HEDDLE_TRY_ASSIGN(LinearDivision finest, finest_division<LinearDivision>(lowering.width, divided));
      step->shared_ = step->take(std::move(finest));
    }
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    if (shared_.size() < 2 || context.caller.share() == 1) return run_piece(context, whole_, 0);
    return for_each_piece(context, shared_.size(), "a matrix product",
                          [&](size_t i) { return run_piece(context, shared_[i], i); });
  }

  uint64_t scratch_bytes() const override { return scratch_stride_ * std::max<uint64_t>(shared_.size(), 1); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 512 + 2 * Primitive::kResidentBytes; }
  std::string path() const override {
    if (shared_.empty()) return path_of({whole_.primitive}, 1);
    return path_of({shared_.front().primitive, shared_.back().primitive}, shared_.size());
  }

 private:
  Result<std::optional<LinearDivision>> divide(const Engine& engine, const LinearPiece& size) const {
    LinearDivision division;
    for (int64_t row = 0; row < p_.m; row += size.rows) {
      for (int64_t column = 0; column < p_.n; column += size.columns) {
        LinearPiece piece{row, std::min(size.rows, p_.m - row), column, std::min(size.columns, p_.n - column),
                          nullptr};
        for (const LinearPiece& other : division.pieces) {
          if (other.rows == piece.rows && other.columns == piece.columns) piece.primitive = other.primitive;
        }
        if (piece.primitive == nullptr) {
          HEDDLE_TRY_ASSIGN(piece.primitive, make_primitive(engine, p_, *weight_, piece.rows, piece.columns));
          division.fast = division.fast && !is_reference(piece.primitive->implementation());
        }
        division.pieces.push_back(std::move(piece));
      }
    }
    return std::optional<LinearDivision>(std::move(division));
  }

  std::vector<LinearPiece> take(LinearDivision division) {
    for (const LinearPiece& piece : division.pieces) {
      const uint64_t scratch = narrow_bytes(piece) + apart_bytes(y_, piece) + apart_bytes(residual_, piece) +
                               aligned(piece.primitive->scratch_bytes());
      scratch_stride_ = std::max(scratch_stride_, scratch);
    }
    return std::move(division.pieces);
  }

  // oneDNN's fast kernels want rows that lie side by side: a part of several rows is computed apart.
  bool is_apart(const LinearPiece& piece) const { return piece.rows > 1 && piece.columns < p_.n; }
  uint64_t apart_bytes(const Operand& operand, const LinearPiece& piece) const {
    if (!operand.present() || !is_apart(piece)) return 0;
    return aligned(static_cast<uint64_t>(piece.rows * piece.columns * operand.element_bytes()));
  }

  uint64_t narrow_bytes(const LinearPiece& piece) const {  // of the piece's rows of x in bf16
    if (!weight_->bf16 || x_.narrow) return 0;
    return aligned(static_cast<uint64_t>(piece.rows * p_.k) * sizeof(uint16_t));
  }

  Status run_piece(const RunContext& context, const LinearPiece& piece, size_t index) const {
    const std::byte* weight =
        weight_->packed != nullptr
            ? weight_->panel(piece.column, p_.k)
            : context.read(w_) + piece.column * weight_->column_stride * int64_t{sizeof(float)};
    const int64_t at = piece.row * p_.n + piece.column;
    std::array<const void*, 6> addresses{};
    size_t count = 0;
    std::byte* scratch = context.arena + scratch_ + index * scratch_stride_;
    const std::byte* x = context.read(x_) + piece.row * p_.k * x_.element_bytes();
    addresses[count++] = x;
    if (weight_->bf16 && !x_.narrow) {
      auto* narrow = reinterpret_cast<uint16_t*>(std::exchange(scratch, scratch + narrow_bytes(piece)));
      f32_to_bf16(reinterpret_cast<const float*>(x), narrow, piece.rows * p_.k);
      addresses[0] = narrow;
    }
    addresses[count++] = weight;
    std::byte* const y = context.write(y_) + at * y_.element_bytes();
    std::byte* const written = is_apart(piece) ? std::exchange(scratch, scratch + apart_bytes(y_, piece)) : y;
    addresses[count++] = written;
    if (p_.bias) addresses[count++] = context.read<float>(bias_) + piece.column;
    if (p_.residual) {
      const std::byte* residual = context.read(residual_) + at * residual_.element_bytes();
      if (is_apart(piece)) {
        std::byte* const mine = std::exchange(scratch, scratch + apart_bytes(residual_, piece));
        const auto bytes = static_cast<size_t>(residual_.element_bytes());
        copy_rows(residual, static_cast<size_t>(p_.n) * bytes, mine,
                  static_cast<size_t>(piece.columns) * bytes, piece);
        residual = mine;
      }
      addresses[count++] = residual;
    }
    addresses[count++] = scratch;
    HEDDLE_TRY(piece.primitive->run(addresses));
    if (is_apart(piece)) {
      const auto bytes = static_cast<size_t>(y_.element_bytes());
      copy_rows(written, static_cast<size_t>(piece.columns) * bytes, y, static_cast<size_t>(p_.n) * bytes,
                piece);
    }
    return {};
  }

  // The piece's rows, which begin `from_stride` and `to_stride` bytes after each other.
  static void copy_rows(const std::byte* from, size_t from_stride, std::byte* to, size_t to_stride,
                        const LinearPiece& piece) {
    for (int64_t row = 0; row < piece.rows; ++row, from += from_stride, to += to_stride)
      std::memcpy(to, from, std::min(from_stride, to_stride));
  }

  Problem p_;
  Operand x_, w_, bias_, residual_, y_;
  Ref<const LinearWeight> weight_;
  LinearPiece whole_;                // for a caller that no thread helps
  std::vector<LinearPiece> shared_;  // empty: not worth sharing
  uint64_t scratch_stride_ = 0;
  uint64_t scratch_ = 0;
};

}  // namespace

Result<std::unique_ptr<Step>> lower_linear(Lowering& lowering) {
  const auto& inputs = lowering.inputs;
  const Operand& y = lowering.outputs[0];
  Problem p;
  p.n = y.extents[y.extents.rank() - 1];
  p.k = inputs[0].extents[inputs[0].extents.rank() - 1];
  p.m = y.elements() / p.n;
  p.bias = inputs.size() > 2 && inputs[2].present();
  p.residual = inputs.size() > 3 && inputs[3].present();
  p.narrow_y = y.narrow;
  p.narrow_residual = p.residual && inputs[3].narrow;
  HEDDLE_TRY_ASSIGN(p.activation, ir::activation_of(lowering.node));
  if (p.residual && !(inputs[3].extents == y.extents)) {
    return Status::unsupported("the residual is ", inputs[3].extents, "; it has to have the output's shape ",
                               y.extents);
  }
  const bool bare = p.activation.kind == ir::ActivationKind::kNone && !p.residual;
  if (bare && p.m <= kMostFewRows && lowering.is_model_input(1) && !inputs[0].narrow && !y.narrow) {
    const bool transposed = lowering.node.attributes.i64("trans_w") != 0;
    return few_rows_step({p.m, p.k, p.n, transposed, inputs[0], inputs[1], p.bias ? inputs[2] : Operand(), y},
                         lowering.width);
  }
  return LinearStep::make(lowering, p);
}

}  // namespace heddle::host
