// arrays.h: Python arrays in, Python arrays out.
//
//   In         Anything with the buffer protocol or __dlpack__ on the CPU or a GPU of ours is borrowed,
//              strides and all: nothing is copied here.
//   Out        The kind that came in: numpy arrays, heddle.Tensor, or whatever the first input's library
//              makes of DLPack. The array holds the result's memory, or where that is 4 KiB or less a copy.
#pragma once

#include <heddle/heddle.h>
#include <nanobind/ndarray.h>
#include "gil.h"

namespace heddle::python {

namespace nb = nanobind;

// The borrowed tensor. `name` is for messages. TypeError for what is no array, Error(unsupported) for
// dtypes Heddle lacks.
// `on`: the device that is to use a GPU's memory; null: the process's own one there.
Tensor to_tensor(nb::handle array, std::string_view name, const Device* on = nullptr);

// How to give arrays back: found from an input, used for every output.
class Kind {
 public:
  static Kind numpy() { return Kind(nb::none()); }
  bool is_numpy() const { return !from_dlpack_.is_valid(); }
  static Kind of(nb::handle array);
  // The same as a Python object, None for numpy: a Kind may not be dropped without the GIL.
  explicit Kind(nb::object from_dlpack);
  nb::object as_object() const { return from_dlpack_.is_valid() ? from_dlpack_ : nb::none(); }
  nb::object wrap(const Tensor& tensor) const;  // ready tensors; waits for others

 private:
  nb::object from_dlpack_;  // null: numpy
};

nb::dlpack::dtype to_dlpack(DType dtype);
Shape to_shape(nb::handle sequence, std::string_view what);

}  // namespace heddle::python
