// Tensors, shapes, strides and views that the bytes decide, and calls with them: what lies in its memory is
// taken and read, what does not is refused in words.
#include <array>
#include <cstring>

#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

__extension__ using Wide = __int128;

constexpr size_t kMemory = 4096;
constexpr int64_t kElementsMost = 1 << 12;

DType some_dtype(Bytes& bytes) {
  return static_cast<DType>(bytes.below(static_cast<size_t>(DType::boolean) + 1));
}

Shape some_shape(Bytes& bytes, size_t rank_most = 10) {
  Shape shape;
  for (size_t rank = bytes.below(rank_most); rank > 0; --rank) shape.push_back(bytes.number());
  return shape;
}

// Bytes from the first element that an array reaches, backwards and forwards; nothing: it has no elements.
struct Reach {
  Wide first = 0, last = 0;
};
std::optional<Reach> reach_of(DType dtype, const Shape& shape, const Shape& strides) {
  Reach reach;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] <= 0) return std::nullopt;
    const Wide span = Wide{shape[i] - 1} * strides[i];
    (span < 0 ? reach.first : reach.last) += span;
  }
  const Wide size = static_cast<int64_t>(size_of(dtype));
  return Reach{reach.first * size, (reach.last + 1) * size};
}

Shape packed(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (size_t i = shape.size(); i-- > 1;) {
    const Wide next = Wide{strides[i]} * std::max<int64_t>(shape[i], 1);
    strides[i - 1] = static_cast<int64_t>(std::min(next, Wide{INT64_MAX}));
  }
  return strides;
}

class Tensors {
 public:
  explicit Tensors(Bytes bytes) : bytes_(bytes) {
    for (size_t i = 0; i < kMemory; ++i) (*memory_)[i] = static_cast<uint8_t>(i % 2);
  }

  void run() {
    for (int steps = 0; steps < 32 && !bytes_.over(); ++steps) step();
  }

 private:
  void step() {
    switch (bytes_.below(7)) {
      case 0:
        return zeros();
      case 1:
        return borrow();
      case 2:
        return on_device();
      case 3:
      case 4:
        return view();
      case 5:
        return call();
      default:
        return copy();
    }
  }

  void keep(Tensor tensor) {
    if (tensors_.size() < 16) tensors_.push_back(std::move(tensor));
  }

  Tensor any() {
    if (tensors_.empty() || bytes_.below(16) == 15) return {};
    return tensors_[bytes_.below(tensors_.size())];
  }

  // Small, or more than there is: what lies between would be memory filled with zeros, and seconds.
  static bool takes_long(const Shape& shape) {
    Wide elements = 1;
    for (const int64_t extent : shape) {
      if (extent < 0 || elements > Wide{1} << 40) return false;
      elements *= extent;
    }
    return elements > kElementsMost && elements < Wide{1} << 40;
  }

  void zeros() {
    const DType dtype = some_dtype(bytes_);
    const Shape shape = some_shape(bytes_);
    if (takes_long(shape)) return;
    Tensor tensor;
    if (refusal_of([&] { tensor = Tensor::zeros(dtype, shape); })) return;
    must(tensor.shape() == shape && tensor.dtype() == dtype, "a tensor is what was asked for");
    if (tensor.elements() <= kElementsMost) read(tensor);
    keep(tensor);
  }

  // Of the caller's memory, which is the caller's care: nothing is read where it does not reach.
  void borrow() {
    const DType dtype = some_dtype(bytes_);
    const Shape shape = some_shape(bytes_, 5);
    const Shape strides = bytes_.flag() ? Shape{} : some_shape(bytes_, 5);
    Tensor tensor;
    const auto from = reinterpret_cast<std::byte*>(memory_->data()) + kMemory / 2;
    if (refusal_of([&] { tensor = Tensor::borrow_mutable(from, dtype, shape, strides, memory_); })) return;
    must(strides.empty() || strides.size() == shape.size(), "a stride for each axis");
    must(tensor.shape() == shape, "a tensor has the shape that was asked for");
    const auto reach = reach_of(dtype, shape, strides.empty() ? packed(shape) : strides);
    (void)tensor.is_contiguous();
    if (reach && (reach->first < -Wide{kMemory / 2} || reach->last > Wide{kMemory / 2})) return;
    if (tensor.elements() > kElementsMost) return;
    read(tensor);
    keep(tensor);
  }

  void on_device() {
    const DType dtype = some_dtype(bytes_);
    const Shape shape = some_shape(bytes_);
    const bool pinned = bytes_.flag();
    Tensor tensor;
    if (refusal_of([&] {
          tensor = pinned ? Tensor::pinned(dtype, shape, small_device())
                          : Tensor::empty(dtype, shape, small_device());
        }))
      return;
    if (tensor.elements() > 0)
      std::memset(tensor.mutable_data(), 1, static_cast<size_t>(tensor.elements()) * size_of(dtype));
    if (tensor.elements() <= kElementsMost) keep(tensor);
  }

  // Windows on memory of Heddle's: accepted where they lie in it, and nowhere else.
  void view() {
    const DType dtype = some_dtype(bytes_);
    const Shape shape = some_shape(bytes_, 4),
                strides = bytes_.flag() ? packed(shape) : some_shape(bytes_, 4);
    const int64_t offset = bytes_.number();
    constexpr int64_t kElements = 64;
    const Tensor whole = Tensor::empty(DType::u8, {kElements}, small_device());
    std::memset(const_cast<void*>(whole.data()), 1, kElements);
    Tensor window;
    const auto refused = refusal_of([&] { window = whole.view(dtype, shape, strides, offset); });
    if (refused) return;
    must(strides.size() == shape.size(), "a stride for each axis");
    const auto reach = reach_of(dtype, shape, strides);
    // The device's blocks are larger than what was asked for.
    if (reach) must(Wide{offset} + reach->first >= 0, "no window before its memory");
    if (reach) must(Wide{offset} + reach->last <= Wide{1 << 16}, "no window after its memory");
    if (window.elements() <= kElementsMost) {
      read(window);
      keep(window);
    }
  }

  void read(const Tensor& tensor) {
    const Tensor dense = tensor.contiguous();
    must(dense.is_contiguous() && dense.shape() == tensor.shape(), "a contiguous copy is the same array");
    must(dense.elements() == tensor.elements(), "of as many elements");
    const auto* data = static_cast<const uint8_t*>(dense.data());
    uint64_t sum = 0;
    for (size_t i = 0; i < static_cast<size_t>(dense.elements()) * size_of(dense.dtype()); ++i)
      sum += data[i];
    must(sum < (uint64_t{1} << 40), "every byte can be read");
  }

  void call() {
    static const Model model = [] {
      GraphBuilder graph("sum");
      const auto x = graph.input("x", DType::f32, {"n", 4}), y = graph.input("y", DType::f32, {"n", 4});
      graph.output(graph.add("Add", {x, y}), "sum");
      ModelOptions options;
      options.device = small_device();
      return graph.build(options);
    }();
    std::vector<Tensor> inputs;
    for (size_t i = bytes_.below(4); i > 0; --i) inputs.push_back(any());
    CallOptions options;
    if (bytes_.below(4) == 0) options.outputs = {any()};
    if (bytes_.below(4) == 0) options.timeout = std::chrono::nanoseconds(bytes_.number());
    std::vector<Tensor> results;
    if (refusal_of([&] { results = model(std::span<const Tensor>(inputs), options); })) return;
    must(inputs.size() == 2, "as many inputs as the model has");
    for (const Tensor& input : inputs) {
      must(input.dtype() == DType::f32, "of its type");
      must(input.shape().size() == 2 && input.shape()[1] == 4, "and shape");
    }
    must(results.size() == 1 && results[0].shape() == inputs[0].shape(), "a sum has its operands' shape");
  }

  void copy() {
    const Tensor from = any(), to = any();
    const Stream stream(small_device());
    if (refusal_of([&] { stream.copy(from, to); })) return;
    stream.synchronize();
    must(from.dtype() == to.dtype() && from.shape() == to.shape(), "a copy is between equal arrays");
  }

  Bytes bytes_;
  std::shared_ptr<std::array<uint8_t, kMemory>> memory_ = std::make_shared<std::array<uint8_t, kMemory>>();
  std::vector<Tensor> tensors_;
};

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::Tensors({data, size}).run();
  return 0;
}
