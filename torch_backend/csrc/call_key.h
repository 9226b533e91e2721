// call_key.h: what two calls of an operator must have in common to run the same model, as bytes.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <string>
#include <string_view>
#include <vector>

#include "table.h"

namespace heddle::torch_backend {

// How a tensor argument reaches the graph.
enum class Form : uint8_t {
  as_it_is,  // by its strides
  permuted,  // dense, its axes in another order: the graph gets it in memory's order and transposes
  number,    // a CPU tensor without dimensions: by value
};
Form form_of(const at::Tensor& tensor);
using Axes = c10::SmallVector<int64_t, 8>;
// Axes from the outermost in memory to the innermost, of what is dense.
Axes memory_order(c10::IntArrayRef sizes, c10::IntArrayRef strides);
inline Axes memory_order(const at::Tensor& tensor) { return memory_order(tensor.sizes(), tensor.strides()); }

// Of numbers that vary, a graph knows 0 and 1. -0.0 is neither.
bool is_known(double number);

struct CallKey {
  std::string whole;             // what is said of all but the extents, then the extents
  std::vector<int64_t> extents;  // of each tensor's axes, in the order of the arguments
  size_t kind_bytes = 0;
  bool any_strided = false;  // a tensor does not lie by rows alone

  std::string_view kind() const { return std::string_view(whole).substr(0, kind_bytes); }
  void clear();
  void end_kind();  // nothing but extents follows
};

// The default dtype is part of it: it decides what floats and whole numbers promote to. `scalars` are bits of
// the arguments of schema type Scalar.
void append_arguments(CallKey& key, uint64_t scalars, c10::ArrayRef<c10::IValue> arguments, Numbers numbers);

}  // namespace heddle::torch_backend
