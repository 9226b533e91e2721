#include "drivers/host/onednn/descriptors.h"

#include <array>

#include "drivers/host/onednn/engine.h"

namespace heddle::host {
namespace {

struct Activation {
  std::string_view name;
  dnnl::algorithm algorithm;
  float alpha;
};
constexpr std::array<Activation, 6> kActivations = {{{"relu", dnnl::algorithm::eltwise_relu, 0},
                                                     {"gelu", dnnl::algorithm::eltwise_gelu_erf, 0},
                                                     {"gelu_tanh", dnnl::algorithm::eltwise_gelu_tanh, 0},
                                                     {"tanh", dnnl::algorithm::eltwise_tanh, 0},
                                                     {"sigmoid", dnnl::algorithm::eltwise_logistic, 0},
                                                     {"silu", dnnl::algorithm::eltwise_swish, 1}}};

}  // namespace

Status append_activation(std::string_view activation, dnnl::post_ops& ops) {
  if (activation.empty()) return {};
  for (const Activation& known : kActivations) {
    if (known.name != activation) continue;
    return status_of(caught("preparing an activation", [&] {
      ops.append_eltwise(known.algorithm, known.alpha, 0);
      return true;
    }));
  }
  return Status::unsupported("activation '", activation,
                             "' is not one of relu, gelu, gelu_tanh, tanh, sigmoid, silu");
}

}  // namespace heddle::host
