#include "onnx/operators.h"

#include <algorithm>
#include <vector>

#include "base/made_once.h"

namespace heddle::onnx {
namespace {

std::vector<const Operator*> sorted_operators() {
  std::vector<const Operator*> all;
  for (const auto table :
       {elementwise_operators(), movement_operators(), reduction_operators(), neural_operators(),
        activation_operators(), rearrangement_operators(), image_operators(), signal_operators(),
        normalization_operators(), recurrent_operators(), quantization_operators(), control_operators(),
        deform_conv_operators(), state_space_operators(), loss_operators()}) {
    for (const Operator& entry : table) all.push_back(&entry);
  }
  std::sort(all.begin(), all.end(), [](const Operator* a, const Operator* b) { return a->name < b->name; });
  return all;
}

constexpr std::string_view kData =
    "the shape of its output depends on data; shapes must follow from the shapes of the inputs";
constexpr std::string_view kRandom =
    "its output is random; make the numbers outside and pass them as an input";
constexpr std::string_view kSequence = "sequences, optionals and strings; values must be tensors of numbers";

constexpr Refusal kRefusals[] = {
    {"NonZero", kData},
    {"NonMaxSuppression", kData},
    {"Unique", kData},
    {"Compress", kData},
    {"SequenceMap", kSequence},
    {"RandomNormal", kRandom},
    {"RandomUniform", kRandom},
    {"RandomNormalLike", kRandom},
    {"RandomUniformLike", kRandom},
    {"Multinomial", kRandom},
    {"Bernoulli", kRandom},
    {"SequenceAt", kSequence},
    {"SequenceConstruct", kSequence},
    {"SequenceEmpty", kSequence},
    {"SequenceErase", kSequence},
    {"SequenceInsert", kSequence},
    {"SequenceLength", kSequence},
    {"SplitToSequence", kSequence},
    {"ConcatFromSequence", kSequence},
    {"Optional", kSequence},
    {"OptionalGetElement", kSequence},
    {"OptionalHasElement", kSequence},
    {"StringNormalizer", kSequence},
    {"StringConcat", kSequence},
    {"StringSplit", kSequence},
    {"RegexFullMatch", kSequence},
    {"TfIdfVectorizer", kSequence},
};

}  // namespace

std::span<const Operator* const> all_operators() {
  static constinit MadeOnce<const std::vector<const Operator*>> all;
  return all.get(sorted_operators);
}

const Operator* find_operator(std::string_view name) {
  const auto all = all_operators();
  const auto found = std::lower_bound(all.begin(), all.end(), name,
                                      [](const Operator* a, std::string_view b) { return a->name < b; });
  return found != all.end() && (*found)->name == name ? *found : nullptr;
}

const Refusal* find_refusal(std::string_view name) {
  const auto found = std::find_if(std::begin(kRefusals), std::end(kRefusals),
                                  [&](const Refusal& r) { return r.name == name; });
  return found != std::end(kRefusals) ? found : nullptr;
}

Status convert_same(Call& call) { return call.emit(call.op(), call.inputs(), call.attributes()); }

Result<std::vector<ir::ValueId>> attribute_to_input(Call& call, std::string_view name, size_t index) {
  std::vector<ir::ValueId> inputs = call.inputs();
  HEDDLE_TRY_ASSIGN(const auto list, call.take_ints(name));
  if (!list) return inputs;
  if (call.has(index)) return call.invalid("'", name, "' is given both as an attribute and as an input");
  inputs.resize(std::max(inputs.size(), index + 1), ir::kNoValue);
  inputs[index] = call.constant(ir::Tensor::of_i64(*list), name);
  return inputs;
}

}  // namespace heddle::onnx
