// RNN, GRU and LSTM: one product for all time steps of all directions, then one product and one fused cell
// per step. Examples are independent: directions and pieces of the batch are what threads share.
#include <algorithm>
#include <array>

#include "drivers/host/kernels/rows/recurrent_cells.h"
#include "drivers/host/kernels/rows/sequence_lengths.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/linear.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"
#include "ir/op.h"
#include "ir/recurrent.h"

namespace heddle::host {
namespace {

using MatmulDesc = dnnl::matmul::primitive_desc;

enum Input : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP, kInputs };

// Some gates of one direction: h [rows, hidden] times a part of r, [columns, hidden], turned.
struct StatePart {
  int64_t first = 0, columns = 0;          // rows of r within the direction
  std::vector<Ref<const PackedWeight>> r;  // by direction; empty when r is no constant
  dnnl::memory::desc layout;
};

// Products of one number of rows; two numbers occur when the batch does not divide.
struct Products {
  int64_t rows = 0;
  std::array<Ref<const Primitive>, 2> parts;
};

struct Unit {
  int64_t direction, first, rows;
  size_t products;
};

struct Division {
  std::vector<Unit> units;
  std::vector<Products> products;
  bool fast = true;
};

class RecurrentStep final : public Step {
 public:
  static Result<std::unique_ptr<Step>> make(const Lowering& lowering) {
    auto step = std::make_unique<RecurrentStep>();
    HEDDLE_TRY(step->prepare(lowering));
    return std::unique_ptr<Step>(std::move(step));
  }

  Status run(const RunContext& context) const override {
    HEDDLE_TRY(lengths_.check(context));
    HEDDLE_TRY(project(context));
    if (shared_) {
      return for_each_piece(context, units_.size(), "a recurrent step",
                            [&](size_t i) { return run_unit(context, i); });
    }
    for (size_t i = 0; i < units_.size(); ++i) HEDDLE_TRY(run_unit(context, i));
    return {};
  }

  uint64_t scratch_bytes() const override { return scratch_; }
  void set_scratch(uint64_t offset) override {
    base_ = offset;
    projection_->set_scratch(offset + projection_scratch_);
  }
  uint64_t resident_bytes() const override {
    return 1024 + projection_->resident_bytes() +
           products_.size() * parts_.size() * Primitive::kResidentBytes;
  }
  std::string path() const override {
    std::vector<Ref<const Primitive>> primitives;
    for (const Products& p : products_)
      primitives.insert(primitives.end(), p.parts.begin(), p.parts.begin() + static_cast<int>(parts_.size()));
    return text("all inputs: ", projection_->path(), "; each step: ", path_of(primitives, units_.size()));
  }

 private:
  Status prepare(const Lowering& lowering);
  Status prepare_projection(const Lowering& lowering);
  Status prepare_parts(const Lowering& lowering);
  Status prepare_units(const Lowering& lowering);
  Result<std::optional<Division>> divide(const Engine& engine, int64_t cuts) const;
  Result<Products> make_products(const Engine& engine, int64_t rows) const;
  Status project(const RunContext& context) const;
  Status run_unit(const RunContext& context, size_t index) const;

  struct State;
  State state_of(const RunContext& context, const Unit& unit, size_t index) const;
  Status multiply(const RunContext& context, const State& state, const Unit& unit, size_t part,
                  const float* h, float* to) const;
  Status step(const RunContext& context, const State& state, const Unit& unit, int64_t s) const;
  void finish(const RunContext& context, const State& state, const Unit& unit) const;
  uint64_t reserve(uint64_t floats) {
    const uint64_t at = scratch_;
    scratch_ += aligned(floats * sizeof(float));
    return at;
  }
  float* scratch(const RunContext& context, uint64_t offset) const {
    return reinterpret_cast<float*>(context.arena + base_ + offset);
  }
  int64_t gates() const { return rec_.gates * hidden_; }  // of one direction

  ir::Recurrent rec_;
  std::array<Operand, kInputs> in_;
  SequenceLengths lengths_;
  Operand y_, last_h_, last_c_;
  int64_t steps_ = 0, batch_ = 0, inputs_ = 0, hidden_ = 0;
  bool two_part_gru_ = false;
  bool usual_ = true;
  bool shared_ = false;
  std::unique_ptr<Step> projection_;
  std::vector<StatePart> parts_;
  std::vector<Products> products_;
  std::vector<Unit> units_;
  uint64_t projected_ = 0, bias_ = 0, projection_scratch_ = 0;
  uint64_t unit_offset_ = 0, unit_bytes_ = 0;
  uint64_t scratch_ = 0, base_ = 0;
};

// One unit's memory, rows * hidden floats each, but for sums: rows * gates.
struct RecurrentStep::State {
  float *h, *c, *z, *left, *fresh, *sums;
  const std::byte* primitive_scratch;
};

Status RecurrentStep::prepare(const Lowering& lowering) {
  HEDDLE_TRY_ASSIGN(rec_, ir::Recurrent::of(lowering.node));
  for (size_t i = 0; i < lowering.inputs.size(); ++i) in_[i] = lowering.inputs[i];
  lengths_ = SequenceLengths(lowering);
  y_ = lowering.outputs[0];
  if (lowering.outputs.size() > 1) last_h_ = lowering.outputs[1];
  if (lowering.outputs.size() > 2) last_c_ = lowering.outputs[2];
  steps_ = in_[kX].extents[0], batch_ = in_[kX].extents[1], inputs_ = in_[kX].extents[2];
  hidden_ = in_[kR].extents[2];
  two_part_gru_ = rec_.cell == ir::Cell::kGru && !rec_.linear_before_reset;
  for (int64_t d = 0; d < rec_.directions; ++d) {
    for (size_t i = 0; i < rec_.functions(); ++i) {
      const bool gate = i == 0 && rec_.cell != ir::Cell::kRnn;
      const auto wanted = gate ? ir::CellFunction::kSigmoid : ir::CellFunction::kTanh;
      usual_ = usual_ && rec_.activation(d, i).function == wanted;
    }
  }
  HEDDLE_TRY(prepare_projection(lowering));
  HEDDLE_TRY(prepare_parts(lowering));
  return prepare_units(lowering);
}

// A Linear over the weights of all directions; its operands are those of a run of its own.
Status RecurrentStep::prepare_projection(const Lowering& lowering) {
  const int64_t columns = rec_.directions * gates();
  const ir::Attributes transposed = {{"trans_w", int64_t{1}}};
  const ir::Node linear{ir::find_op("Linear"), lowering.node.name, {}, {}, transposed};
  Lowering inner{lowering.graph, linear, {}, {}, lowering.weights, lowering.width};
  const auto operand = [&](Operand::Location location, uint64_t index, ir::Extents extents) {
    Operand o;
    o.location = location;
    o.offset = index;
    o.extents = extents;
    return o;
  };
  inner.inputs.push_back(operand(Operand::Location::kInput, 0, {steps_ * batch_, inputs_}));
  inner.inputs.push_back(operand(Operand::Location::kInput, 1, {columns, inputs_}));
  if (in_[kW].location == Operand::Location::kConstant) {
    inner.inputs[1].location = Operand::Location::kConstant;
    inner.inputs[1].constant = in_[kW].constant;
  }
  if (in_[kB].present()) {
    bias_ = reserve(static_cast<uint64_t>(columns));
    inner.inputs.push_back(operand(Operand::Location::kInput, 2, {columns}));
  }
  inner.outputs.push_back(operand(Operand::Location::kOutput, 0, {steps_ * batch_, columns}));
  projected_ = reserve(static_cast<uint64_t>(steps_ * batch_ * columns));
  HEDDLE_TRY_ASSIGN(projection_, lower_linear(inner));
  projection_scratch_ = scratch_;
  scratch_ += aligned(projection_->scratch_bytes());
  return {};
}

Status RecurrentStep::prepare_parts(const Lowering& lowering) {
  const Engine& engine = lowering.weights.engine();
  const int64_t cut = two_part_gru_ ? 2 * hidden_ : gates();
  parts_.push_back({0, cut, {}, {}});
  if (cut < gates()) parts_.push_back({cut, gates() - cut, {}, {}});
  for (StatePart& part : parts_) {
    HEDDLE_TRY_ASSIGN(const dnnl::memory::desc plain, caught("describing a weight", [&] {
                        return f32_desc({hidden_, part.columns}, {1, hidden_});
                      }));
    part.layout = plain;
    if (in_[kR].location != Operand::Location::kConstant) continue;
    // Asked for a row count in the middle: one layout serves all.
    constexpr int64_t kRows = 16;
    HEDDLE_TRY_ASSIGN(part.layout, caught("choosing a weight's layout", [&] {
                        return MatmulDesc(engine.cpu, f32_desc({kRows, hidden_}),
                                          f32_any({hidden_, part.columns}), f32_desc({kRows, part.columns}),
                                          engine.attributes())
                            .weights_desc();
                      }));
    for (int64_t d = 0; d < rec_.directions; ++d) {
      const int64_t offset = (d * gates() + part.first) * hidden_ * int64_t{sizeof(float)};
      HEDDLE_TRY_ASSIGN(auto packed,
                        pack_weight(lowering.weights, "state", in_[kR].constant, offset, plain, part.layout));
      part.r.push_back(std::move(packed));
    }
  }
  return {};
}

Status RecurrentStep::prepare_units(const Lowering& lowering) {
  const int64_t work = 2 * steps_ * batch_ * rec_.directions * gates() * hidden_;
  shared_ = lowering.width > 1 && work >= kWorthSharing && rec_.directions * batch_ > 1;
  const int64_t cuts =
      shared_ ? std::min(batch_, (lowering.width + rec_.directions - 1) / rec_.directions) : 1;
  HEDDLE_TRY_ASSIGN(Division division, finest_division<Division>(static_cast<int>(cuts), [&](int n) {
                      return divide(lowering.weights.engine(), n);
                    }));
  units_ = std::move(division.units);
  products_ = std::move(division.products);
  int64_t most = 0;
  uint64_t primitive = 0;
  for (const Products& p : products_) {
    most = std::max(most, p.rows);
    for (size_t i = 0; i < parts_.size(); ++i) primitive = std::max(primitive, p.parts[i]->scratch_bytes());
  }
  const uint64_t state = aligned(static_cast<uint64_t>(most * hidden_) * sizeof(float));
  unit_bytes_ =
      5 * state + aligned(static_cast<uint64_t>(most * gates()) * sizeof(float)) + aligned(primitive);
  unit_offset_ = scratch_;
  scratch_ += unit_bytes_ * units_.size();
  return {};
}

// The batch in so many cuts, for each direction.
Result<std::optional<Division>> RecurrentStep::divide(const Engine& engine, int64_t cuts) const {
  Division division;
  std::vector<Products>& products = division.products;
  for (int64_t d = 0; d < rec_.directions; ++d) {
    for (int64_t i = 0; i < cuts; ++i) {
      const int64_t first = batch_ * i / cuts, rows = batch_ * (i + 1) / cuts - first;
      const auto known = std::ranges::find(products, rows, &Products::rows);
      division.units.push_back({d, first, rows, static_cast<size_t>(known - products.begin())});
      if (known != products.end()) continue;
      HEDDLE_TRY_ASSIGN(Products made, make_products(engine, rows));
      for (size_t part = 0; part < parts_.size(); ++part)
        division.fast = division.fast && !is_reference(made.parts[part]->implementation());
      products.push_back(std::move(made));
    }
  }
  return std::optional<Division>(std::move(division));
}

Result<Products> RecurrentStep::make_products(const Engine& engine, int64_t rows) const {
  Products made{rows, {}};
  for (size_t i = 0; i < parts_.size(); ++i) {
    const StatePart& part = parts_[i];
    HEDDLE_TRY_ASSIGN(const MatmulDesc desc, caught("preparing a recurrent product", [&] {
                        return MatmulDesc(engine.cpu, f32_desc({rows, hidden_}), part.layout,
                                          f32_desc({rows, part.columns}), engine.attributes());
                      }));
    HEDDLE_TRY_ASSIGN(made.parts[i],
                      (Primitive::make<MatmulDesc, dnnl::matmul>(engine, desc,
                                                                 {{DNNL_ARG_SRC, desc.src_desc()},
                                                                  {DNNL_ARG_WEIGHTS, desc.weights_desc()},
                                                                  {DNNL_ARG_DST, desc.dst_desc()}})));
  }
  return made;
}

Status RecurrentStep::project(const RunContext& context) const {
  const std::array<const std::byte*, 3> inputs = {
      context.read(in_[kX]), context.read(in_[kW]),
      reinterpret_cast<const std::byte*>(scratch(context, bias_))};
  const std::array<std::byte*, 1> outputs = {reinterpret_cast<std::byte*>(scratch(context, projected_))};
  if (in_[kB].present()) {
    // Both biases, but for the one that the reset gate of a GRU acts on.
    const int64_t own = rec_.cell == ir::Cell::kGru && rec_.linear_before_reset ? 2 * hidden_ : gates();
    for (int64_t d = 0; d < rec_.directions; ++d) {
      const float* b = context.read<float>(in_[kB]) + d * 2 * gates();
      float* to = scratch(context, bias_) + d * gates();
      for (int64_t j = 0; j < gates(); ++j) to[j] = b[j] + (j < own ? b[gates() + j] : 0.0f);
    }
  }
  return projection_->run(context.inside(context.arena, inputs.data(), outputs.data()));
}

RecurrentStep::State RecurrentStep::state_of(const RunContext& context, const Unit& unit,
                                             size_t index) const {
  std::byte* at = context.arena + base_ + unit_offset_ + index * unit_bytes_;
  const auto next = [&](int64_t floats) {
    auto* part = reinterpret_cast<float*>(at);
    at += aligned(static_cast<uint64_t>(floats) * sizeof(float));
    return part;
  };
  State state{};
  const int64_t size = unit.rows * hidden_;
  for (float** part : {&state.h, &state.c, &state.z, &state.left, &state.fresh}) *part = next(size);
  state.sums = next(unit.rows * gates());
  state.primitive_scratch = at;
  const int64_t first = (unit.direction * batch_ + unit.first) * hidden_;
  const auto begin = [&](const Operand& from, float* to) {
    if (from.present()) {
      std::copy_n(context.read<float>(from) + first, size, to);
    } else {
      std::fill(to, to + size, 0.0f);
    }
  };
  begin(in_[kH0], state.h);
  begin(in_[kC0], state.c);
  return state;
}

Status RecurrentStep::run_unit(const RunContext& context, size_t index) const {
  const Unit& unit = units_[index];
  const State state = state_of(context, unit, index);
  for (int64_t s = 0; s < steps_; ++s) HEDDLE_TRY(step(context, state, unit, s));
  finish(context, state, unit);
  return {};
}

Status RecurrentStep::multiply(const RunContext& context, const State& state, const Unit& unit, size_t part,
                               const float* h, float* to) const {
  const StatePart& p = parts_[part];
  const void* r = p.r.empty() ? static_cast<const void*>(context.read<float>(in_[kR]) +
                                                         (unit.direction * gates() + p.first) * hidden_)
                              : p.r[static_cast<size_t>(unit.direction)]->data.here();
  return products_[unit.products].parts[part]->run(
      std::array<const void*, 4>{h, r, to, state.primitive_scratch});
}

// Step s of every example in the unit; those that are over keep their state, and their outputs are zeros.
Status RecurrentStep::step(const RunContext& context, const State& state, const Unit& unit, int64_t s) const {
  const int64_t d = unit.direction, n = hidden_, stride = parts_[0].columns;
  HEDDLE_TRY(multiply(context, state, unit, 0, state.h, state.sums));
  const CellFunctions functions{&rec_.activation(d, 0), usual_, static_cast<float>(rec_.clip)};
  const auto each = [&](auto&& cell) {
    for (int64_t i = 0; i < unit.rows; ++i) {
      const int64_t b = unit.first + i, length = lengths_.of(context, b);
      if (s >= length) continue;
      const int64_t t = rec_.backward(d) ? length - 1 - s : s;
      const float* input = scratch(context, projected_) + ((t * batch_ + b) * rec_.directions + d) * gates();
      cell(CellRow{input, state.sums + i * stride, state.h + i * n, state.h + i * n, n}, i);
    }
  };
  if (two_part_gru_) {
    each([&](const CellRow& row, int64_t i) {
      gru_gates(row, functions, state.z + i * n, state.left + i * n);
    });
    HEDDLE_TRY(multiply(context, state, unit, 1, state.left, state.fresh));
  }
  const float* third =
      in_[kB].present() ? context.read<float>(in_[kB]) + d * 2 * gates() + gates() + 2 * n : nullptr;
  const float* peepholes = in_[kP].present() ? context.read<float>(in_[kP]) + d * 3 * n : nullptr;
  each([&](const CellRow& row, int64_t i) {
    switch (rec_.cell) {
      case ir::Cell::kRnn:
        return rnn_cell(row, functions);
      case ir::Cell::kGru:
        return two_part_gru_ ? gru_join(row, functions, state.z + i * n, state.fresh + i * n)
                             : gru_cell(row, functions, third);
      case ir::Cell::kLstm:
        return lstm_cell(row, functions, peepholes, rec_.input_forget, state.c + i * n);
    }
  });
  for (int64_t i = 0; i < unit.rows; ++i) {
    const int64_t b = unit.first + i, length = lengths_.of(context, b);
    const int64_t t = rec_.backward(d) && s < length ? length - 1 - s : s;
    float* y = context.write<float>(y_) + ((t * rec_.directions + d) * batch_ + b) * n;
    if (s < length) {
      std::copy_n(state.h + i * n, n, y);
    } else {
      std::fill(y, y + n, 0.0f);
    }
  }
  return {};
}

void RecurrentStep::finish(const RunContext& context, const State& state, const Unit& unit) const {
  const int64_t first = (unit.direction * batch_ + unit.first) * hidden_;
  if (last_h_.present()) std::copy_n(state.h, unit.rows * hidden_, context.write<float>(last_h_) + first);
  if (last_c_.present()) std::copy_n(state.c, unit.rows * hidden_, context.write<float>(last_c_) + first);
}

Result<std::unique_ptr<Step>> lower_recurrent_f32(Lowering& lowering) {
  const bool nothing = lowering.inputs[kR].elements() == 0;
  return nothing ? reference_step(lowering) : RecurrentStep::make(lowering);
}

Result<std::unique_ptr<Step>> lower_recurrent(Lowering& lowering) {
  return lower_floats(lowering, lower_recurrent_f32);
}

}  // namespace

std::span<const LoweringEntry> recurrent_lowerings() {
  static constexpr LoweringEntry kEntries[] = {
      {"RNN", lower_recurrent},
      {"GRU", lower_recurrent},
      {"LSTM", lower_recurrent},
  };
  return kEntries;
}

}  // namespace heddle::host
