#include "ir/recurrent.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace heddle::ir {

namespace {

struct Known {
  std::string_view name;  // in lower case
  CellFunction function;
  bool takes_alpha, takes_beta;
  double alpha, beta;
};
constexpr Known kKnown[] = {
    {"sigmoid", CellFunction::kSigmoid, false, false, 0, 0},
    {"tanh", CellFunction::kTanh, false, false, 0, 0},
    {"relu", CellFunction::kRelu, false, false, 0, 0},
    {"affine", CellFunction::kAffine, true, true, 1, 0},
    {"leakyrelu", CellFunction::kLeakyRelu, true, false, 0.01, 0},
    {"thresholdedrelu", CellFunction::kThresholdedRelu, true, false, 1, 0},
    {"scaledtanh", CellFunction::kScaledTanh, true, true, 1, 1},
    {"hardsigmoid", CellFunction::kHardSigmoid, true, true, 0.2, 0.5},
    {"elu", CellFunction::kElu, true, false, 1, 0},
    {"softsign", CellFunction::kSoftsign, false, false, 0, 0},
    {"softplus", CellFunction::kSoftplus, false, false, 0, 0},
};

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return out;
}

std::vector<std::string_view> words(std::string_view list) {
  std::vector<std::string_view> out;
  while (!list.empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    out.push_back(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return out;
}

// The parameters are given in the order of the functions that take one.
Result<std::vector<CellActivation>> read_activations(const Node& node, std::string_view list) {
  const std::vector<double> alphas = node.attributes.floats("activation_alpha");
  const std::vector<double> betas = node.attributes.floats("activation_beta");
  size_t alpha = 0, beta = 0;
  std::vector<CellActivation> out;
  for (const std::string_view word : words(list)) {
    const std::string name = lower(word);
    const auto* known =
        std::find_if(std::begin(kKnown), std::end(kKnown), [&](const Known& k) { return k.name == name; });
    if (known == std::end(kKnown)) {
      return Status::invalid("attribute 'activations' holds '", word,
                             "'; it has to hold names such as Sigmoid, Tanh, Relu, HardSigmoid");
    }
    CellActivation made{known->function, known->alpha, known->beta};
    if (known->takes_alpha && alpha < alphas.size()) made.alpha = alphas[alpha++];
    if (known->takes_beta && beta < betas.size()) made.beta = betas[beta++];
    out.push_back(made);
  }
  return out;
}

}  // namespace

double CellActivation::operator()(double x) const {
  switch (function) {
    case CellFunction::kSigmoid:
      return 1 / (1 + std::exp(-x));
    case CellFunction::kTanh:
      return std::tanh(x);
    case CellFunction::kRelu:
      return x < 0 ? 0 : x;
    case CellFunction::kAffine:
      return alpha * x + beta;
    case CellFunction::kLeakyRelu:
      return x < 0 ? alpha * x : x;
    case CellFunction::kThresholdedRelu:
      return x < alpha ? 0 : x;
    case CellFunction::kScaledTanh:
      return alpha * std::tanh(beta * x);
    case CellFunction::kHardSigmoid:
      return std::clamp(alpha * x + beta, 0.0, 1.0);
    case CellFunction::kElu:
      return x < 0 ? alpha * std::expm1(x) : x;
    case CellFunction::kSoftsign:
      return x / (1 + std::fabs(x));
    case CellFunction::kSoftplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
  }
  return x;
}

Result<Recurrent> Recurrent::of(const Node& node) {
  Recurrent r;
  r.cell = node.is("LSTM") ? Cell::kLstm : node.is("GRU") ? Cell::kGru : Cell::kRnn;
  r.gates = r.cell == Cell::kLstm ? 4 : r.cell == Cell::kGru ? 3 : 1;
  const std::string direction = node.attributes.str("direction", "forward");
  if (direction != "forward" && direction != "reverse" && direction != "bidirectional") {
    return Status::invalid("attribute 'direction' is '", direction,
                           "'; it has to be forward, reverse or bidirectional");
  }
  r.directions = direction == "bidirectional" ? 2 : 1;
  r.first_backward = direction == "reverse";
  std::string list = node.attributes.str("activations");
  if (list.empty()) {
    const std::string_view one = r.cell == Cell::kLstm  ? "Sigmoid,Tanh,Tanh"
                                 : r.cell == Cell::kGru ? "Sigmoid,Tanh"
                                                        : "Tanh";
    list = r.directions == 2 ? text(one, ",", one) : std::string(one);
  }
  HEDDLE_TRY_ASSIGN(r.activations, read_activations(node, list));
  const auto wanted = static_cast<size_t>(r.directions * (r.cell == Cell::kLstm  ? 3
                                                          : r.cell == Cell::kGru ? 2
                                                                                 : 1));
  if (r.activations.size() != wanted) {
    return Status::invalid("attribute 'activations' holds ", r.activations.size(), " names; it takes ",
                           wanted);
  }
  if (node.attributes.has("clip")) r.clip = node.attributes.f64("clip");
  if (!(r.clip >= 0)) return Status::invalid("attribute 'clip' is ", r.clip, "; it has to be 0 or more");
  r.linear_before_reset = node.attributes.i64("linear_before_reset") != 0;
  r.input_forget = node.attributes.i64("input_forget") != 0;
  return r;
}

}  // namespace heddle::ir
