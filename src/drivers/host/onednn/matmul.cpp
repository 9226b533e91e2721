#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "device/buffer.h"
#include "device/view.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/few_rows.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/grouped_product.h"
#include "drivers/host/onednn/linear.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

Dims promoted(const ir::Extents& extents, bool left) {
  Dims dims = to_dims(extents);
  if (dims.size() == 1) dims.insert(left ? dims.begin() : dims.end(), 1);
  return dims;
}

// a [.., M, K] @ b [.., K, N] with broadcast batches, all contiguous. The outermost batch axis is what the
// team shares. Where the engine has RowBits, every piece is one element of that axis, however many there are.
class MatMulStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<MatMulStep>();
    step->a_ = lowering.inputs[0];
    step->b_ = lowering.inputs[1];
    step->y_ = lowering.outputs[0];
    HEDDLE_TRY(step->prepare(lowering.weights.engine(), lowering.width));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    const auto task = [&](int64_t index) -> Status {
      for (int64_t i = pieces_ * index / tasks_; i < pieces_ * (index + 1) / tasks_; ++i) {
        const std::array<const void*, 4> addresses = {
            context.read<float>(a_) + i * a_stride_, context.read<float>(b_) + i * b_stride_,
            context.write<float>(y_) + i * y_stride_,
            context.arena + scratch_ + static_cast<uint64_t>(index) * scratch_stride_};
        HEDDLE_TRY(primitive_->run(addresses));
      }
      return {};
    };
    if (tasks_ == 1) return task(0);
    return for_each_piece(context, static_cast<size_t>(tasks_), "a matrix product",
                          [&](size_t i) { return task(static_cast<int64_t>(i)); });
  }

  uint64_t scratch_bytes() const override { return scratch_stride_ * static_cast<uint64_t>(tasks_); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 512 + Primitive::kResidentBytes; }
  std::string path() const override { return path_of({primitive_}, static_cast<size_t>(pieces_)); }

 private:
  struct Shape {
    Dims a, b, y;  // one rank
  };
  struct Division {
    int pieces;
    MatmulDesc desc;
    bool fast;
  };

  Shape shape(bool rows_mix) const {
    Shape s{promoted(a_.extents, true), promoted(b_.extents, false), {}};
    const size_t rank = std::max(s.a.size(), s.b.size());
    s.a.insert(s.a.begin(), rank - s.a.size(), 1);
    s.b.insert(s.b.begin(), rank - s.b.size(), 1);
    for (size_t i = 0; i < rank; ++i) s.y.push_back(std::max(s.a[i], s.b[i]));
    s.y[rank - 2] = s.a[rank - 2];
    s.y[rank - 1] = s.b[rank - 1];
    // Batches that both sides have alike are one batch; a right side without batches sees only more rows.
    while (!rows_mix && s.y.size() > 2 &&
           std::all_of(s.b.begin(), s.b.end() - 2, [](int64_t d) { return d == 1; })) {
      const size_t last = s.y.size() - 2;
      s.a[last] *= s.a[last - 1];
      s.y[last] *= s.y[last - 1];
      for (Dims* dims : {&s.a, &s.b, &s.y}) dims->erase(dims->begin() + static_cast<int64_t>(last) - 1);
    }
    while (s.y.size() > 3 && s.a[0] == s.b[0] && s.a[1] == s.b[1]) {
      for (Dims* dims : {&s.a, &s.b, &s.y}) {
        (*dims)[1] *= (*dims)[0];
        dims->erase(dims->begin());
      }
    }
    return s;
  }

  static Result<std::optional<Division>> describe(const Engine& engine, const Shape& piece, int pieces) {
    HEDDLE_TRY_ASSIGN(MatmulDesc desc, caught("preparing a matrix product", [&] {
                        return MatmulDesc(engine.cpu, f32_desc(piece.a), f32_desc(piece.b), f32_desc(piece.y),
                                          engine.attributes());
                      }));
    const bool fast = !is_reference(desc.impl_info_str());
    return std::optional<Division>(Division{pieces, std::move(desc), fast});
  }

  Status prepare(const Engine& engine, int width) {
    const bool each = engine.row_bits != nullptr;
    const Shape whole = shape(each);
    const int64_t work = 2 * y_.elements() * whole.a.back();
    const bool rows = whole.y.size() == 2;
    const bool batches = whole.y.size() == 3 && whole.a[0] == whole.b[0];
    const bool divides = (rows || batches) && whole.y[0] % width == 0 && (!rows || whole.y[0] >= 16 * width);
    const auto divide = [&](int n) -> Result<std::optional<Division>> {
      if (whole.y[0] % n != 0) return std::optional<Division>();
      Shape piece = whole;
      if (piece.a[0] == piece.y[0]) piece.a[0] /= n;
      if (!rows && piece.b[0] == piece.y[0]) piece.b[0] /= n;
      piece.y[0] /= n;
      return describe(engine, piece, n);
    };
    constexpr int64_t kTasksPerCore = 4;
    const bool shares = work >= kWorthSharing;
    std::optional<Division> division;
    if (each) {
      HEDDLE_TRY_ASSIGN(division, divide(static_cast<int>(whole.y[0])));
      tasks_ = shares ? std::min<int64_t>(whole.y[0], width == 1 ? 1 : kTasksPerCore * width) : 1;
    } else {
      HEDDLE_TRY_ASSIGN(division, finest_division<Division>(divides && shares ? width : 1, divide));
      tasks_ = division->pieces;
    }
    pieces_ = division->pieces;
    const MatmulDesc& desc = division->desc;
    a_stride_ = whole.a[0] == whole.y[0] ? elements_of(desc.src_desc().get_dims()) : 0;
    b_stride_ = !rows && whole.b[0] == whole.y[0] ? elements_of(desc.weights_desc().get_dims()) : 0;
    y_stride_ = elements_of(desc.dst_desc().get_dims());
    HEDDLE_TRY_ASSIGN(primitive_,
                      (Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                                 {{DNNL_ARG_SRC, desc.src_desc()},
                                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                  {DNNL_ARG_DST, desc.dst_desc()}})));
    scratch_stride_ = aligned(primitive_->scratch_bytes());
    return {};
  }

  Operand a_, b_, y_;
  int64_t pieces_ = 1, tasks_ = 1;  // a task is some pieces, one after another
  int64_t a_stride_ = 0, b_stride_ = 0, y_stride_ = 0;
  Ref<const Primitive> primitive_;
  uint64_t scratch_stride_ = 0;
  uint64_t scratch_ = 0;
};

// y = alpha * a' @ b' + beta * c: c is first broadcast into y, the product is added to it.
class GemmStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<GemmStep>();
    step->a_ = lowering.inputs[0];
    step->b_ = lowering.inputs[1];
    if (lowering.inputs.size() > 2) step->c_ = lowering.inputs[2];
    step->y_ = lowering.outputs[0];
    const ir::Attributes& attributes = lowering.node.attributes;
    const bool trans_a = attributes.i64("transA") != 0, trans_b = attributes.i64("transB") != 0;
    const int64_t n = step->y_.extents[1], k = step->a_.extents[trans_a ? 0 : 1];
    int64_t m = step->y_.extents[0];
    const auto alpha = static_cast<float>(attributes.f64("alpha", 1)),
               beta = static_cast<float>(attributes.f64("beta", 1));
    const Engine& engine = lowering.weights.engine();
    if (engine.row_bits != nullptr && !trans_a) {  // each row apart
      step->times_ = std::exchange(m, 1);
      step->a_stride_ = k, step->y_stride_ = n;
    }
    HEDDLE_TRY_ASSIGN(MatmulDesc desc, caught("preparing a matrix product", [&] {
                        dnnl::post_ops ops;
                        if (alpha != 1) ops.append_eltwise(dnnl::algorithm::eltwise_linear, alpha, 0);
                        if (step->c_.present()) ops.append_sum(beta);
                        dnnl::primitive_attr attr = engine.attributes();
                        attr.set_post_ops(ops);
                        return MatmulDesc(engine.cpu, f32_desc({m, k}, trans_a ? Dims{1, m} : Dims{k, 1}),
                                          f32_desc({k, n}, trans_b ? Dims{1, k} : Dims{n, 1}),
                                          f32_desc({m, n}), attr);
                      }));
    HEDDLE_TRY_ASSIGN(step->primitive_,
                      (Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                                 {{DNNL_ARG_SRC, desc.src_desc()},
                                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                  {DNNL_ARG_DST, desc.dst_desc()}})));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    if (c_.present()) spread(context);
    for (int64_t i = 0; i < times_; ++i) {
      const std::array<const void*, 4> addresses = {context.read<float>(a_) + i * a_stride_, context.read(b_),
                                                    context.write<float>(y_) + i * y_stride_,
                                                    context.arena + scratch_};
      HEDDLE_TRY(primitive_->run(addresses));
    }
    return {};
  }

  uint64_t scratch_bytes() const override { return primitive_->scratch_bytes(); }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 512 + Primitive::kResidentBytes; }
  std::string path() const override { return path_of({primitive_}, 1); }

 private:
  void spread(const RunContext& context) const {
    const device::View to = device::View::contiguous(context.write(y_), y_.dtype, y_.extents);
    device::View from = to;
    from.callers = const_cast<std::byte*>(context.read(c_));
    const ir::Extents dense = device::contiguous_strides(c_.extents);
    const size_t missing = y_.extents.rank() - c_.extents.rank();
    for (size_t i = 0; i < y_.extents.rank(); ++i) {
      from.strides[i] = i < missing || c_.extents[i - missing] == 1 ? 0 : dense[i - missing];
    }
    copy_view(from, to);
  }

  Operand a_, b_, c_, y_;
  int64_t times_ = 1, a_stride_ = 0, y_stride_ = 0;
  Ref<const Primitive> primitive_;
  uint64_t scratch_ = 0;
};

// A weight that the caller brings, and so few rows that laying it out anew would cost more than the product.
bool has_few_rows(const Lowering& lowering) {
  const Operand& y = lowering.outputs[0];
  const int64_t n = lowering.inputs[1].extents[lowering.inputs[1].extents.rank() - 1];
  return lowering.is_model_input(1) && n > 0 && y.elements() <= kMostFewRows * n;
}

Result<std::unique_ptr<Step>> lower_matmul_f32(Lowering& lowering) {
  // A Linear's rows have the bits of the row alone at less cost than MatMulStep's.
  const bool taken = lowering.inputs[1].location == Operand::Location::kConstant ||
                     lowering.weights.engine().row_bits != nullptr || has_few_rows(lowering);
  const bool weight = lowering.inputs[1].extents.rank() == 2 && lowering.inputs[0].extents.rank() >= 1;
  return taken && weight ? lower_linear(lowering) : MatMulStep::make(lowering);
}
Result<std::unique_ptr<Step>> lower_gemm_f32(Lowering& lowering) { return GemmStep::make(lowering); }

}  // namespace

std::span<const LoweringEntry> matmul_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"MatMul", [](Lowering& l) { return lower_floats(l, lower_matmul_f32); }},
      {"Gemm", [](Lowering& l) { return lower_floats(l, lower_gemm_f32); }},
      {"GroupedMatMul", lower_grouped_product},
      {"Linear", [](Lowering& l) { return lower_floats(l, lower_linear); }},
  };
  return kEntries;
}

}  // namespace heddle::host
