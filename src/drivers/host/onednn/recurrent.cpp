// RNN, GRU and LSTM: one product for all time steps of all directions, then one product and one fused cell
// per step. Examples are independent: directions and pieces of the batch are what threads share. Where there
// are too few and the state is wide, they share each step instead: a slice of the hidden elements has its
// columns of all gates side by side in the weight, so that its product and its cells are a piece.
#include <algorithm>
#include <array>
#include <iterator>
#include <numeric>

#include "drivers/host/kernels/rows/recurrent_cells.h"
#include "drivers/host/kernels/rows/sequence_lengths.h"
#include "drivers/host/machine/aligned_bytes.h"
#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/float_steps.h"
#include "drivers/host/onednn/linear.h"
#include "drivers/host/onednn/packed_weight.h"
#include "drivers/host/onednn/pieces.h"
#include "drivers/host/onednn/primitive.h"
#include "drivers/host/onednn/state_weight.h"
#include "ir/op.h"
#include "ir/recurrent.h"

namespace heddle::host {
namespace {

enum Input : size_t { kX, kW, kR, kB, kLengths, kH0, kC0, kP, kInputs };

// Products of one number of rows and hidden elements; several occur when the batch or these do not divide.
struct Products {
  int64_t rows = 0, count = 0;
  std::array<Ref<const Primitive>, 2> parts;
};

struct Unit {
  int64_t direction, first, rows;
  Slice slice;
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
    if (sliced_ && context.caller.share() > 1) return run_slices(context);
    const std::vector<Unit>& units = sliced_ ? whole_ : units_;
    const auto unit = [&](size_t i) { return run_unit(context, units[i], i); };
    if (shared_) return for_each_piece(context, units.size(), "a recurrent step", unit);
    for (size_t i = 0; i < units.size(); ++i) HEDDLE_TRY(unit(i));
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
  Sharing sharing() const override;

 private:
  Status prepare(const Lowering& lowering);
  Status prepare_projection(const Lowering& lowering);
  Status prepare_parts(const Lowering& lowering);
  Status prepare_units(const Lowering& lowering);
  Status choose_slices(const Lowering& lowering);
  double cost_of(int64_t rows, int64_t count) const;
  Result<std::optional<Division>> divide(const Engine& engine, int64_t cuts, bool slices) const;
  Result<Products> make_products(const Engine& engine, int64_t rows, int64_t count) const;
  Status project(const RunContext& context) const;
  Status run_unit(const RunContext& context, const Unit& unit, size_t index) const;
  Status run_slices(const RunContext& context) const;

  struct State;
  State state_of(const RunContext& context, const Unit& unit, size_t index) const;
  void begin(const RunContext& context, const State& state, const Unit& unit) const;
  Status multiply(const RunContext& context, const State& state, const Unit& unit, size_t part,
                  const float* h, float* to) const;
  Status step_part(const RunContext& context, const State& state, const Unit& unit, int64_t s,
                   size_t part) const;
  void make_cells(const RunContext& context, const State& state, const Unit& unit, int64_t s, size_t part,
                  const Slice& slice) const;
  void write(const RunContext& context, const State& state, const Unit& unit, int64_t s,
             const Slice& slice) const;
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
  int64_t slice_ = 0;    // hidden elements that lie together in r: all of them, or a slice's
  bool sliced_ = false;  // threads share each step
  int width_ = 1;
  std::unique_ptr<Step> projection_;
  std::vector<StatePart> parts_;
  std::vector<Products> products_;
  std::vector<Unit> units_;
  std::vector<Unit> whole_;  // of sliced ones: for a caller that no thread helps
  uint64_t projected_ = 0, bias_ = 0, projection_scratch_ = 0;
  uint64_t unit_offset_ = 0, state_bytes_ = 0, primitive_bytes_ = 0;
  uint64_t scratch_ = 0, base_ = 0;
};

// One unit's memory, or one direction's, rows * hidden floats each, but for sums: rows * gates. Step s reads
// h[s % 2] and writes the other.
struct RecurrentStep::State {
  std::array<float*, 2> h;
  float *c, *z, *left, *fresh, *sums;
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
  width_ = lowering.width;
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
  const bool constant = in_[kR].location == Operand::Location::kConstant;
  const int64_t cut = two_part_gru_ ? 2 : rec_.gates;
  for (int64_t first = 0; first < rec_.gates; first += cut) {
    const int64_t some = std::min(cut, rec_.gates - first);
    HEDDLE_TRY_ASSIGN(StatePart part,
                      StatePart::make(lowering.weights.engine(), first, some, hidden_, constant));
    parts_.push_back(std::move(part));
  }
  HEDDLE_TRY(choose_slices(lowering));
  if (!constant) return {};
  for (StatePart& part : parts_) {
    for (int64_t d = 0; d < rec_.directions; ++d)
      HEDDLE_TRY(part.pack(lowering.weights, in_[kR].constant, d * gates() * hidden_, slice_));
  }
  return {};
}

// A step of so many rows and hidden elements, in operations; reading a number of r takes as long as sixteen.
double RecurrentStep::cost_of(int64_t rows, int64_t count) const {
  return static_cast<double>(rec_.gates * hidden_ * count) * static_cast<double>(2 * rows + 16);
}

// As many elements for each thread, but for what has to lie together. The same for all batches, which share
// the packed weight.
Status RecurrentStep::choose_slices(const Lowering& lowering) {
  constexpr double kWorthSlicing = 1 << 22;  // some forty microseconds: more than starting the threads takes
  slice_ = hidden_;
  if (lowering.width == 1 || lowering.weights.engine().row_bits || cost_of(1, hidden_) < kWorthSlicing)
    return {};
  const int64_t threads = (lowering.width + rec_.directions - 1) / rec_.directions;
  int64_t unit = 1;
  for (StatePart& part : parts_) {
    HEDDLE_TRY_ASSIGN(const int64_t own, part.choose_blocks(lowering.weights.engine(), threads));
    if (own == 0) return {};
    unit = std::lcm(unit, own);
  }
  slice_ = std::min(((hidden_ + unit - 1) / unit + threads - 1) / threads * unit, hidden_);
  return {};
}

Status RecurrentStep::prepare_units(const Lowering& lowering) {
  const int64_t work = 2 * steps_ * batch_ * rec_.directions * gates() * hidden_;
  const int64_t threads = (lowering.width + rec_.directions - 1) / rec_.directions;
  constexpr double kOfFork = 500'000;
  sliced_ = slice_ < hidden_ &&
            cost_of(batch_, slice_) + kOfFork < cost_of((batch_ + threads - 1) / threads, hidden_);
  shared_ = !sliced_ && lowering.width > 1 && work >= kWorthSharing && rec_.directions * batch_ > 1;
  const bool each = lowering.weights.engine().row_bits != nullptr;  // row of the batch is a unit
  const int64_t cuts = shared_ && !each ? std::min(batch_, threads) : 1;
  HEDDLE_TRY_ASSIGN(Division division, finest_division<Division>(static_cast<int>(cuts), [&](int n) {
                      return divide(lowering.weights.engine(), each ? batch_ : n, sliced_);
                    }));
  units_ = std::move(division.units);
  products_ = std::move(division.products);
  if (sliced_) {
    HEDDLE_TRY_ASSIGN(std::optional<Division> whole, divide(lowering.weights.engine(), 1, false));
    whole_ = std::move(whole->units);
    for (Unit& unit : whole_) unit.products += products_.size();
    std::ranges::move(whole->products, std::back_inserter(products_));
  }
  int64_t most = 0;
  uint64_t primitive = 0;
  for (const Products& p : products_) {
    most = std::max(most, p.rows);
    for (size_t i = 0; i < parts_.size(); ++i) primitive = std::max(primitive, p.parts[i]->scratch_bytes());
  }
  const uint64_t state = aligned(static_cast<uint64_t>(most * hidden_) * sizeof(float));
  // Slices of a direction share its memory, but for what a primitive needs.
  state_bytes_ = 6 * state + aligned(static_cast<uint64_t>(most * gates()) * sizeof(float));
  primitive_bytes_ = aligned(primitive);
  unit_offset_ = scratch_;
  const size_t states = sliced_ ? static_cast<size_t>(rec_.directions) : units_.size();
  scratch_ += state_bytes_ * states + primitive_bytes_ * units_.size();
  return {};
}

// The batch in so many cuts, for each direction; or each direction in slices.
Result<std::optional<Division>> RecurrentStep::divide(const Engine& engine, int64_t cuts, bool slices) const {
  Division division;
  std::vector<Products>& products = division.products;
  const auto add = [&](int64_t d, int64_t first, int64_t rows, const Slice& slice) -> Status {
    const auto known = std::ranges::find_if(
        products, [&](const Products& p) { return p.rows == rows && p.count == slice.count; });
    division.units.push_back({d, first, rows, slice, static_cast<size_t>(known - products.begin())});
    if (known != products.end()) return {};
    HEDDLE_TRY_ASSIGN(Products made, make_products(engine, rows, slice.count));
    for (size_t part = 0; part < parts_.size(); ++part)
      division.fast = division.fast && !is_reference(made.parts[part]->implementation());
    products.push_back(std::move(made));
    return {};
  };
  for (int64_t d = 0; d < rec_.directions; ++d) {
    for (int64_t i = 0; i < cuts; ++i) {
      const int64_t first = batch_ * i / cuts, rows = batch_ * (i + 1) / cuts - first;
      const std::vector<Slice> all = {{0, hidden_}};
      for (const Slice& slice : slices ? slices_of(all[0], slice_) : all)
        HEDDLE_TRY(add(d, first, rows, slice));
    }
  }
  return std::optional<Division>(std::move(division));
}

Result<Products> RecurrentStep::make_products(const Engine& engine, int64_t rows, int64_t count) const {
  Products made{rows, count, {}};
  for (size_t i = 0; i < parts_.size(); ++i) {
    HEDDLE_TRY_ASSIGN(made.parts[i], parts_[i].product(engine, rows, count));
  }
  return made;
}

Sharing RecurrentStep::sharing() const {
  if (!sliced_ && !shared_) return width_ == 1 ? Sharing() : Sharing::whole();
  const auto units = static_cast<int64_t>(units_.size()), rounds = (units + width_ - 1) / width_;
  const double largest =
      sliced_ ? static_cast<double>(slice_) / static_cast<double>(hidden_ * rec_.directions)
              : static_cast<double>((batch_ + units / rec_.directions - 1) / (units / rec_.directions)) /
                    static_cast<double>(batch_ * rec_.directions);
  const double balance = std::min(1.0, 1 / (largest * static_cast<double>(rounds * width_)));
  return Sharing::divided(units, balance,
                          text(units, sliced_ ? " slices of each step" : " parts of the batch"), width_);
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
  const size_t states = sliced_ ? static_cast<size_t>(rec_.directions) : units_.size();
  const size_t own = sliced_ ? static_cast<size_t>(unit.direction) : index;
  std::byte* const first = context.arena + base_ + unit_offset_;
  std::byte* at = first + own * state_bytes_;
  const auto next = [&](int64_t floats) {
    auto* part = reinterpret_cast<float*>(at);
    at += aligned(static_cast<uint64_t>(floats) * sizeof(float));
    return part;
  };
  State state{};
  const int64_t size = unit.rows * hidden_;
  for (float** part : {&state.h[0], &state.h[1], &state.c, &state.z, &state.left, &state.fresh})
    *part = next(size);
  state.sums = next(unit.rows * gates());
  state.primitive_scratch = first + states * state_bytes_ + index * primitive_bytes_;
  return state;
}

void RecurrentStep::begin(const RunContext& context, const State& state, const Unit& unit) const {
  const int64_t first = (unit.direction * batch_ + unit.first) * hidden_, size = unit.rows * hidden_;
  for (const auto& [from, to] : {std::pair(&in_[kH0], state.h[0]), std::pair(&in_[kC0], state.c)}) {
    std::fill_n(to, size, 0.0f);
    if (from->present()) std::copy_n(context.read<float>(*from) + first, size, to);
  }
}

Status RecurrentStep::run_unit(const RunContext& context, const Unit& unit, size_t index) const {
  const State state = state_of(context, unit, index);
  begin(context, state, unit);
  for (int64_t s = 0; s < steps_; ++s) {
    for (size_t part = 0; part < parts_.size(); ++part) HEDDLE_TRY(step_part(context, state, unit, s, part));
  }
  finish(context, state, unit);
  return {};
}

// All slices of a step end before the next begins, which reads the whole state.
Status RecurrentStep::run_slices(const RunContext& context) const {
  const size_t of_direction = units_.size() / static_cast<size_t>(rec_.directions);
  for (size_t i = 0; i < units_.size(); i += of_direction)
    begin(context, state_of(context, units_[i], i), units_[i]);
  for (int64_t s = 0; s < steps_; ++s) {
    for (size_t part = 0; part < parts_.size(); ++part) {
      const auto piece = [&](size_t i) {
        return step_part(context, state_of(context, units_[i], i), units_[i], s, part);
      };
      HEDDLE_TRY(for_each_piece(context, units_.size(), "a recurrent step", piece));
    }
  }
  for (size_t i = 0; i < units_.size(); i += of_direction)
    finish(context, state_of(context, units_[i], i), units_[i]);
  return {};
}

Status RecurrentStep::multiply(const RunContext& context, const State& state, const Unit& unit, size_t part,
                               const float* h, float* to) const {
  const StatePart& p = parts_[part];
  const void* r = nullptr;
  if (p.r.empty()) {
    r = context.read<float>(in_[kR]) + (unit.direction * gates() + p.first * hidden_) * hidden_;
  } else {
    r = p.r[static_cast<size_t>(unit.direction)]->data.here() + p.bytes_to(unit.slice.first);
  }
  return products_[unit.products].parts[part]->run(
      std::array<const void*, 4>{h, r, to, state.primitive_scratch});
}

// Of step s, the gates of one product.
Status RecurrentStep::step_part(const RunContext& context, const State& state, const Unit& unit, int64_t s,
                                size_t part) const {
  float* const to = part == 0 ? state.sums + unit.rows * parts_[0].gates * unit.slice.first
                              : state.fresh + unit.rows * unit.slice.first;
  HEDDLE_TRY(multiply(context, state, unit, part, part == 0 ? state.h[s % 2] : state.left, to));
  for (const Slice& slice : slices_of(unit.slice, slice_)) {
    make_cells(context, state, unit, s, part, slice);
    if (part + 1 == parts_.size()) write(context, state, unit, s, slice);
  }
  return {};
}

// A slice's part of every example in the unit that is not over.
void RecurrentStep::make_cells(const RunContext& context, const State& state, const Unit& unit, int64_t s,
                               size_t part, const Slice& slice) const {
  const int64_t d = unit.direction, n = hidden_, of_unit = unit.slice.count;
  // Where this slice's sums begin among those of the unit, whose rows hold all of its slices.
  const int64_t after = slice.first - unit.slice.first, stride = parts_[0].gates * of_unit;
  const float* sums = state.sums + unit.rows * parts_[0].gates * unit.slice.first + parts_[0].gates * after;
  const float* fresh = state.fresh + unit.rows * unit.slice.first + after;
  const CellFunctions functions{&rec_.activation(d, 0), usual_, static_cast<float>(rec_.clip)};
  const float* third = in_[kB].present()
                           ? context.read<float>(in_[kB]) + d * 2 * gates() + gates() + 2 * n + slice.first
                           : nullptr;
  const float* peepholes =
      in_[kP].present() ? context.read<float>(in_[kP]) + d * 3 * n + slice.first : nullptr;
  for (int64_t i = 0; i < unit.rows; ++i) {
    const int64_t b = unit.first + i, length = lengths_.of(context, b), at = i * n + slice.first;
    if (s >= length) continue;
    const int64_t t = rec_.backward(d) ? length - 1 - s : s;
    const float* input =
        scratch(context, projected_) + ((t * batch_ + b) * rec_.directions + d) * gates() + slice.first;
    const CellRow row{input, sums + i * stride, state.h[s % 2] + at, state.h[(s + 1) % 2] + at, slice.count,
                      n,     slice.count};
    if (rec_.cell == ir::Cell::kRnn) {
      rnn_cell(row, functions);
    } else if (rec_.cell == ir::Cell::kLstm) {
      lstm_cell(row, functions, peepholes, rec_.input_forget, state.c + at);
    } else if (!two_part_gru_) {
      gru_cell(row, functions, third);
    } else if (part == 0) {
      gru_gates(row, functions, state.z + at, state.left + at);
    } else {
      gru_join(row, functions, state.z + at, fresh + i * of_unit);
    }
  }
}

// Examples that are over keep their state, and their outputs are zeros.
void RecurrentStep::write(const RunContext& context, const State& state, const Unit& unit, int64_t s,
                          const Slice& slice) const {
  const int64_t d = unit.direction, n = hidden_;
  for (int64_t i = 0; i < unit.rows; ++i) {
    const int64_t b = unit.first + i, length = lengths_.of(context, b), at = i * n + slice.first;
    const int64_t t = rec_.backward(d) && s < length ? length - 1 - s : s;
    float* y = context.write<float>(y_) + ((t * rec_.directions + d) * batch_ + b) * n + slice.first;
    float* h = state.h[(s + 1) % 2] + at;
    if (s < length) {
      std::copy_n(h, slice.count, y);
    } else {
      std::copy_n(state.h[s % 2] + at, slice.count, h);
      std::fill(y, y + slice.count, 0.0f);
    }
  }
}

void RecurrentStep::finish(const RunContext& context, const State& state, const Unit& unit) const {
  const int64_t first = (unit.direction * batch_ + unit.first) * hidden_;
  if (last_h_.present())
    std::copy_n(state.h[steps_ % 2], unit.rows * hidden_, context.write<float>(last_h_) + first);
  if (last_c_.present()) std::copy_n(state.c, unit.rows * hidden_, context.write<float>(last_c_) + first);
}

Result<std::unique_ptr<Step>> lower_recurrent(Lowering& lowering) {
  return lower_floats(lowering, [](Lowering& l) {
    return l.inputs[kR].elements() == 0 ? reference_step(l) : RecurrentStep::make(l);
  });
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
