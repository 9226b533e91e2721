#include "drivers/host/onednn/row_bits.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/omp_scope.h"
#include "drivers/host/onednn/product.h"

namespace heddle::host {
namespace {

// Six rows are a block of oneDNN's AVX2 kernels; of those left over, four and five agree as well.
constexpr std::array<int64_t, 5> kRowsToTry = {kTriedRows, 12, 6, 5, 4};
// oneDNN's sgemm sums that many products, and then adds. A gemv of so many agrees with it.
constexpr int64_t kShortDepth = 256;

// Numbers in [-1, 1) that repeat after so many, which no extent in use divides.
std::vector<float> numbers_to_try(int64_t count, uint32_t seed) {
  constexpr size_t kPeriod = 8191;
  std::vector<float> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < std::min(numbers.size(), kPeriod); ++i) {
    seed = seed * 1664525 + 1013904223;
    numbers[i] = static_cast<float>(seed >> 8) / (1 << 23) - 1;
  }
  for (size_t i = kPeriod; i < numbers.size(); ++i) numbers[i] = numbers[i - kPeriod];
  return numbers;
}

struct TriedNumbers {
  std::vector<float> wide;
  std::vector<uint16_t> narrow;
  TriedNumbers(int64_t count, uint32_t seed, bool in_bf16) : wide(numbers_to_try(count, seed)) {
    if (!in_bf16) return;
    narrow.resize(wide.size());
    f32_to_bf16(wide.data(), narrow.data(), count);
  }
  const std::byte* data() const {
    return narrow.empty() ? reinterpret_cast<const std::byte*>(wide.data())
                          : reinterpret_cast<const std::byte*>(narrow.data());
  }
};

// A product of kTriedRows rows, with a weight like the one given.
class Trial {
 public:
  static Result<Trial> make(const Engine& engine, const ProductProblem& problem, const LinearWeight& like) {
    Trial trial(engine, problem);
    auto weight = std::make_shared<LinearWeight>();
    weight->k = like.k, weight->n = like.n;
    weight->whole = like.whole;
    weight->bf16 = like.bf16;
    weight->tag = like.tag, weight->block = like.block;
    weight->column_stride = like.column_stride;
    HEDDLE_TRY_ASSIGN(trial.w_, AlignedBytes::make(like.whole.get_size()));
    std::vector<float> plain = numbers_to_try(like.k * like.n, 5);
    HEDDLE_TRY(status_of(caught("laying out a weight", [&] {
      dnnl::memory from(f32_desc({like.k, like.n}), engine.cpu, plain.data());
      dnnl::memory to(like.whole, engine.cpu, trial.w_.data());
      dnnl::stream stream(engine.cpu);
      dnnl::reorder(from, to).execute(stream, from, to);
      return true;
    })));
    trial.weight_ = std::move(weight);
    return trial;
  }

  // Sums of so much of K; of one row each, to be compared with.
  Status sum_by(int64_t depth) {
    depth_ = depth;
    HEDDLE_TRY_ASSIGN(alone_, run(depth, 1));
    return {};
  }
  // As many of kTriedRows as that count divides.
  Result<bool> agrees(int64_t rows) const {
    HEDDLE_TRY_ASSIGN(const std::vector<std::byte> y, run(depth_, rows));
    return std::equal(y.begin(), y.end(), alone_.begin());
  }

 private:
  Trial(const Engine& engine, const ProductProblem& problem)
      : engine_(&engine),
        p_(problem),
        depth_(problem.k),
        x_(kTriedRows * problem.k, 1, problem.narrow_x),
        bias_(problem.bias ? problem.n : 0, 2, false),
        residual_(problem.residual ? kTriedRows * problem.n : 0, 3, problem.narrow_residual) {
    p_.m = kTriedRows;
  }

  Result<std::vector<std::byte>> run(int64_t depth, int64_t rows) const {
    ProductProblem p = p_;
    p.m -= p.m % rows;
    HEDDLE_TRY_ASSIGN(const auto product, Product::make(*engine_, p, weight_, RowPlan{depth, {rows}}));
    HEDDLE_TRY_ASSIGN(const AlignedBytes scratch, AlignedBytes::make(product->scratch_bytes()));
    std::vector<std::byte> y(static_cast<size_t>(p.m * p.n * (p.narrow_y ? 2 : 4)));
    const ProductMemory memory = {x_.data(), w_.data(), bias_.wide.data(), residual_.data(), y.data()};
    HEDDLE_TRY(product->run_piece(memory, 0, scratch.data()));
    return y;
  }

  const Engine* engine_;
  ProductProblem p_;
  int64_t depth_;
  TriedNumbers x_, bias_, residual_;
  AlignedBytes w_;
  Ref<const LinearWeight> weight_;
  std::vector<std::byte> alone_;  // results
};

// A plain weight may be summed in parts.
bool has_depths(const LinearWeight& weight) {
  return !weight.tag && !weight.bf16 &&
         weight.whole.get_format_kind() == dnnl::memory::format_kind::blocked &&
         weight.whole.get_inner_nblks() == 0;
}

Result<RowPlan> try_rows(const Engine& engine, const ProductProblem& problem, const LinearWeight& weight) {
  const OmpScope team_of_one;
  HEDDLE_TRY_ASSIGN(Trial trial, Trial::make(engine, problem, weight));
  std::vector<int64_t> depths = {problem.k};
  if (problem.k > kShortDepth && has_depths(weight)) {
    const int64_t parts = (problem.k + kShortDepth - 1) / kShortDepth;
    depths.push_back((problem.k + parts - 1) / parts);
  }
  for (const int64_t depth : depths) {
    RowPlan plan{depth, {}};
    HEDDLE_TRY(trial.sum_by(depth));
    for (const int64_t rows : kRowsToTry) {
      HEDDLE_TRY_ASSIGN(const bool agrees, trial.agrees(rows));
      if (agrees) plan.rows.push_back(rows);
      if (!agrees && depth != depths.back()) break;  // there is a better one
    }
    if (plan.rows.empty()) continue;
    plan.rows.push_back(1);
    return plan;
  }
  return RowPlan{problem.k, {1}};
}

std::string kind_of_product(const ProductProblem& p, const LinearWeight& weight) {
  std::string kind =
      text(p.k, "x", p.n, " ", p.bias, p.residual, p.narrow_x, p.narrow_y, p.narrow_residual, " ",
           static_cast<int>(p.activation.kind), " ", p.activation.alpha, " ", p.activation.beta,
           weight.tag ? text(" tag ", static_cast<int>(*weight.tag)) : " strides");
  if (!weight.tag) {
    for (const int64_t stride : weight.whole.get_strides()) kind += text(" ", stride);
    for (const int64_t block : weight.whole.get_inner_blks()) kind += text(" b", block);
    for (const int64_t index : weight.whole.get_inner_idxs()) kind += text(" i", index);
  }
  return kind;
}

}  // namespace

Result<Ref<const RowPlan>> RowBits::plan(const Engine& engine, const ProductProblem& problem,
                                         const LinearWeight& weight) {
  HEDDLE_TRY_ASSIGN(const std::string kind,
                    caught("describing a product", [&] { return kind_of_product(problem, weight); }));
  return plans_.get_or_make(kind, [&]() -> Result<Ref<const RowPlan>> {
    HEDDLE_TRY_ASSIGN(RowPlan plan, try_rows(engine, problem, weight));
    return Ref<const RowPlan>(std::make_shared<RowPlan>(std::move(plan)));
  });
}

namespace {

Result<bool> mixes_rows_of(const Engine& engine, int64_t k, int64_t n) {
  ProductProblem problem;
  problem.k = k, problem.n = n;
  LinearWeight weight;
  weight.k = problem.k, weight.n = problem.n;
  weight.bf16 = engine.bf16;
  HEDDLE_TRY_ASSIGN(weight.whole, caught("choosing a weight's layout",
                                         [&] { return wanted_layout(engine, problem.k, problem.n); }));
  HEDDLE_TRY_ASSIGN(Trial trial, Trial::make(engine, problem, weight));
  HEDDLE_TRY(trial.sum_by(problem.k));
  for (const int64_t rows : {2, 3, 4, 7, 16, 24}) {
    HEDDLE_TRY_ASSIGN(const bool agrees, trial.agrees(rows));
    if (!agrees) return true;
  }
  return false;
}

}  // namespace

Result<bool> mixes_rows(const Engine& engine) {
  const OmpScope team_of_one;
  // Of the second no block of columns is whole: on one processor with matrix units only that one mixes rows.
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>(640, 128), {128, 333}}) {
    HEDDLE_TRY_ASSIGN(const bool mixes, mixes_rows_of(engine, k, n));
    if (mixes) return true;
  }
  return false;
}

}  // namespace heddle::host
