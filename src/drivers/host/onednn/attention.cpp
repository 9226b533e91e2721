#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "drivers/host/kernels/elementwise/chunks.h"
#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/kernels/rows/softmax.h"
#include "drivers/host/layout/narrow_values.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/descriptors.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/primitive.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

// Scores of this size stay in the second-level cache between the two products and the softmax.
constexpr int64_t kScoreElements = 96 << 10;

struct Heads {
  int64_t batch, heads, kv_heads, queries, keys, d, dv;
  int64_t q_row, k_row, v_row;        // elements from one position to the next
  int64_t q_batch, k_batch, v_batch;  // and from one sequence to the next
};

// softmax(scale * q @ k' + mask) @ v for some heads and some queries at a time: a unit. Units are dealt to as
// many lanes as there are threads; each lane has scores of its own. A caller that no thread helps computes
// larger ones. In bf16 the products round q, k, v and the shares that softmax makes; scores and softmax are
// f32. Where the engine is exact, units are those of one row of the batch, whoever helps.
class AttentionStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<AttentionStep>();
    const Engine& engine = lowering.weights.engine();
    step->read_operands(lowering);
    step->bf16_ = engine.bf16 && attends_in_bf16(step->q_.extents);
    step->width_ = lowering.width;
    HEDDLE_TRY(step->prepare(engine));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    if (bf16_) round_operands(context);
    const Units& units = large_.count > 0 && context.caller.share() == 1 ? large_ : units_;
    Atomic<bool> failed{false};
    const auto lane = [&](int index) {
      for (int64_t unit = index; unit < units.count; unit += units.lanes) {
        if (!run_unit(context, units, index, unit).ok()) failed.store_release(true);
      }
    };
    if (units.lanes == 1) {
      lane(0);
    } else {
      context.caller.for_each(units.lanes, lane);
    }
    return failed.load_acquire() ? Status::internal("an attention product failed in oneDNN") : Status();
  }

  uint64_t scratch_bytes() const override {
    const auto bytes = [&](const Units& u) { return lane_bytes(u) * static_cast<uint64_t>(u.lanes); };
    return lanes_offset_ + std::max(bytes(units_), bytes(large_));
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override {
    return 1024 + (large_.count > 0 ? 4 : 2) * Primitive::kResidentBytes;
  }
  std::string path() const override {
    std::vector<Ref<const Primitive>> primitives = {units_.all.scores, units_.all.values};
    if (units_.rest.rows > 0) primitives.insert(primitives.end(), {units_.rest.scores, units_.rest.values});
    return path_of(primitives, static_cast<size_t>(units_.count));
  }
  Sharing sharing() const override;

 private:
  struct Products {
    int64_t rows = 0;
    Ref<const Primitive> scores, values;
  };
  struct Units {
    int64_t heads = 1, rows = 1, count = 0;  // heads and rows of a unit; how many units
    int lanes = 1;
    Products all, rest;  // for so many rows, and for the last ones
    uint64_t primitive_scratch = 0;
  };

  void read_operands(const Lowering& lowering);
  Units choose_units(int64_t batch, int width) const;
  double cost_of(const Units& units, int width) const;
  Status prepare(const Engine& engine);
  Status make_units(const Engine& engine, Units& units) const;
  void round_operands(const RunContext& context) const;
  const std::byte* source(const RunContext& context, size_t index) const;
  std::array<const Operand*, 3> operands() const { return {&q_, &k_, &v_}; }
  Result<Products> make_products(const Engine& engine, int64_t heads, int64_t rows) const;
  Status run_unit(const RunContext& context, const Units& units, int lane, int64_t unit) const;
  void mask_scores(const RunContext& context, float* scores, int64_t batch, int64_t head, int64_t heads,
                   int64_t row, int64_t rows) const;
  void mask_row(const RunContext& context, float* row, int64_t at) const;

  int64_t row_units(const Units& u) const { return (h_.queries + u.rows - 1) / u.rows; }
  uint64_t score_bytes(const Units& u) const {
    return aligned(static_cast<uint64_t>(u.heads * u.rows * h_.keys) * sizeof(float));
  }
  uint64_t share_bytes(const Units& u) const { return bf16_ ? aligned(score_bytes(u) / 2) : 0; }
  uint64_t lane_bytes(const Units& u) const { return score_bytes(u) + share_bytes(u) + u.primitive_scratch; }

  Heads h_{};
  float scale_ = 1;
  bool causal_ = false;
  bool packed_ = false;  // q holds k and v too
  Operand q_, k_, v_, mask_, y_;
  int64_t k_offset_ = 0, v_offset_ = 0;  // in elements, when q holds all three
  std::array<int64_t, 4> mask_strides_{};
  bool bf16_ = false;                  // the products' operands; scores and their softmax are f32
  std::array<uint64_t, 3> rounded_{};  // q, k and v in bf16, in the scratch, where they are not narrow
  uint64_t lanes_offset_ = 0;          // of the lanes, in the scratch
  int width_ = 1;
  Units units_;
  Units large_;  // for a caller that no thread helps; none: units_
  uint64_t scratch_ = 0;
};

void AttentionStep::read_operands(const Lowering& lowering) {
  const ir::Attributes& attributes = lowering.node.attributes;
  const auto input = [&](size_t i) { return i < lowering.inputs.size() ? lowering.inputs[i] : Operand(); };
  q_ = input(0), k_ = input(1), v_ = input(2), mask_ = input(3), y_ = lowering.outputs[0];
  h_.heads = attributes.i64("num_heads");
  h_.kv_heads = attributes.i64("kv_heads", h_.heads);
  if (h_.kv_heads == 0) h_.kv_heads = h_.heads;
  h_.batch = q_.extents[0];
  h_.queries = q_.extents[1];
  h_.dv = y_.extents[2] / h_.heads;
  causal_ = attributes.i64("causal") != 0;
  packed_ = attributes.i64("packed") != 0;
  if (packed_) {
    const int64_t all = q_.extents[2];
    h_.keys = h_.queries;
    h_.d = (all - h_.kv_heads * h_.dv) / (h_.heads + h_.kv_heads);
    h_.q_row = h_.k_row = h_.v_row = all;
    k_ = v_ = q_;
    k_offset_ = h_.heads * h_.d;
    v_offset_ = k_offset_ + h_.kv_heads * h_.d;
  } else {
    h_.keys = k_.extents[1];
    h_.d = q_.extents[2] / h_.heads;
    h_.q_row = q_.extents[2], h_.k_row = k_.extents[2], h_.v_row = v_.extents[2];
  }
  h_.q_batch = h_.q_row * h_.queries, h_.k_batch = h_.k_row * h_.keys, h_.v_batch = h_.v_row * h_.keys;
  const double scale = attributes.f64("scale");
  scale_ = static_cast<float>(scale != 0 ? scale : 1 / std::sqrt(static_cast<double>(h_.d)));
  if (!mask_.present()) return;
  const size_t missing = 4 - mask_.extents.rank();
  int64_t stride = 1;
  for (size_t axis = mask_.extents.rank(); axis-- > 0;) {
    mask_strides_[axis + missing] = mask_.extents[axis] == 1 ? 0 : stride;
    stride *= mask_.extents[axis];
  }
}

// Operations of the busiest core, and what takes as long: a softmax, reading keys and values, two primitives.
double AttentionStep::cost_of(const Units& units, int width) const {
  constexpr double kOfScore = 40, kOfNumber = 16, kOfUnit = 300'000;
  const auto heads = static_cast<double>(units.heads), keys = static_cast<double>(h_.keys);
  const auto depth = static_cast<double>(h_.d + h_.dv);
  const double scores = heads * static_cast<double>(units.rows) * keys;
  const double unit = scores * (2 * depth + kOfScore) + heads * keys * depth * kOfNumber + kOfUnit;
  return static_cast<double>((units.count + width - 1) / width) * unit;
}

AttentionStep::Units AttentionStep::choose_units(int64_t batch, int width) const {
  constexpr int64_t kFewestRows = 16;
  Units best;
  double best_cost = 0;
  for (int64_t heads = 1; heads <= h_.heads; ++heads) {
    // Heads that share keys are not evenly strided, so each is a unit of its own.
    if (h_.heads % heads != 0 || (heads > 1 && h_.kv_heads != h_.heads)) continue;
    const int64_t parts_most = std::max<int64_t>(1, h_.queries / kFewestRows);
    for (int64_t parts = 1; parts <= parts_most; ++parts) {
      Units units;
      units.heads = heads;
      units.rows = (h_.queries + parts - 1) / parts;
      units.count = batch * (h_.heads / heads) * row_units(units);
      const bool fits = heads * units.rows * h_.keys <= kScoreElements;
      if (!fits && (heads > 1 || parts < parts_most)) continue;
      const double cost = cost_of(units, width);
      // Of equal ones the fewest.
      if (best.count > 0 && (cost > best_cost || (cost == best_cost && units.count >= best.count))) continue;
      best = units;
      best_cost = cost;
    }
  }
  const int64_t work = batch * h_.heads * h_.queries * h_.keys * (h_.d + h_.dv);
  best.lanes = work < (1 << 18) ? 1 : static_cast<int>(std::min<int64_t>(width, best.count));
  return best;
}

Status AttentionStep::prepare(const Engine& engine) {
  if (engine.exact) {
    units_ = choose_units(1, width_);
    const int64_t work = h_.batch * h_.heads * h_.queries * h_.keys * (h_.d + h_.dv);
    units_.count *= h_.batch;
    units_.lanes = work < (1 << 18) ? 1 : static_cast<int>(std::min<int64_t>(width_, units_.count));
  } else {
    units_ = choose_units(h_.batch, width_);
    if (units_.lanes == 1) units_ = choose_units(h_.batch, 1);
    const Units large = choose_units(h_.batch, 1);
    if (large.heads != units_.heads || large.rows != units_.rows) large_ = large;
  }
  HEDDLE_TRY(make_units(engine, units_));
  if (large_.count > 0) HEDDLE_TRY(make_units(engine, large_));
  if (!bf16_) return {};
  for (size_t i = 0; i < operands().size(); ++i) {
    const Operand& operand = *operands()[i];
    if (operand.narrow || (packed_ && i > 0)) continue;
    rounded_[i] = lanes_offset_;
    lanes_offset_ += aligned(static_cast<uint64_t>(operand.elements()) * sizeof(uint16_t));
  }
  return {};
}

Status AttentionStep::make_units(const Engine& engine, Units& units) const {
  HEDDLE_TRY_ASSIGN(units.all, make_products(engine, units.heads, units.rows));
  if (const int64_t rest = h_.queries % units.rows; rest != 0) {
    HEDDLE_TRY_ASSIGN(units.rest, make_products(engine, units.heads, rest));
  }
  for (const Products* products : {&units.all, &units.rest}) {
    if (products->rows == 0) continue;
    units.primitive_scratch = std::max({units.primitive_scratch, aligned(products->scores->scratch_bytes()),
                                        aligned(products->values->scratch_bytes())});
  }
  return {};
}

Sharing AttentionStep::sharing() const {
  if (width_ == 1) return {};
  if (units_.lanes == 1) return Sharing::whole();
  const int64_t rows = row_units(units_), rounds = (units_.count + width_ - 1) / width_;
  const double largest = static_cast<double>(units_.rows) / static_cast<double>(h_.queries) *
                         static_cast<double>(rows) / static_cast<double>(units_.count);
  const std::string words =
      text(units_.count / rows, " groups of heads", rows > 1 ? text(" x ", rows, " rows") : "");
  return Sharing::divided(units_.count, std::min(1.0, 1 / (largest * static_cast<double>(rounds * width_))),
                          words, width_);
}

Result<AttentionStep::Products> AttentionStep::make_products(const Engine& engine, int64_t heads,
                                                             int64_t rows) const {
  const int64_t n = heads, keys = h_.keys;
  const auto type = float_type(bf16_);
  HEDDLE_TRY_ASSIGN(MatmulDesc scores, caught("preparing attention scores", [&] {
                      return MatmulDesc(engine.cpu, {{n, rows, h_.d}, type, Dims{h_.d, h_.q_row, 1}},
                                        {{n, h_.d, keys}, type, Dims{h_.d, 1, h_.k_row}},
                                        f32_desc({n, rows, keys}), engine.attributes());
                    }));
  HEDDLE_TRY_ASSIGN(MatmulDesc values, caught("preparing attention values", [&] {
                      return MatmulDesc(
                          engine.cpu, {{n, rows, keys}, type, Dims{rows * keys, keys, 1}},
                          {{n, keys, h_.dv}, type, Dims{h_.dv, h_.v_row, 1}},
                          {{n, rows, h_.dv}, float_type(y_.narrow), Dims{h_.dv, h_.heads * h_.dv, 1}},
                          engine.attributes());
                    }));
  const auto arguments = [](const MatmulDesc& desc) {
    return std::vector<Primitive::Argument>{{DNNL_ARG_SRC, desc.src_desc()},
                                            {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                            {DNNL_ARG_DST, desc.dst_desc()}};
  };
  Products products{rows, nullptr, nullptr};
  HEDDLE_TRY_ASSIGN(products.scores,
                    (Primitive::make<MatmulDesc, dnnl::matmul>(engine, scores, arguments(scores))));
  HEDDLE_TRY_ASSIGN(products.values,
                    (Primitive::make<MatmulDesc, dnnl::matmul>(engine, values, arguments(values))));
  return products;
}

Status AttentionStep::run_unit(const RunContext& context, const Units& units, int lane, int64_t unit) const {
  const int64_t parts = row_units(units), head_units = h_.heads / units.heads;
  const int64_t row = unit % parts * units.rows;
  const int64_t head = unit / parts % head_units * units.heads;
  const int64_t batch = unit / parts / head_units;
  const int64_t kv_head = head / (h_.heads / h_.kv_heads);
  const int64_t rows = std::min(units.rows, h_.queries - row);
  const Products& products = rows == units.rows ? units.all : units.rest;
  std::byte* const own =
      context.arena + scratch_ + lanes_offset_ + static_cast<uint64_t>(lane) * lane_bytes(units);
  auto* scores = reinterpret_cast<float*>(own);
  const std::byte* primitive_scratch = own + score_bytes(units) + share_bytes(units);

  const int64_t element = bf16_ ? sizeof(uint16_t) : sizeof(float);
  const std::byte* q = source(context, 0) + (batch * h_.q_batch + row * h_.q_row + head * h_.d) * element;
  const std::byte* k = source(context, 1) + (k_offset_ + batch * h_.k_batch + kv_head * h_.d) * element;
  const std::byte* v = source(context, 2) + (v_offset_ + batch * h_.v_batch + kv_head * h_.dv) * element;
  std::byte* y =
      context.write(y_) + ((batch * h_.queries + row) * h_.heads + head) * h_.dv * y_.element_bytes();
  HEDDLE_TRY(products.scores->run(std::array<const void*, 4>{q, k, scores, primitive_scratch}));
  mask_scores(context, scores, batch, head, units.heads, row, rows);
  const void* shares = scores;
  if (bf16_) {
    auto* narrow = reinterpret_cast<uint16_t*>(own + score_bytes(units));
    softmax_rows_bf16(scores, narrow, units.heads * rows, h_.keys);
    shares = narrow;
  } else {
    softmax_rows(scores, units.heads * rows, h_.keys, h_.keys);
  }
  return products.values->run(std::array<const void*, 4>{shares, v, y, primitive_scratch});
}

const std::byte* AttentionStep::source(const RunContext& context, size_t index) const {
  const Operand& operand = *operands()[index];
  return bf16_ && !operand.narrow ? context.arena + scratch_ + rounded_[index] : context.read(operand);
}

void AttentionStep::round_operands(const RunContext& context) const {
  constexpr int64_t kGrain = 1024;
  for (size_t i = 0; i < (packed_ ? 1 : operands().size()); ++i) {
    const Operand& operand = *operands()[i];
    if (operand.narrow) continue;
    const float* from = context.read<float>(operand);
    auto* to = reinterpret_cast<uint16_t*>(context.arena + scratch_ + rounded_[i]);
    split(context.caller, operand.elements(), kGrain, operand.elements(), width_,
          [&](int64_t begin, int64_t end, int) { f32_to_bf16(from + begin, to + begin, end - begin); });
  }
}

void AttentionStep::mask_row(const RunContext& context, float* row, int64_t at) const {
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  const int64_t step = mask_strides_[3];
  if (mask_.dtype == ir::DType::kBool) {
    const auto* mask = context.read<uint8_t>(mask_) + at;
    for (int64_t j = 0; j < h_.keys; ++j) row[j] = mask[j * step] != 0 ? row[j] * scale_ : kNever;
    return;
  }
  const float* mask = context.read<float>(mask_) + at;
  if (step == 1) {
    for (int64_t j = 0; j < h_.keys; ++j) row[j] = row[j] * scale_ + mask[j];
  } else {
    for (int64_t j = 0; j < h_.keys; ++j) row[j] = row[j] * scale_ + mask[0];
  }
}

void AttentionStep::mask_scores(const RunContext& context, float* scores, int64_t batch, int64_t head,
                                int64_t heads, int64_t row, int64_t rows) const {
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t i = 0; i < rows; ++i) {
      float* line = scores + (h * rows + i) * h_.keys;
      if (mask_.present()) {
        mask_row(context, line,
                 batch * mask_strides_[0] + (head + h) * mask_strides_[1] + (row + i) * mask_strides_[2]);
      } else {
        for (int64_t j = 0; j < h_.keys; ++j) line[j] *= scale_;
      }
      if (causal_) {
        // Query i sees keys 0 to i, as in the references.
        const int64_t seen = std::min(h_.keys, row + i + 1);
        std::fill(line + seen, line + h_.keys, -std::numeric_limits<float>::infinity());
      }
    }
  }
}

Result<std::unique_ptr<Step>> lower_attention_f32(Lowering& lowering) {
  const Operand* mask = lowering.inputs.size() > 3 ? &lowering.inputs[3] : nullptr;
  const bool fits = mask == nullptr || !mask->present() || mask->dtype == ir::DType::kBool ||
                    mask->dtype == ir::DType::kF32;
  const bool keys =
      lowering.inputs.size() < 2 || !lowering.inputs[1].present() || lowering.inputs[1].elements() > 0;
  return fits && keys ? AttentionStep::make(lowering) : reference_step(lowering);
}

}  // namespace

std::span<const LoweringEntry> attention_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"Attention", [](Lowering& l) { return lower_floats(l, lower_attention_f32); }},
  };
  return kEntries;
}

}  // namespace heddle::host
