#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

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
// many lanes as there are threads; each lane has scores of its own. In bf16 the products round q, k, v and
// the shares that softmax makes; scores and softmax are f32.
class AttentionStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<AttentionStep>();
    const Engine& engine = lowering.weights.engine();
    step->read_operands(lowering);
    step->bf16_ = engine.bf16 && attends_in_bf16(step->q_.extents);
    step->choose_units(lowering.width);
    HEDDLE_TRY(step->prepare(engine));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    if (bf16_) round_operands(context);
    Atomic<bool> failed{false};
    const auto lane = [&](int index) {
      for (int64_t unit = index; unit < units_; unit += lanes_) {
        if (!run_unit(context, index, unit).ok()) failed.store_release(true);
      }
    };
    if (lanes_ == 1) {
      lane(0);
    } else {
      context.caller.for_each(lanes_, lane);
    }
    return failed.load_acquire() ? Status::internal("an attention product failed in oneDNN") : Status();
  }

  uint64_t scratch_bytes() const override {
    return lanes_offset_ + lane_bytes() * static_cast<uint64_t>(lanes_);
  }
  void set_scratch(uint64_t offset) override { scratch_ = offset; }
  uint64_t resident_bytes() const override { return 1024 + 2 * Primitive::kResidentBytes; }
  std::string path() const override {
    std::vector<Ref<const Primitive>> primitives = {whole_.scores, whole_.values};
    if (rest_.rows > 0) primitives.insert(primitives.end(), {rest_.scores, rest_.values});
    return path_of(primitives, static_cast<size_t>(units_));
  }

 private:
  struct Products {
    int64_t rows = 0;
    Ref<const Primitive> scores, values;
  };

  void read_operands(const Lowering& lowering);
  void choose_units(int width);
  Status prepare(const Engine& engine);
  void round_operands(const RunContext& context) const;
  const std::byte* source(const RunContext& context, size_t index) const;
  std::array<const Operand*, 3> operands() const { return {&q_, &k_, &v_}; }
  Result<Products> make_products(const Engine& engine, int64_t rows) const;
  Status run_unit(const RunContext& context, int lane, int64_t unit) const;
  void mask_scores(const RunContext& context, float* scores, int64_t batch, int64_t head, int64_t row,
                   int64_t rows) const;
  void mask_row(const RunContext& context, float* row, int64_t at) const;

  uint64_t score_bytes() const {
    return aligned(static_cast<uint64_t>(unit_heads_ * unit_rows_ * h_.keys) * sizeof(float));
  }
  uint64_t share_bytes() const { return bf16_ ? aligned(score_bytes() / 2) : 0; }
  uint64_t lane_bytes() const { return score_bytes() + share_bytes() + primitive_scratch_; }

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
  int64_t unit_heads_ = 1, unit_rows_ = 1, units_ = 1;
  int lanes_ = 1;
  Products whole_, rest_;  // for unit_rows_ queries, and for the last ones
  uint64_t primitive_scratch_ = 0;
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

void AttentionStep::choose_units(int width) {
  unit_rows_ = std::clamp<int64_t>(kScoreElements / std::max<int64_t>(h_.keys, 1), 16,
                                   std::max<int64_t>(h_.queries, 16));
  unit_rows_ = std::min(unit_rows_, h_.queries);
  const int64_t row_units = (h_.queries + unit_rows_ - 1) / unit_rows_;
  // Heads that share keys are not evenly strided, so each is a unit of its own.
  if (h_.kv_heads == h_.heads && row_units == 1) {
    for (int64_t heads = 1; heads <= h_.heads; ++heads) {
      const bool fits = heads == 1 || heads * unit_rows_ * h_.keys <= kScoreElements;
      const bool shares =
          width == 1 || h_.batch * (h_.heads / heads) % width == 0 || h_.batch * h_.heads < width;
      if (h_.heads % heads == 0 && fits && shares) unit_heads_ = heads;
    }
  }
  units_ = h_.batch * (h_.heads / unit_heads_) * row_units;
  const int64_t work = h_.batch * h_.heads * h_.queries * h_.keys * (h_.d + h_.dv);
  lanes_ = work < (1 << 18) ? 1 : static_cast<int>(std::min<int64_t>(width, units_));
}

Status AttentionStep::prepare(const Engine& engine) {
  HEDDLE_TRY_ASSIGN(whole_, make_products(engine, unit_rows_));
  if (const int64_t rest = h_.queries % unit_rows_; rest != 0) {
    HEDDLE_TRY_ASSIGN(rest_, make_products(engine, rest));
  }
  for (const Products* products : {&whole_, &rest_}) {
    if (products->rows == 0) continue;
    primitive_scratch_ =
        std::max({primitive_scratch_, products->scores->scratch_bytes(), products->values->scratch_bytes()});
  }
  primitive_scratch_ = aligned(primitive_scratch_);
  if (!bf16_) return {};
  for (size_t i = 0; i < operands().size(); ++i) {
    const Operand& operand = *operands()[i];
    if (operand.narrow || (packed_ && i > 0)) continue;
    rounded_[i] = lanes_offset_;
    lanes_offset_ += aligned(static_cast<uint64_t>(operand.elements()) * sizeof(uint16_t));
  }
  return {};
}

Result<AttentionStep::Products> AttentionStep::make_products(const Engine& engine, int64_t rows) const {
  const int64_t n = unit_heads_, keys = h_.keys;
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

Status AttentionStep::run_unit(const RunContext& context, int lane, int64_t unit) const {
  const int64_t row_units = (h_.queries + unit_rows_ - 1) / unit_rows_, head_units = h_.heads / unit_heads_;
  const int64_t row = unit % row_units * unit_rows_;
  const int64_t head = unit / row_units % head_units * unit_heads_;
  const int64_t batch = unit / row_units / head_units;
  const int64_t kv_head = head / (h_.heads / h_.kv_heads);
  const int64_t rows = std::min(unit_rows_, h_.queries - row);
  const Products& products = rows == unit_rows_ ? whole_ : rest_;
  std::byte* const own =
      context.arena + scratch_ + lanes_offset_ + static_cast<uint64_t>(lane) * lane_bytes();
  auto* scores = reinterpret_cast<float*>(own);
  const std::byte* primitive_scratch = own + score_bytes() + share_bytes();

  const int64_t element = bf16_ ? sizeof(uint16_t) : sizeof(float);
  const std::byte* q = source(context, 0) + (batch * h_.q_batch + row * h_.q_row + head * h_.d) * element;
  const std::byte* k = source(context, 1) + (k_offset_ + batch * h_.k_batch + kv_head * h_.d) * element;
  const std::byte* v = source(context, 2) + (v_offset_ + batch * h_.v_batch + kv_head * h_.dv) * element;
  std::byte* y =
      context.write(y_) + ((batch * h_.queries + row) * h_.heads + head) * h_.dv * y_.element_bytes();
  HEDDLE_TRY(products.scores->run(std::array<const void*, 4>{q, k, scores, primitive_scratch}));
  mask_scores(context, scores, batch, head, row, rows);
  const void* shares = scores;
  if (bf16_) {
    auto* narrow = reinterpret_cast<uint16_t*>(own + score_bytes());
    softmax_rows_bf16(scores, narrow, unit_heads_ * rows, h_.keys);
    shares = narrow;
  } else {
    softmax_rows(scores, unit_heads_ * rows, h_.keys, h_.keys);
  }
  return products.values->run(std::array<const void*, 4>{shares, v, y, primitive_scratch});
}

const std::byte* AttentionStep::source(const RunContext& context, size_t index) const {
  const Operand& operand = *operands()[index];
  return bf16_ && !operand.narrow ? context.arena + scratch_ + rounded_[index] : context.read(operand);
}

void AttentionStep::round_operands(const RunContext& context) const {
  for (size_t i = 0; i < (packed_ ? 1 : operands().size()); ++i) {
    const Operand& operand = *operands()[i];
    if (operand.narrow) continue;
    f32_to_bf16(context.read<float>(operand),
                reinterpret_cast<uint16_t*>(context.arena + scratch_ + rounded_[i]), operand.elements());
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
                                int64_t row, int64_t rows) const {
  for (int64_t h = 0; h < unit_heads_; ++h) {
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
