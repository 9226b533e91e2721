// Any fields of a DLPack tensor: the parts of an array, or words; and a Tensor of them is refused or right.
#include "python/module/dlpack_array.h"

#include <array>

#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

void run(Bytes bytes) {
  std::array<int64_t, 16> shape{}, strides{};
  for (int64_t& extent : shape) extent = bytes.number();
  for (int64_t& stride : strides) stride = bytes.number();
  static std::array<std::byte, 64> memory{};
  python::DlpackArray array{};
  array.data = bytes.below(8) == 0 ? nullptr : memory.data();
  array.ndim = static_cast<int32_t>(bytes.below(8) == 7 ? bytes.number() : bytes.below(9));
  array.type = {static_cast<uint8_t>(bytes.below(8)), static_cast<uint8_t>(8 << bytes.below(4)),
                static_cast<uint16_t>(bytes.below(8) == 7 ? bytes.number() : 1)};
  if (bytes.below(8) == 7) array.type.bits = bytes.byte();
  array.shape = bytes.below(8) == 7 ? nullptr : shape.data();
  array.strides = bytes.flag() ? nullptr : strides.data();
  array.byte_offset = bytes.below(4) == 3 ? bytes.word() : bytes.below(64);
  python::ArrayParts parts{};
  if (refusal_of([&] { parts = python::checked(array, "x"); })) return;
  must(parts.shape.size() == static_cast<size_t>(array.ndim), "an extent for each dimension");
  must(parts.strides.empty() || parts.strides.size() == parts.shape.size(), "a stride for each dimension");
  must(size_of(parts.dtype) * 8 == array.type.bits, "an element type of as many bits");
  Tensor tensor;
  if (refusal_of([&] { tensor = Tensor::borrow(parts.data, parts.dtype, parts.shape, parts.strides); }))
    return;
  must(tensor.shape() == parts.shape && tensor.dtype() == parts.dtype, "the array that was described");
}

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::run({data, size});
  return 0;
}
