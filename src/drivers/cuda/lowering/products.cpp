// Products of matrices.
#include <algorithm>

#include "drivers/cuda/lowering/product_tiles.h"
#include "ir/op.h"
#include "ir/ops/activation.h"

namespace heddle::cuda {
namespace {

static_assert(static_cast<int>(Act::kClip) == static_cast<int>(ir::ActivationKind::kClip));

struct Extras {  // absent ones are not present()
  Operand c, bias, residual;
};

Status launch_kernel(Lowering& l, std::string_view kernel, const ProductParams& params, const Extras& extras,
                     const Grid& grid) {
  return l.launch(kernel, params,
                  {names(params.x, l.inputs[0]), names(params.y, l.inputs[1]), names(params.c, extras.c),
                   names(params.bias, extras.bias), names(params.residual, extras.residual),
                   names(params.out, l.outputs[0])},
                  grid);
}

// What follows a product: threads that take 16 bytes after another, so that few blocks of them are enough.
Grid end_grid(const Lowering& l, const ProductParams& params) {
  constexpr int64_t kBlocksEach = 8;
  const int64_t bytes = params.batches * params.m * params.n * ir::size_of(l.outputs[0].dtype);
  const int64_t some = (bytes + EndOfProduct::kBytes - 1) / EndOfProduct::kBytes;
  return {std::min(l.grid(some).blocks, kBlocksEach * l.emit.multiprocessors())};
}

Status launch_own(Lowering& l, const ProductParams& params, const Extras& extras,
                  const std::string& word = {}) {
  const TileLaunch tiles = own_product(l, params, word);
  return launch_kernel(l, tiles.kernel, params, extras, tiles.grid);
}

// The sum alone. Nothing where the library cannot read the operands as they lie.
std::optional<BlasProblem> problem_of(const ProductParams& params, ir::DType dtype) {
  if (params.m == 0 || params.n == 0 || params.k == 0 || params.batches == 0) return std::nullopt;
  if (params.batch.rank > 1 || (params.x_column != 1 && params.x_row != 1)) return std::nullopt;
  if (params.batches > INT32_MAX) return std::nullopt;
  BlasProblem problem;
  problem.dtype = dtype;
  problem.m = params.m;
  problem.n = params.n;
  problem.k = params.k;
  problem.batches = params.batches;
  problem.x_turned = params.x_column != 1;
  problem.y_turned = params.y_column != 1;
  const auto line = [](int64_t stride, int64_t length, int64_t lines) {
    return lines == 1 ? std::max(stride, length) : stride;  // from one line to the next, if there is a next
  };
  problem.x_line =
      problem.x_turned ? line(params.x_column, params.m, params.k) : line(params.x_row, params.k, params.m);
  problem.y_line =
      problem.y_turned ? line(params.y_column, params.k, params.n) : line(params.y_row, params.n, params.k);
  problem.x_batch = params.x_batch[0];
  problem.y_batch = params.y_batch[0];
  problem.alpha = static_cast<float>(params.alpha);
  return problem;
}

// All that follows the sum, where the library can do all of it. Its bias has an address that no run changes.
bool take_extras(BlasProblem& problem, const ProductParams& params, const Extras& extras) {
  const bool fixed_bias = !extras.bias.present() || extras.bias.place.kind == plan::Place::Kind::kConstant;
  const bool whole_c = !extras.c.present() || (params.c_row == params.n && params.c_column == 1);
  const bool adds = extras.c.present() || extras.residual.present();
  if (!fixed_bias || !whole_c || (adds && params.batches > 1)) return false;
  if (params.act != Act::kNone && params.act != Act::kRelu) return false;
  if (extras.residual.present() && (extras.c.present() || params.act != Act::kNone)) return false;
  problem.relu = params.act == Act::kRelu;
  problem.bias = extras.bias.present() ? extras.bias.constant + extras.bias.offset : 0;
  problem.beta = extras.c.present() ? static_cast<float>(params.beta) : adds ? 1 : 0;
  return true;
}

// What our kernels would launch, to be measured: their operands are the library's.
Rival<BlasOperands> rival_of(const Lowering& l, const ProductParams& params, const ProductParams& end,
                             const Extras& extras) {
  const auto placed = [extras](ProductParams on, const BlasOperands& operands) {
    on.x = operands.x;
    on.y = operands.y;
    on.out = operands.out;
    // What several blocks read lies where none writes.
    const bool whole_c = on.c_row == on.n && on.c_column == 1;
    if (extras.c.present()) on.c = whole_c ? operands.c : on.c_column == 0 ? operands.x : operands.y;
    if (extras.bias.present()) on.bias = operands.y;
    if (extras.residual.present()) on.residual = operands.c;
    return on;
  };
  const auto whole = [&](const TileLaunch& by) {
    return [=, &l](const BlasOperands& operands, StreamHandle stream) {
      const ProductParams on = placed(params, operands);
      return l.emit.launch_now(by.kernel, &on, by.grid, stream, true);
    };
  };
  const Grid rest = end_grid(l, params);
  Rival<BlasOperands> rival;
  rival.whole = whole(tiles_for(l, params));
  for (const OwnProduct& other : other_products(l, params))
    rival.others.push_back({other.word, whole(other.launch), other.gain});
  rival.rest = [=, &l](const BlasOperands& operands, StreamHandle stream) {
    const ProductParams on = placed(end, operands);
    return l.emit.launch_now("end_of_product", &on, rest, stream);
  };
  return rival;
}

Status launch_floats(Lowering& l, const ProductParams& params, const Extras& extras) {
  std::optional<BlasProblem> problem = problem_of(params, l.inputs[0].dtype);
  if (!problem.has_value()) return launch_own(l, params, extras);
  problem->followed = !take_extras(*problem, params, extras);
  ProductParams sum = params, end = params;
  sum.act = Act::kNone;
  end.alpha = 1;
  const auto rivals = [&](int64_t rows) {
    ProductParams whole = params, rest = end;
    whole.m = rest.m = rows;
    return rival_of(l, whole, rest, extras);
  };
  HEDDLE_TRY_ASSIGN(const ProductChoice choice, l.emit.library_product(*problem, rivals));
  const Ref<const LibraryCall>& product = choice.library;
  if (product == nullptr) return launch_own(l, params, extras, choice.own);
  BlasOperands operands;
  std::vector<Bind> binds{names(operands.x, l.inputs[0]), names(operands.y, l.inputs[1]),
                          names(operands.out, l.outputs[0])};
  // A program that needs no memory in between has no arena.
  if (const auto bytes = static_cast<int64_t>(product->workspace_bytes()); bytes > 0)
    binds.push_back(names(operands.workspace, l.emit.scratch(ir::DType::kU8, {bytes})));
  if (!problem->followed) binds.push_back(names(operands.c, extras.c.present() ? extras.c : extras.residual));
  HEDDLE_TRY(l.emit.call(product, operands, binds, [&] {
    return problem->followed ? launch_own(l, sum, {}) : launch_own(l, params, extras);
  }));
  if (!problem->followed) return {};
  return l.launch("end_of_product", end,
                  {names(end.c, extras.c), names(end.bias, extras.bias), names(end.residual, extras.residual),
                   names(end.out, l.outputs[0])},
                  end_grid(l, params));
}

Status launch_product(Lowering& l, ProductParams params, const Extras& extras) {
  params.y_is_constant = l.inputs[1].place.kind == plan::Place::Kind::kConstant ? 1 : 0;
  const std::string_view computed = computed_in(l.inputs[0].dtype);
  if (computed == "_f32") return launch_floats(l, params, extras);
  return launch_kernel(l, text("product", computed == "_u64" ? "_i64" : computed), params, extras,
                       l.grid(params.batches * params.m * params.n));
}

// A vector is a matrix of one row on the left, of one column on the right.
Status lower_matmul(Lowering& l) {
  std::vector<int64_t> x(l.inputs[0].extents.begin(), l.inputs[0].extents.end());
  std::vector<int64_t> y(l.inputs[1].extents.begin(), l.inputs[1].extents.end());
  if (x.size() == 1) x.insert(x.begin(), 1);
  if (y.size() == 1) y.push_back(1);
  if (y.size() == 2) {  // one matrix for all rows
    for (; x.size() > 2; x.erase(x.begin())) x[1] *= x[0];
  }
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
  return launch_product(l, params, {});
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
  return launch_product(l, params, {c, {}, {}});
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
  return launch_product(l, params,
                        {{}, l.has(2) ? l.inputs[2] : Operand(), l.has(3) ? l.inputs[3] : Operand()});
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
