#include "compiled_model.h"

#include "storage.h"

namespace heddle::torch_backend {

std::vector<at::Tensor> CompiledModel::operator()(const std::vector<at::Tensor>& inputs) const {
  std::vector<Tensor> given;
  given.reserve(inputs.size());
  c10::Device device = c10::kCPU;
  for (const at::Tensor& input : inputs) {
    if (!input.is_cpu()) device = input.device();
    given.push_back(to_heddle(input));
  }
  const std::vector<Tensor> results = model_(given);
  std::vector<at::Tensor> made;
  made.reserve(results.size());
  for (const Tensor& result : results) {
    if (device.is_cpu()) result.wait();
    made.push_back(to_torch(result, device));
  }
  return made;
}

}  // namespace heddle::torch_backend
