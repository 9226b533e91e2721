// Any bytes as an ONNX file: a model or words, within bounded memory; and a model can be called.
#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

constexpr int64_t kElementsMost = 1 << 12;

// Symbols become 2. Strides of 0: what a file claims of its inputs needs no memory. Nothing: too many
// elements.
std::optional<std::vector<Tensor>> operands_of(const Model& model) {
  static const int64_t kElement = 1;
  std::vector<Tensor> inputs;
  int64_t elements = 1;
  for (const Port& port : model.inputs()) {
    Shape shape;
    for (const std::string& dim : port.shape) {
      const bool number = dim.find_first_not_of("0123456789") == std::string::npos;
      if (number && dim.size() > 4) return std::nullopt;
      shape.push_back(number ? std::stoll(dim) : 2);
      elements = std::max<int64_t>(elements, 1) * shape.back();
      if (elements > kElementsMost) return std::nullopt;
    }
    elements = 1;
    inputs.push_back(Tensor::borrow(&kElement, port.dtype, shape, Shape(shape.size(), 0)));
  }
  return inputs;
}

void run(std::span<const std::byte> bytes) {
  ModelOptions options;
  options.device = small_device();
  std::optional<Model> model;
  if (refusal_of([&] { model = Model::load_bytes(bytes, options); })) return;
  must(!model->outputs().empty(), "a model has an output");
  must(model->batchable() || !model->why_not_batchable().empty(), "what is not batchable says why");
  if (model->graph().find("Loop") != std::string::npos) return;  // as many rounds as the file asks for
  const auto inputs = operands_of(*model);
  if (!inputs) return;
  std::vector<Tensor> results;
  const auto refused = refusal_of([&] { results = (*model)(std::span<const Tensor>(*inputs)); });
  must(refused || results.size() == model->outputs().size(), "a call gives each output");
  for (size_t i = 0; i < results.size(); ++i) {
    must(results[i].dtype() == model->outputs()[i].dtype, "a result has its output's type");
    must(results[i].shape().size() == model->outputs()[i].shape.size(), "a result has its output's rank");
  }
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
