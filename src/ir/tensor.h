// tensor.h: a literal: elements on the host, contiguous and row-major.
//
//   What       Weights, folded constants, and the operands of the reference interpreter. Not a run-time
//              tensor.
//   Lifetime   The bytes are shared and kept by their owner (heap, or a file mapped into memory);
//              copying a Tensor copies a reference.
//   Threads    Reading is safe anywhere; mutable_bytes() is for the thread that just made it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ir/tensor_type.h"

namespace heddle::ir {

class Tensor {
 public:
  Tensor() = default;
  // Zeros, aligned to 64 bytes. Without memory make() is exhausted; zeros() throws std::bad_alloc.
  static Result<Tensor> make(DType dtype, const Extents& extents);
  static Tensor zeros(DType dtype, const Extents& extents);
  // Borrowed bytes; `keep` owns them. The caller has checked that there are elements() * size_of(dtype) of
  // them.
  static Tensor borrow(DType dtype, const Extents& extents, const void* bytes,
                       std::shared_ptr<const void> keep);
  template <class T>
  static Tensor of(DType dtype, const Extents& extents, std::span<const T> values);  // converts each element
  static Tensor of_i64(const std::vector<int64_t>& values);                          // rank 1
  static Tensor scalar(DType dtype, double value);                                   // rank 0

  DType dtype() const { return dtype_; }
  const Extents& extents() const { return extents_; }
  int64_t elements() const { return extents_.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype_); }
  TensorType type() const { return {dtype_, to_shape(extents_)}; }

  const void* data() const { return data_.get(); }
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data());
  }
  void* mutable_data() {
    return const_cast<void*>(data_.get());
  }  // only on a Tensor from zeros() that has one holder

  // Element access by conversion, for code that prefers clarity to speed. Integers beyond 2^53 need the i64
  // form.
  double get(int64_t index) const;
  int64_t get_i64(int64_t index) const;
  // Rounds to nearest even for floats; C's conversion for integers, 0 where C has none.
  void set(int64_t index, double value);
  void set_i64(int64_t index, int64_t value);
  std::vector<int64_t> to_i64() const;

  Tensor reshaped(const Extents& extents) const;  // same bytes, same number of elements

 private:
  DType dtype_ = DType::kF32;
  Extents extents_{0};
  std::shared_ptr<const void> data_;
};

template <class T>
Tensor Tensor::of(DType dtype, const Extents& extents, std::span<const T> values) {
  Tensor t = zeros(dtype, extents);
  for (int64_t i = 0; i < t.elements(); ++i) {
    if constexpr (std::is_integral_v<T>) {
      t.set_i64(i, static_cast<int64_t>(values[static_cast<size_t>(i)]));
    } else {
      t.set(i, static_cast<double>(values[static_cast<size_t>(i)]));
    }
  }
  return t;
}

}  // namespace heddle::ir
