// A program of GraphBuilder that the bytes decide, most of it wrong: each step adds a node or says why not,
// and leaves what was there; what the reference evaluates, the model computes.

#include "fuzz_fixture.h"
#include "ir/op.h"

namespace heddle::fuzz {
namespace {

using Value = GraphBuilder::Value;

constexpr int64_t kElementsMost = 1 << 12;
constexpr size_t kNodesMost = 12;

DType some_dtype(Bytes& bytes) {
  static const DType kTypes[] = {DType::f32, DType::i64, DType::f32, DType::boolean, DType::i32, DType::f16,
                                 DType::u8,  DType::f64, DType::i8,  DType::bf16,    DType::u64, DType::i16};
  return kTypes[bytes.below(std::size(kTypes))];
}

Tensor some_tensor(Bytes& bytes, DType dtype, const Shape& shape) {
  Tensor tensor = Tensor::zeros(dtype, shape);
  auto* data = static_cast<uint8_t*>(tensor.mutable_data());
  const size_t size = size_of(dtype);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const auto small = static_cast<int64_t>(bytes.below(9)) - 2;
    if (dtype == DType::f32) {
      reinterpret_cast<float*>(data)[i] = static_cast<float>(small) / 2;
    } else if (dtype == DType::i64) {
      reinterpret_cast<int64_t*>(data)[i] = bytes.below(8) == 0 ? bytes.number() : small;
    } else if (dtype == DType::boolean) {
      data[i] = small > 0 ? 1 : 0;
    } else if (size == 1) {
      data[i] = static_cast<uint8_t>(small);
    }
  }
  return tensor;
}

Shape some_shape(Bytes& bytes) {
  Shape shape;
  for (size_t rank = bytes.below(4); rank > 0; --rank) shape.push_back(static_cast<int64_t>(bytes.below(5)));
  return shape;
}

class Program {
 public:
  explicit Program(Bytes bytes) : bytes_(bytes) {}

  void run() {
    while (!bytes_.over() && nodes_ < kNodesMost) step();
    for (size_t i = 0; i < 3; ++i) {
      if (!values_.empty()) builder_.output(values_[values_.size() - 1 - i % values_.size()], name("out"));
    }
    finish();
  }

 private:
  std::string name(const char* of) { return of + std::to_string(names_++); }

  void step() {
    switch (bytes_.below(8)) {
      case 0:
        return input();
      case 1:
        return constant();
      default:
        return node();
    }
  }

  void input() {
    const DType dtype = some_dtype(bytes_);
    Shape shape;
    std::vector<GraphBuilder::DimArgument> dims;
    for (size_t rank = bytes_.below(4); rank > 0; --rank) {
      const bool symbol = bytes_.flag();
      const int64_t extent = symbol ? 2 : bytes_.number();
      symbol ? dims.emplace_back(bytes_.flag() ? "n" : "m") : dims.emplace_back(extent);
      shape.push_back(extent);
    }
    Value value{};
    if (refusal_of([&] { value = builder_.input(name("in"), dtype, dims); })) return;
    int64_t elements = 1;
    for (const int64_t extent : shape)
      elements = elements > kElementsMost ? elements : elements * std::min(extent, kElementsMost + 1);
    too_large_ = too_large_ || elements > kElementsMost;
    values_.push_back(value);
    Tensor tensor;  // rows of too many elements are refused, where there are no rows, too
    if (!too_large_) too_large_ = refusal_of([&] { tensor = some_tensor(bytes_, dtype, shape); }).has_value();
    inputs_.push_back(tensor);
  }

  void constant() {
    const DType dtype = some_dtype(bytes_);
    values_.push_back(builder_.constant(some_tensor(bytes_, dtype, some_shape(bytes_))));
  }

  Value operand() {
    const size_t which = bytes_.byte();
    if (which == 255) return GraphBuilder::absent();
    if (which == 254) return {static_cast<uint32_t>(bytes_.number())};
    if (values_.empty()) return GraphBuilder::absent();
    return values_[values_.size() - 1 - which % values_.size()];
  }

  Attribute attribute(ir::AttributeKind kind) {
    if (bytes_.below(16) == 15) kind = static_cast<ir::AttributeKind>(bytes_.below(6));
    static const char* const kWords[] = {"constant", "edge", "reflect", "LEFT", "linear",
                                         "nearest",  "f32",  "i64",     "sum",  "mul",
                                         "nearest",  "relu", "",        "add"};
    switch (kind) {
      case ir::AttributeKind::kFloat:
        return static_cast<double>(bytes_.number()) / 2;
      case ir::AttributeKind::kString:
        return bytes_.flag() ? std::string(bytes_.words(8))
                             : std::string(kWords[bytes_.below(std::size(kWords))]);
      case ir::AttributeKind::kInts: {
        std::vector<int64_t> numbers;
        for (size_t i = bytes_.below(7); i > 0; --i) numbers.push_back(bytes_.number());
        return numbers;
      }
      case ir::AttributeKind::kFloats: {
        std::vector<double> numbers;
        for (size_t i = bytes_.below(7); i > 0; --i) numbers.push_back(static_cast<double>(bytes_.number()));
        return numbers;
      }
      case ir::AttributeKind::kTensor:
        return some_tensor(bytes_, some_dtype(bytes_), some_shape(bytes_));
      default:  // graphs have no public form
        return bytes_.number();
    }
  }

  void node() {
    const auto ops = ir::all_ops();
    const ir::OpDef& op = *ops[bytes_.byte() % ops.size()];
    AttributeList attributes;
    for (const ir::AttributeDef& each : op.attributes) {
      if (each.required || bytes_.below(3) == 0) attributes.emplace_back(each.name, attribute(each.kind));
    }
    size_t count = static_cast<size_t>(op.inputs_min) + bytes_.below(3);
    if (op.inputs_max >= 0 && bytes_.below(8) != 7)
      count = std::min(count, static_cast<size_t>(op.inputs_max));
    std::vector<Value> operands;
    for (size_t i = 0; i < count; ++i) operands.push_back(operand());
    const size_t outputs = std::max(static_cast<size_t>(op.outputs_min), size_t{1}) + (bytes_.below(8) == 7);
    std::vector<std::string> before;
    for (const Value value : values_) before.push_back(builder_.type(value));
    std::vector<Value> made;
    const auto refused =
        refusal_of([&] { made = builder_.add_multiple(op.name, operands, outputs, attributes, name("n")); });
    for (size_t i = 0; i < values_.size(); ++i)
      must(builder_.type(values_[i]) == before[i], "a node changes no value that was there");
    if (refused) return;
    must(made.size() == outputs, "a node has the outputs that were asked for");
    ++nodes_;
    for (const Value value : made) {
      const Port port = builder_.port(value);
      int64_t elements = 1;
      for (const std::string& dim : port.shape) {
        const bool number = !dim.empty() && dim.find_first_not_of("0123456789") == std::string::npos;
        elements *= !number ? 2 : dim.size() > 5 ? kElementsMost : std::stoll(dim);
        if (elements > kElementsMost) return;  // nothing is computed of it
      }
      values_.push_back(value);
    }
  }

  void finish() {
    ModelOptions options;
    options.device = small_device();
    std::vector<Tensor> wanted;
    const bool evaluates = !too_large_ && !refusal_of([&] { wanted = builder_.evaluate(inputs_); });
    std::optional<Model> model;
    const auto refused = refusal_of([&] { model = builder_.build(options); });
    must(refused.has_value() || refusal_of([&] { builder_.add("Abs", {values_.front()}); }).has_value(),
         "a builder that has built adds nothing");
    if (refused || !evaluates) return;
    std::vector<Tensor> got;
    const auto failed = refusal_of([&] { got = (*model)(std::span<const Tensor>(inputs_)); });
    must(!failed || *failed == ErrorCode::unsupported || *failed == ErrorCode::exhausted,
         "what the reference evaluates, the model computes");
    for (size_t i = 0; i < got.size(); ++i) {
      must(got[i].dtype() == wanted[i].dtype(), "a result has the reference's type");
      must(got[i].shape() == wanted[i].shape(), "a result has the reference's shape");
    }
  }

  Bytes bytes_;
  GraphBuilder builder_{"fuzzed"};
  std::vector<Value> values_;
  std::vector<Tensor> inputs_;
  size_t nodes_ = 0, names_ = 0;
  bool too_large_ = false;
};

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::Program({data, size}).run();
  return 0;
}
