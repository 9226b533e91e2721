// Products of matrices.
#include "drivers/cuda/kernels/product.h"

#include "drivers/cuda/lowering/lowering.h"
#include "ir/op.h"
#include "ir/ops/activation.h"

namespace heddle::cuda {
namespace {

static_assert(static_cast<int>(Act::kClip) == static_cast<int>(ir::ActivationKind::kClip));

Status launch_product(Lowering& l, const ProductParams& params, const Operand& c, const Operand& bias,
                      const Operand& residual) {
  const std::string_view computed = computed_in(l.inputs[0].dtype);
  return l.launch(
      text("product", computed == "_u64" ? "_i64" : computed), params,
      {names(params.x, l.inputs[0]), names(params.y, l.inputs[1]), names(params.c, c),
       names(params.bias, bias), names(params.residual, residual), names(params.out, l.outputs[0])},
      l.grid(params.batches * params.m * params.n));
}

// A vector is a matrix of one row on the left, of one column on the right.
Status lower_matmul(Lowering& l) {
  std::vector<int64_t> x(l.inputs[0].extents.begin(), l.inputs[0].extents.end());
  std::vector<int64_t> y(l.inputs[1].extents.begin(), l.inputs[1].extents.end());
  if (x.size() == 1) x.insert(x.begin(), 1);
  if (y.size() == 1) y.push_back(1);
  const size_t rank = std::max(x.size(), y.size()) - 2;
  std::vector<int64_t> batch(rank, 1), x_batch(rank, 0), y_batch(rank, 0);
  const auto spread = [&](const std::vector<int64_t>& from, std::vector<int64_t>& strides) {
    const size_t own = from.size() - 2;
    int64_t next = from[own] * from[own + 1];
    for (size_t axis = own; axis-- > 0;) {
      const size_t at = rank - own + axis;
      if (from[axis] != 1) {
        strides[at] = next;
        batch[at] = from[axis];
      }
      next *= from[axis];
    }
  };
  spread(x, x_batch);
  spread(y, y_batch);
  const Walk walk = walk_of(batch, {x_batch, y_batch});
  ProductParams params;
  params.type = type_of(l.inputs[0].dtype);
  params.batches = walk.count;
  params.batch = walk.axes;
  std::copy(walk.strides[0].begin(), walk.strides[0].end(), params.x_batch);
  std::copy(walk.strides[1].begin(), walk.strides[1].end(), params.y_batch);
  params.m = x[x.size() - 2];
  params.k = x.back();
  params.n = y.back();
  params.x_row = params.k;
  params.x_column = params.y_column = 1;
  params.y_row = params.n;
  return launch_product(l, params, {}, {}, {});
}

void set_weight(ProductParams& params, const ir::Extents& y, bool transposed) {
  params.k = y[transposed ? 1 : 0];
  params.n = y[transposed ? 0 : 1];
  params.y_row = transposed ? 1 : params.n;
  params.y_column = transposed ? params.k : 1;
}

Status lower_gemm(Lowering& l) {
  const bool turned = l.attributes().i64("transA") != 0;
  const ir::Extents& x = l.inputs[0].extents;
  ProductParams params;
  params.type = type_of(l.inputs[0].dtype);
  set_weight(params, l.inputs[1].extents, l.attributes().i64("transB") != 0);
  params.m = x[turned ? 1 : 0];
  params.x_row = turned ? 1 : params.k;
  params.x_column = turned ? params.m : 1;
  params.alpha = l.attributes().f64("alpha", 1);
  params.beta = l.attributes().f64("beta", 1);
  Operand c;
  if (l.has(2)) {
    c = l.inputs[2];
    const std::vector<int64_t> strides = broadcast_strides(c.extents, 2);
    params.c_row = strides[0];
    params.c_column = strides[1];
  }
  return launch_product(l, params, c, {}, {});
}

Status lower_linear(Lowering& l) {
  HEDDLE_TRY_ASSIGN(const ir::Activation activation, ir::activation_of(l.node));
  ProductParams params;
  params.type = type_of(l.inputs[0].dtype);
  set_weight(params, l.inputs[1].extents, l.attributes().i64("trans_w") != 0);
  params.m = l.outputs[0].elements() / params.n;
  params.x_row = params.k;
  params.x_column = 1;
  params.act = static_cast<Act>(activation.kind);
  params.act_numbers = {activation.alpha, activation.beta};
  return launch_product(l, params, {}, l.has(2) ? l.inputs[2] : Operand(),
                        l.has(3) ? l.inputs[3] : Operand());
}

}  // namespace

std::span<const LoweringEntry> product_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"MatMul", lower_matmul},
      {"Gemm", lower_gemm},
      {"Linear", lower_linear},
  };
  return kEntries;
}

}  // namespace heddle::cuda
