#include "seen_weights.h"

#include <torch/csrc/autograd/python_variable.h>

#include "storage.h"

namespace py = pybind11;

namespace heddle::torch_backend {

SeenWeight::SeenWeight(const at::Tensor& weight)
    : tensor_(weight.getIntrusivePtr()),
      storage_(weight.storage().getWeakStorageImpl()),
      state_(of(weight)) {}

SeenWeight::State SeenWeight::of(const at::Tensor& weight) {
  const Memory* const memory = memory_of(weight.storage());
  return {weight.unsafeGetTensorImpl()->version_counter().current_version(), weight.const_data_ptr(),
          memory == nullptr ? std::nullopt : std::optional(memory->writes.load(std::memory_order_acquire))};
}

bool SeenWeight::is_still(const at::Tensor& weight) const {
  return tensor_._unsafe_get_target() == weight.unsafeGetTensorImpl() &&
         storage_._unsafe_get_target() == weight.storage().unsafeGetStorageImpl() && state_ == of(weight);
}

bool SeenWeights::are_still(const py::tuple& arguments) const {
  return std::ranges::all_of(seen_, [&](const auto& each) {
    PyObject* const argument = PyTuple_GetItem(arguments.ptr(), static_cast<Py_ssize_t>(each.first));
    if (argument == nullptr) throw py::error_already_set();
    return THPVariable_Check(argument) && each.second.is_still(THPVariable_Unpack(argument));
  });
}

void bind_seen_weights(py::module_& m) {
  py::class_<SeenWeight>(m, "SeenWeight")
      .def(py::init<const at::Tensor&>(), py::arg("weight"))
      .def("is_still", &SeenWeight::is_still, py::arg("weight"));
  py::class_<SeenWeights>(m, "SeenWeights")
      .def(py::init<const std::map<size_t, SeenWeight>&>(), py::arg("seen"))
      .def("__len__", &SeenWeights::size)
      .def("are_still", &SeenWeights::are_still, py::arg("arguments"));
}

}  // namespace heddle::torch_backend
