#include "drivers/host/onednn/descriptors.h"

#include "drivers/host/onednn/engine.h"

namespace heddle::host {
namespace {

struct Eltwise {
  dnnl::algorithm algorithm;
  double alpha = 0;
  double beta = 0;
};

Eltwise eltwise_of(const ir::Activation& activation) {
  using enum ir::ActivationKind;
  switch (activation.kind) {
    case kNone:
      return {dnnl::algorithm::undef};
    case kRelu:
      return {dnnl::algorithm::eltwise_relu};
    case kGelu:
      return {dnnl::algorithm::eltwise_gelu_erf};
    case kGeluTanh:
      return {dnnl::algorithm::eltwise_gelu_tanh};
    case kTanh:
      return {dnnl::algorithm::eltwise_tanh};
    case kSigmoid:
      return {dnnl::algorithm::eltwise_logistic};
    case kSilu:
      return {dnnl::algorithm::eltwise_swish, 1};
    case kLeakyRelu:
      return {dnnl::algorithm::eltwise_relu, activation.alpha};
    case kHardSigmoid:
      return {dnnl::algorithm::eltwise_hardsigmoid, activation.alpha, activation.beta};
    case kHardSwish:
      return {dnnl::algorithm::eltwise_hardswish, 1.0 / 6, 0.5};
    case kClip:
      return {dnnl::algorithm::eltwise_clip, activation.alpha, activation.beta};
  }
  return {dnnl::algorithm::undef};
}

}  // namespace

Status append_activation(const ir::Activation& activation, dnnl::post_ops& ops) {
  const Eltwise eltwise = eltwise_of(activation);
  if (eltwise.algorithm == dnnl::algorithm::undef) return {};
  return status_of(caught("preparing an activation", [&] {
    ops.append_eltwise(eltwise.algorithm, static_cast<float>(eltwise.alpha),
                       static_cast<float>(eltwise.beta));
    return true;
  }));
}

}  // namespace heddle::host
