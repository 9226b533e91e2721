#include "agreement_fixture.h"

#include <cstring>
#include <optional>

#include "api/internals.h"
#include "api/model_making.h"

namespace heddle::differential {
namespace {

constexpr int64_t kRowsMost = 3;
constexpr size_t kCallers = 3;

DeviceOptions few_threads() {
  DeviceOptions options;
  options.threads = 2;
  return options;
}

Tensor to_public(const ir::Tensor& tensor) {
  auto kept = std::make_shared<ir::Tensor>(tensor);
  const Shape shape(tensor.extents().begin(), tensor.extents().end());
  return Tensor::borrow(kept->data(), heddle::to_public(tensor.dtype()), shape, {}, kept);
}

std::vector<Tensor> to_public(const std::vector<ir::Tensor>& tensors) {
  std::vector<Tensor> all;
  for (const ir::Tensor& each : tensors) all.push_back(to_public(each));
  return all;
}

std::vector<ir::Tensor> to_literals(const std::vector<Tensor>& tensors) {
  std::vector<ir::Tensor> all;
  for (const Tensor& each : tensors) {
    const Tensor dense = each.to_host().contiguous();
    ir::Tensor literal = ir::Tensor::zeros(to_ir(dense.dtype()), ir::Extents(dense.shape()));
    if (literal.bytes() > 0)
      std::memcpy(literal.mutable_data(), dense.data(), static_cast<size_t>(literal.bytes()));
    all.push_back(std::move(literal));
  }
  return all;
}

bool same_bits(const ir::Tensor& a, const ir::Tensor& b) {
  return a.type() == b.type() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
}

std::string first_difference(const std::vector<ir::Tensor>& got, const std::vector<Known>& wanted,
                             Rounding rounding = Rounding::kOwn) {
  if (got.size() != wanted.size()) return text(got.size(), " outputs, not ", wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const std::string differs = difference(got[i], wanted[i], rounding);
    if (!differs.empty()) return text("output ", i, ": ", differs);
  }
  return "";
}

// Some processors have no instructions for it.
bool computes_in_bf16(const Device& device) {
  GraphBuilder graph("one");
  graph.output(graph.add("Relu", {graph.input("x", DType::f32, {1})}), "y");
  ModelOptions options;
  options.device = device;
  options.precision = "bf16";
  try {
    graph.build(options);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) return false;
    throw;
  }
  return true;
}

}  // namespace

Agreement::Agreement(bool sim) : host_(Device::open("host", few_threads())), bf16_(computes_in_bf16(host_)) {
  if (sim) sim_ = Device::open("sim", few_threads());
}

std::string Agreement::check(const RandomGraph& drawn, Choices& choices) {
  ++counts_.graphs;
  counts_.nodes += drawn.graph.nodes.size();
  try {
    return check_host(drawn, choices);
  } catch (const Error& error) {
    if (error.code() == ErrorCode::unsupported) {
      ++counts_.refused;
      ++refusals_[error.what()];
      return "";
    }
    return text(name(error.code()), ": ", error.what());
  }
}

std::string Agreement::check_host(const RandomGraph& drawn, Choices& choices) {
  ModelOptions options;
  options.device = host_;
  options.exact = choices.one_in(3);
  options.ragged.emplace();
  const Model model = make_model(drawn.graph, options);
  const std::vector<ir::Tensor> alone = to_literals(model(to_public(drawn.inputs)));
  if (const std::string differs = first_difference(alone, drawn.outputs); !differs.empty())
    return text("on the host ", differs);
  if (const std::string differs = check_together(model, drawn, options.exact, choices); !differs.empty())
    return text("in a batch ", differs);
  if (sim_ && !options.exact) {
    if (const std::string differs = check_sim(drawn, alone); !differs.empty())
      return text("on the simulated device ", differs);
  }
  if (bf16_ && choices.one_in(4)) {
    if (const std::string differs = check_bf16(drawn); !differs.empty()) return text("in bf16 ", differs);
  }
  return "";
}

std::string Agreement::check_together(const Model& model, const RandomGraph& drawn, bool exact,
                                      Choices& choices) {
  if (!model.batchable()) return "";
  std::vector<std::vector<Tensor>> requests;
  std::vector<std::vector<ir::Tensor>> alone;
  std::vector<std::vector<Known>> wanted;
  std::vector<int64_t> group;
  for (size_t i = 0; i < kCallers; ++i) {
    const std::vector<ir::Tensor> inputs = other_inputs(drawn, choices.between(1, kRowsMost), choices);
    // Other rows may give what says nothing: those are left out.
    Result<std::vector<Known>> known = expect(drawn.graph, inputs);
    if (!known.ok()) continue;
    const std::vector<Tensor> request = to_public(inputs);
    if (!requests.empty() && model.group(request) != group) continue;
    group = model.group(request);
    wanted.push_back(*std::move(known));
    alone.push_back(to_literals(model(request)));
    requests.push_back(request);
  }
  if (requests.size() < 2) return "";
  ++counts_.together;
  const std::vector<Model::Outcome> outcomes = model.run_together(requests);
  for (size_t i = 0; i < outcomes.size(); ++i) {
    if (outcomes[i].error != nullptr) std::rethrow_exception(outcomes[i].error);
    const std::vector<ir::Tensor> got = to_literals(outcomes[i].results);
    if (const std::string differs = first_difference(alone[i], wanted[i]); !differs.empty())
      return text("caller ", i, " alone: ", differs);
    if (const std::string differs = first_difference(got, wanted[i]); !differs.empty())
      return text("caller ", i, " with others: ", differs);
    for (size_t k = 0; exact && k < got.size(); ++k) {
      if (!same_bits(got[k], alone[i][k]))
        return text("caller ", i, ", output ", k, ": not the bits of alone");
    }
  }
  return "";
}

std::string Agreement::check_sim(const RandomGraph& drawn, const std::vector<ir::Tensor>& on_host) {
  ModelOptions options;
  options.device = sim_;
  options.ragged.emplace();
  const Model model = make_model(drawn.graph, options);
  const std::vector<ir::Tensor> got = to_literals(model(to_public(drawn.inputs)));
  ++counts_.on_sim;
  for (size_t i = 0; i < got.size(); ++i) {
    if (!same_bits(got[i], on_host[i])) return text("output ", i, " has other bits than on the host");
  }
  return "";
}

std::string Agreement::check_bf16(const RandomGraph& drawn) {
  const Result<std::vector<Known>> wanted = expect(drawn.graph, drawn.inputs, Rounding::kBf16);
  if (!wanted.ok()) return "";
  ModelOptions options;
  options.device = host_;
  options.precision = "bf16";
  options.ragged.emplace();
  const Model model = make_model(drawn.graph, options);
  ++counts_.in_bf16;
  return first_difference(to_literals(model(to_public(drawn.inputs))), *wanted, Rounding::kBf16);
}

std::string described(const RandomGraph& drawn) {
  std::string words = to_string(drawn.graph);
  for (const ir::Node& node : drawn.graph.nodes) {
    for (const auto& [name, attribute] : node.attributes) {
      if (const auto* const body = std::get_if<std::shared_ptr<const ir::Graph>>(&attribute))
        words += text('\n', to_string(**body));
    }
  }
  for (size_t id = 0; id < drawn.graph.values.size(); ++id) {
    const std::optional<ir::Tensor>& constant = drawn.graph.values[id].constant;
    if (!constant || ir::is_float(constant->dtype()) || constant->elements() > 8) continue;
    words += text("\n%", id, " = ", constant->type(), ':');
    for (const int64_t number : constant->to_i64()) words += text(' ', number);
  }
  for (size_t i = 0; i < drawn.inputs.size(); ++i) {
    words += text("\nin", i, " = ", drawn.inputs[i].type(), ':');
    for (int64_t k = 0; k < std::min<int64_t>(drawn.inputs[i].elements(), 16); ++k)
      words += text(' ', drawn.inputs[i].get(k));
  }
  return words;
}

}  // namespace heddle::differential
