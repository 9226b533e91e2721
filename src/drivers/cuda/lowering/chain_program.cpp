#include "drivers/cuda/lowering/chain_program.h"

#include <algorithm>
#include <functional>
#include <map>

#include "drivers/cuda/lowering/chain_source.h"
#include "drivers/cuda/lowering/scalar_steps.h"

namespace heddle::cuda {
namespace {

using ir::DType;
using ir::ValueId;

constexpr int kMostRegisters = 12, kChainThreads = 128;
constexpr int kRegisterBytes = Chain<float>::kEach * kChainThreads * int{sizeof(float)};
static_assert(kRegisterBytes == Chain<int64_t>::kEach * kChainThreads * int{sizeof(int64_t)});
static_assert(kMostRegisters * kRegisterBytes <= 48 * 1024 && kMostRegisters >= kChainSources);
static_assert(sizeof(ChainParams) <= 4096);  // what a launch takes

bool is_narrow_float(DType dtype) { return ir::is_float(dtype) && dtype != DType::kF64; }
bool is_whole(DType dtype) { return !ir::is_float(dtype); }
bool is_exact_in_f32(DType dtype) { return is_whole(dtype) && ir::size_of(dtype) <= 2; }
bool is_held_in_f32(DType dtype) { return is_narrow_float(dtype) || is_exact_in_f32(dtype); }

struct Named {
  std::string_view kernel;
  ChainOp op;
  bool floats, integers;  // the program that has it
};
constexpr Named kOps[] = {
    {kChoose, ChainOp::kSelect, true, true},
#define HEDDLE_FLOATS(name, op) {#name, ChainOp::k##op, true, false},
#define HEDDLE_NUMBERS(name, op) {#name, ChainOp::k##op, true, true},
#define HEDDLE_NUMBERS_U64(name, op) HEDDLE_NUMBERS(name, op)
#define HEDDLE_INTEGERS(name, op) {#name, ChainOp::k##op, false, true},
#include "drivers/cuda/kernels/scalars.inc"
#undef HEDDLE_FLOATS
#undef HEDDLE_NUMBERS
#undef HEDDLE_NUMBERS_U64
#undef HEDDLE_INTEGERS
};

const Named& named(std::string_view kernel) {
  return *std::find_if(std::begin(kOps), std::end(kOps), [&](const Named& n) { return n.kernel == kernel; });
}

// How a program of floats computes an operator of integers that are exact in f32; empty: it does not.
std::vector<std::string_view> in_floats(const ScalarStep& step) {
  for (const std::string_view alike : {"same", "equal", "less", "less_or_equal", "not"}) {
    if (step.kernel == alike) return {alike};
  }
  if (step.kernel == kChoose) return {kChoose};
  if (step.computed != DType::kBool) return {};
  if (step.kernel == "bitwise_and") return {"min"};
  if (step.kernel == "bitwise_or") return {"max"};
  if (step.kernel == "bitwise_xor") return {"equal", "not"};
  return {};
}

class Assembler {
 public:
  Assembler(const ir::Graph& graph, bool floats) : graph_(graph) { program_.floats = floats; }

  bool add(const ir::Node& node) {
    std::vector<DType> in;
    for (const ValueId id : node.inputs) in.push_back(id == ir::kNoValue ? DType::kF32 : dtype(id));
    const std::vector<ScalarStep> steps = scalar_steps(node, in);
    for (const ScalarStep& step : steps) {
      if (!add_step(node, step)) return false;
    }
    if (steps.empty()) return false;
    places_[node.outputs[0]] = static_cast<int>(steps_.size()) - 1;
    return true;
  }

  // Empty: it needs more than the kernel has.
  std::optional<ChainProgram> finish(std::span<const ir::Node> nodes) {
    ChainParams& params = program_.params;
    if (steps_.size() > kChainSteps || program_.sources.size() > kChainSources || numbers_ > kChainNumbers)
      return std::nullopt;
    params.sources = static_cast<int32_t>(program_.sources.size());
    params.steps = static_cast<int32_t>(steps_.size());
    for (const auto& [value, step] : places_) {
      if (!used_beyond(nodes, value)) continue;
      if (program_.results.size() == kChainResults) return std::nullopt;
      steps_[static_cast<size_t>(step)].step.out = static_cast<uint8_t>(program_.results.size());
      program_.results.push_back(value);
    }
    if (program_.results.empty() || !give_registers()) return std::nullopt;
    for (size_t n = 0; n < steps_.size(); ++n) params.step[n] = steps_[n].step;
    return std::move(program_);
  }

 private:
  // An operand: what step `made` makes, source `source`, or a number, which the step names already.
  struct Use {
    int made = -1, source = -1;
  };
  struct Virtual {
    ChainStep step;
    Use uses[3];
  };

  DType dtype(ValueId id) const { return graph_.type(id).dtype; }

  bool fits(ValueId id, const ScalarStep& step, DType to) const {
    const bool floats = program_.floats;
    const DType from = dtype(id);
    if (floats ? is_held_in_f32(from) : is_whole(from)) return true;
    if (!floats || !is_whole(from) || places_.contains(id)) return false;
    return step.kernel == "pow" || (step.kernel == "same" && to == DType::kF32);
  }

  bool add_step(const ir::Node& node, const ScalarStep& step) {
    const DType to = dtype(node.outputs[0]);
    const bool floats = program_.floats;
    std::vector<std::string_view> kernels = {step.kernel};
    if (floats && !is_narrow_float(step.computed)) {
      if (!is_whole(step.computed)) return false;
      kernels = in_floats(step);
    } else if (!floats && (!is_whole(step.computed) || step.computed == DType::kU64)) {
      return false;
    }
    for (const int i : step.operands) {
      if (i != ScalarStep::kBefore && !fits(node.inputs[static_cast<size_t>(i)], step, to)) return false;
    }
    if (kernels.empty()) return false;
    for (const std::string_view kernel : kernels) {
      const Named& op = named(kernel);
      if (!(floats ? op.floats : op.integers)) return false;
      Virtual made;
      made.step.op = op.op;
      made.step.a = static_cast<float>(step.numbers.a);
      made.step.b = static_cast<float>(step.numbers.b);
      made.step.rounds = rounds_to(to);
      if (kernel == step.kernel || kernel == kernels[0]) {
        for (const int i : step.operands) add_operand(node, i, made);
      } else {
        add_operand(node, ScalarStep::kBefore, made);
      }
      steps_.push_back(made);
    }
    return true;
  }

  // What no register holds is made for a result only, which rounds by itself.
  Type rounds_to(DType to) const {
    if (program_.floats) return is_held_in_f32(to) ? type_of(to) : Type::kF32;
    return is_whole(to) && to != DType::kU64 ? type_of(to) : Type::kI64;
  }

  void add_operand(const ir::Node& node, int i, Virtual& to) {
    const int at = to.step.operands++;
    if (i == ScalarStep::kBefore) {
      to.uses[at].made = static_cast<int>(steps_.size()) - 1;
      return;
    }
    const ValueId id = node.inputs[static_cast<size_t>(i)];
    if (const auto found = places_.find(id); found != places_.end()) {
      to.uses[at].made = found->second;
    } else if (is_number(id)) {
      to.step.x[at] = static_cast<uint8_t>(kFirstNumber + number(*graph_.values[id].constant));
    } else {
      std::vector<ValueId>& sources = program_.sources;
      const auto source = std::find(sources.begin(), sources.end(), id);
      to.uses[at].source = static_cast<int>(source - sources.begin());
      if (source == sources.end()) sources.push_back(id);
    }
  }

  bool is_number(ValueId id) const {
    const ir::Value& value = graph_.values[id];
    return value.is_constant() && value.constant->elements() == 1 && dtype(id) != DType::kU64;
  }

  int number(const ir::Tensor& constant) {
    uint64_t bits;
    if (!program_.floats) {
      bits = static_cast<uint64_t>(constant.get_i64(0));
    } else if (is_whole(constant.dtype())) {
      bits = bits_as<uint32_t>(static_cast<float>(constant.get_i64(0)));
    } else {
      bits = bits_as<uint32_t>(static_cast<float>(constant.get(0)));
    }
    uint64_t* const all = program_.params.numbers;
    const int known = std::min(numbers_, kChainNumbers);
    const int found = static_cast<int>(std::find(all, all + known, bits) - all);
    if (found < known) return found;
    if (numbers_ < kChainNumbers) all[numbers_] = bits;
    return numbers_++;
  }

  bool used_beyond(std::span<const ir::Node> nodes, ValueId id) const {
    if (std::find(graph_.outputs.begin(), graph_.outputs.end(), id) != graph_.outputs.end()) return true;
    const auto reads = [&](const ir::Node& node) {
      return std::find(node.inputs.begin(), node.inputs.end(), id) != node.inputs.end();
    };
    for (const ir::Node& node : graph_.nodes) {
      const bool inside = &node >= nodes.data() && &node < nodes.data() + nodes.size();
      if (!inside && reads(node)) return true;
    }
    return false;
  }

  // A register is free again after the last step that reads it. What only the next step reads needs none.
  bool give_registers() {
    const int steps = static_cast<int>(steps_.size()), sources = program_.params.sources;
    std::vector<int> of_source(static_cast<size_t>(sources), 0), of_step(steps_.size(), 0);  // their last use
    for (int n = 0; n < steps; ++n) {
      for (const Use& use : steps_[static_cast<size_t>(n)].uses) {
        if (use.source >= 0) of_source[static_cast<size_t>(use.source)] = n;
        if (use.made >= 0) of_step[static_cast<size_t>(use.made)] = n;
      }
    }
    std::vector<int> busy_until = of_source;
    for (int n = 0; n < steps; ++n) {
      ChainStep& step = steps_[static_cast<size_t>(n)].step;
      for (int k = 0; k < step.operands; ++k) {
        const Use& use = steps_[static_cast<size_t>(n)].uses[k];
        if (use.source >= 0) step.x[k] = static_cast<uint8_t>(use.source);
        if (use.made >= 0)
          step.x[k] = use.made == n - 1 ? kLast : steps_[static_cast<size_t>(use.made)].step.to;
      }
      if (of_step[static_cast<size_t>(n)] <= n + 1) continue;
      const auto free =
          std::find_if(busy_until.begin(), busy_until.end(), [&](int last) { return last <= n; });
      step.to = static_cast<uint8_t>(free - busy_until.begin());
      if (free == busy_until.end()) busy_until.push_back(0);
      busy_until[step.to] = of_step[static_cast<size_t>(n)];
    }
    program_.params.registers = static_cast<int32_t>(busy_until.size());
    return busy_until.size() <= kMostRegisters;
  }

  const ir::Graph& graph_;
  ChainProgram program_;
  std::vector<Virtual> steps_;
  std::map<ValueId, int> places_;  // which step made it
  int numbers_ = 0;
};

ChainSource::How how_of(const Walk& walk, size_t source) {
  using How = ChainSource::How;
  const std::vector<int64_t>& strides = walk.strides[source];
  if (std::all_of(strides.begin(), strides.end(), [](int64_t s) { return s == 0; })) return How::kOne;
  const std::span<const int64_t> extents(walk.axes.extents, strides.size());
  if (strides == row_major(extents)) return How::kFlat;
  if (extents.back() % kQuad != 0) return How::kEach;
  if (strides.back() == 0) return How::kOne;
  const bool rows = std::all_of(strides.begin(), strides.end() - 1, [](int64_t s) { return s % kQuad == 0; });
  return rows && strides.back() == 1 ? How::kRow : How::kEach;
}

}  // namespace

std::optional<ChainProgram> assemble_chain(const ir::Graph& graph, std::span<const ir::Node> nodes) {
  for (const bool floats : {true, false}) {
    Assembler assembler(graph, floats);
    const bool all =
        std::all_of(nodes.begin(), nodes.end(), [&](const ir::Node& node) { return assembler.add(node); });
    if (!all) continue;
    if (std::optional<ChainProgram> program = assembler.finish(nodes)) return program;
  }
  return std::nullopt;
}

namespace {

// What a launch of either kernel names.
struct ChainOperands {
  std::vector<Operand> sources, results;

  std::vector<Bind> binds(const std::function<const uint64_t&(size_t)>& source,
                          const std::function<const uint64_t&(size_t)>& result) const {
    std::vector<Bind> all;
    for (size_t i = 0; i < sources.size(); ++i) all.push_back(names(source(i), sources[i]));
    for (size_t i = 0; i < results.size(); ++i) all.push_back(names(result(i), results[i]));
    return all;
  }
};

// Few elements are spread over more blocks.
Grid grid_of(const ChainParams& params, int multiprocessors, int registers) {
  const int64_t tile = int64_t{kChainThreads} * kQuad * params.quads, most = int64_t{32} * multiprocessors;
  return {std::min((params.count + tile - 1) / tile, most), kChainThreads,
          int64_t{registers} * kRegisterBytes};
}

// False: there is no such kernel, and `why`.
Result<bool> launch_compiled(Lowering& l, ChainParams params, bool floats, const ChainOperands& operands,
                             const char*& why) {
  constexpr int kBlocksAtOnce = 16;  // of a multiprocessor: it has 2048 threads
  const int64_t row = int64_t{kChainThreads} * kQuad, at_once = kBlocksAtOnce * l.emit.multiprocessors();
  params.quads = params.count > row * at_once ? 2 : 1;
  const ChainSourceText made = source_of(params, floats);
  HEDDLE_TRY_ASSIGN(const CompiledKernels::Found found,
                    l.emit.compiled(floats ? "compiled_chain_f32" : "compiled_chain_i64", made.source,
                                    made.params_bytes()));
  why = found.why;
  if (found.kernel == nullptr) return false;
  const auto word = [&](const std::vector<size_t>& words) {
    return [&](size_t i) -> const uint64_t& { return made.params[words[i]]; };
  };
  params.quads = made.quads;
  l.emit.launch(*found.kernel, made.params.data(), made.params_bytes(),
                operands.binds(word(made.operands), word(made.results)), nullptr,
                grid_of(params, l.emit.multiprocessors(), 0));
  return true;
}

}  // namespace

Status launch_chain(Lowering& l, const ir::Graph& graph, ChainProgram program,
                    std::span<const ValueId> inputs, std::span<const ValueId> outputs) {
  ChainParams& params = program.params;
  ChainOperands operands;
  for (const ValueId id : program.sources) {
    const auto at = std::find(inputs.begin(), inputs.end(), id) - inputs.begin();
    operands.sources.push_back(at < std::ssize(inputs) ? l.inputs[static_cast<size_t>(at)]
                                                       : l.emit.constant(*graph.values[id].constant));
  }
  for (const ValueId id : program.results) {
    const auto at = std::find(outputs.begin(), outputs.end(), id) - outputs.begin();
    operands.results.push_back(l.outputs[static_cast<size_t>(at)]);
  }
  const Walk walk = walk_to(operands.results[0], operands.sources);
  params.count = walk.count;
  params.axes = walk.axes;
  if (params.count == 0) return {};
  for (size_t i = 0; i < operands.sources.size(); ++i) {
    ChainSource& in = params.in[i];
    in.type = type_of(operands.sources[i].dtype);
    in.how = how_of(walk, i);
    std::copy(walk.strides[i].begin(), walk.strides[i].end(), in.strides);
  }
  for (size_t i = 0; i < operands.results.size(); ++i)
    params.out[i].type = type_of(operands.results[i].dtype);
  const char* why = "";
  HEDDLE_TRY_ASSIGN(const bool compiled, launch_compiled(l, params, program.floats, operands, why));
  if (compiled) return {};
  if (params.count > int64_t{kChainThreads} * kQuad * l.emit.multiprocessors())
    params.quads = program.floats ? Chain<float>::kQuads : Chain<int64_t>::kQuads;
  const std::vector<Bind> binds =
      operands.binds([&](size_t i) -> const uint64_t& { return params.in[i].data; },
                     [&](size_t i) -> const uint64_t& { return params.out[i].data; });
  return l.emit.launch(program.floats ? "chain_f32" : "chain_i64", &params, sizeof params, binds, nullptr,
                       grid_of(params, l.emit.multiprocessors(), params.registers), why);
}

}  // namespace heddle::cuda
