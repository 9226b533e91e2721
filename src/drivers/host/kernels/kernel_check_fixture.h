// kernel_check_fixture.h: for tests: one node, lowered and run beside its reference.
//
//   What       check_node() builds a graph of one node, evaluates the reference, lowers the node, runs the
//              step with one thread and with two, and compares: against the reference within a tolerance,
//              and one against two threads bit for bit.
//   Threads    One; the Team makes its own.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "drivers/host/lowering.h"
#include "drivers/host/onednn/weight_store.h"
#include "drivers/host/require_fixture.h"
#include "ir/builder.h"
#include "tests/close_fixture.h"

namespace heddle::host {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

struct Check {
  std::vector<size_t> constants;  // which inputs are constants of the graph
  double relative = 1e-5;
  double absolute = 1e-6;
  size_t outputs = 1;
};

inline ir::Tensor random_tensor(ir::DType dtype, const ir::Extents& extents, double low = -4, double high = 4,
                                uint32_t seed = 1) {
  std::mt19937 random(seed + 977 * static_cast<uint32_t>(extents.elements()));
  std::uniform_real_distribution<double> real(low, high);
  ir::Tensor t = ir::Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < t.elements(); ++i) {
    const double x = real(random);
    t.set(i, dtype == ir::DType::kBool ? (x > (low + high) / 2 ? 1 : 0)
             : ir::is_float(dtype)     ? x
                                       : std::nearbyint(x));
  }
  return t;
}

namespace kernel_check {

// Results in memory with a margin, so that a write past the end is seen.
struct Outputs {
  static constexpr size_t kMargin = 256;
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> addresses;
  explicit Outputs(const std::vector<ir::Tensor>& like) {
    for (const ir::Tensor& t : like)
      memory.emplace_back(static_cast<size_t>(t.bytes()) + kMargin, std::byte{0xa5});
    for (auto& m : memory) addresses.push_back(m.data());
  }
  bool margins_intact() const {
    for (const auto& m : memory) {
      for (size_t i = m.size() - kMargin; i < m.size(); ++i) {
        if (m[i] != std::byte{0xa5}) return false;
      }
    }
    return true;
  }
};

inline ir::Graph graph_of(std::string_view op, const std::vector<ir::Tensor>& inputs,
                          const ir::Attributes& attributes, const Check& check) {
  ir::Builder builder;
  std::vector<ir::ValueId> ids;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool constant =
        std::find(check.constants.begin(), check.constants.end(), i) != check.constants.end();
    const std::string name = "x" + std::to_string(i);
    if (inputs[i].data() == nullptr) {
      ids.push_back(ir::kNoValue);
    } else {
      ids.push_back(constant ? builder.constant(inputs[i], name) : builder.input(name, inputs[i].type()));
    }
  }
  auto made = builder.nodes(op, ids, check.outputs, attributes, "tested");
  REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
  for (ir::ValueId id : *made) builder.output(id, "y" + std::to_string(id));
  auto graph = builder.take();
  REQUIRE_MESSAGE(graph.ok(), to_string(graph.status()));
  return std::move(*graph);
}

inline Operand operand(const ir::Tensor& tensor, Operand::Location location, uint64_t index) {
  Operand o;
  if (tensor.data() == nullptr) return o;
  o.location = location;
  o.dtype = tensor.dtype();
  o.extents = tensor.extents();
  o.offset = index;
  o.constant =
      location == Operand::Location::kConstant ? static_cast<const std::byte*>(tensor.data()) : nullptr;
  return o;
}

inline Result<std::unique_ptr<Step>> lower(const ir::Graph& graph, const std::vector<ir::Tensor>& inputs,
                                           const std::vector<ir::Tensor>& outputs, int width) {
  static WeightStore keeps_nothing(*make_engine(false), source_of_tests());
  Lowering lowering{graph, graph.nodes[0], {}, {}, keeps_nothing, width};
  uint64_t next = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::ValueId id = graph.nodes[0].inputs[i];
    const bool constant = id != ir::kNoValue && graph.values[id].is_constant();
    lowering.inputs.push_back(operand(
        inputs[i], constant ? Operand::Location::kConstant : Operand::Location::kInput, constant ? 0 : next));
    if (id != ir::kNoValue && !constant) ++next;
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    lowering.outputs.push_back(operand(outputs[i], Operand::Location::kOutput, i));
  const Lower make = find_lowering(graph.nodes[0].op->name);
  const bool known = make != nullptr;
  REQUIRE_MESSAGE(known, std::string(graph.nodes[0].op->name));
  return make(lowering);
}

inline Status run(const ir::Graph& graph, const std::vector<ir::Tensor>& inputs,
                  const std::vector<ir::Tensor>& like, int width, Outputs& outputs) {
  HEDDLE_TRY_ASSIGN(std::unique_ptr<Step> step, lower(graph, inputs, like, width));
  step->set_scratch(64);
  std::vector<std::byte> memory(step->scratch_bytes() + 192, std::byte{0x7e});
  std::byte* arena = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  std::vector<const std::byte*> addresses;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::ValueId id = graph.nodes[0].inputs[i];
    if (id != ir::kNoValue && !graph.values[id].is_constant())
      addresses.push_back(static_cast<const std::byte*>(inputs[i].data()));
  }
  Team team(width);
  Team::Caller caller(team);
  return step->run({arena, addresses.data(), outputs.addresses.data(), caller, nullptr});
}

inline bool close(double a, double b, const Check& check) {
  return heddle::test::is_close(a, b, {check.relative, check.absolute});
}

inline void compare(const std::vector<ir::Tensor>& want, const Outputs& got, const Check& check,
                    const std::string& what) {
  for (size_t o = 0; o < want.size(); ++o) {
    const ir::Tensor y =
        ir::Tensor::borrow(want[o].dtype(), want[o].extents(), got.memory[o].data(), nullptr);
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < y.elements(); ++i) {
      const bool same = ir::is_float(y.dtype()) ? close(y.get(i), want[o].get(i), check)
                                                : y.get_i64(i) == want[o].get_i64(i);
      if (!same && wrong++ == 0) first = i;
    }
    if (wrong != 0) {
      FAIL_CHECK(what, ": ", wrong, " of ", y.elements(), " elements of output ", o, " differ, first at ",
                 first, ": ", y.get(first), " instead of ", want[o].get(first));
    } else {
      CHECK(wrong == 0);
    }
  }
}

}  // namespace kernel_check

inline void check_node(std::string_view op, const std::vector<ir::Tensor>& inputs,
                       const ir::Attributes& attributes = {}, const Check& check = {}) {
  std::string what(op);
  for (const ir::Tensor& t : inputs) what += t.data() == nullptr ? " -" : " " + to_string(t.type());
  const ir::Graph graph = kernel_check::graph_of(op, inputs, attributes, check);
  std::vector<ir::Tensor> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ir::ValueId id = graph.nodes[0].inputs[i];
    if (id != ir::kNoValue && !graph.values[id].is_constant()) given.push_back(inputs[i]);
  }
  const auto want = ir::evaluate(graph, given);
  REQUIRE_MESSAGE(want.ok(), to_string(want.status()));
  kernel_check::Outputs alone(*want), together(*want);
  for (int width : {1, 2}) {
    kernel_check::Outputs& out = width == 1 ? alone : together;
    const Status status = kernel_check::run(graph, inputs, *want, width, out);
    REQUIRE_MESSAGE(status.ok(), what, ": ", to_string(status));
    CHECK_MESSAGE(out.margins_intact(), what);
    kernel_check::compare(*want, out, check, what + " by " + std::to_string(width));
  }
  CHECK_MESSAGE(alone.memory == together.memory, what, ": two threads give other bits than one");
}

// The error both give, for data that is wrong.
inline std::string error_of(std::string_view op, const std::vector<ir::Tensor>& inputs,
                            const ir::Attributes& attributes, const std::vector<ir::Tensor>& like) {
  const ir::Graph graph = kernel_check::graph_of(op, inputs, attributes, {});
  kernel_check::Outputs out(like);
  const Status status = kernel_check::run(graph, inputs, like, 2, out);
  CHECK(status.code() == Code::invalid);
  return status.message();
}

}  // namespace heddle::host
