#include "arrays.h"

#include <nanobind/ndarray.h>

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

#include "device_tensor.h"
#include "dlpack_array.h"
#include "gil.h"

namespace heddle::python {
namespace {

std::optional<DType> dtype_of_format(const char* format, Py_ssize_t size) {
  if (format == nullptr) return DType::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  switch (*format) {
    case 'f':
      return DType::f32;
    case 'd':
      return DType::f64;
    case 'e':
      return DType::f16;
    case '?':
      return DType::boolean;
    case 'B':
      return DType::u8;
    case 'b':
      return DType::i8;
    case 'h':
      return DType::i16;
    case 'H':
      return DType::u16;
    case 'I':
    case 'L':
    case 'Q':
      return size == 8 ? DType::u64 : DType::u32;
    case 'i':
    case 'l':
    case 'q':
      return size == 8 ? DType::i64 : DType::i32;
    default:
      return std::nullopt;
  }
}

[[noreturn]] void refuse_dtype(std::string_view name, const std::string& dtype) {
  throw Error(ErrorCode::unsupported,
              "input '" + std::string(name) + "' has dtype " + dtype +
                  "; Heddle takes f32, f16, bf16, f64, i8 to i64, u8 to u64 and bool");
}

// `as` stands in for the buffer's own element type.
std::optional<Tensor> from_buffer(nb::handle array, std::string_view name,
                                  std::optional<DType> as = std::nullopt) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_RECORDS_RO) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const std::shared_ptr<const void> held = keep(buffer);
  const auto dtype = as ? as : dtype_of_format(buffer.format, buffer.itemsize);
  if (!dtype) refuse_dtype(name, std::string("'") + buffer.format + "'");
  Shape shape(buffer.shape, buffer.shape + buffer.ndim);
  Shape strides;
  bool contiguous = true;
  Py_ssize_t expected = buffer.itemsize;
  for (int axis = buffer.ndim; axis-- > 0;) {
    contiguous = contiguous && (buffer.shape[axis] == 1 || buffer.strides[axis] == expected);
    expected *= buffer.shape[axis];
  }
  if (!contiguous) {
    for (int axis = 0; axis < buffer.ndim; ++axis) {
      if (buffer.strides[axis] % buffer.itemsize != 0) {
        throw Error(ErrorCode::unsupported,
                    "input '" + std::string(name) + "' has a stride of " +
                        std::to_string(buffer.strides[axis]) +
                        " bytes, which is no multiple of its element; pass a copy (numpy.ascontiguousarray)");
      }
      strides.push_back(buffer.strides[axis] / buffer.itemsize);
    }
  }
  return Tensor::borrow(buffer.buf, *dtype, shape, strides, held);
}

// An attribute turned straight into nb::str would be cast, not printed.
std::string dtype_word(nb::handle array) {
  const nb::object dtype = array.attr("dtype");
  return nb::str(nb::handle(dtype)).c_str();
}

// Found once; the interpreter keeps both until it ends.
struct Numpy {
  static constexpr size_t kDtypes = static_cast<size_t>(DType::boolean) + 1;
  PyObject* empty = nullptr;
  std::array<PyObject*, kDtypes> dtypes{};

  // Two threads may both find them, the same objects: the import may free the GIL, or there is none. The
  // first one's stay, and the others' references do no harm.
  static const Numpy& get() {
    static std::atomic<const Numpy*> found{nullptr};  // set once, released, by the first; acquired
    if (found.load(std::memory_order_acquire) == nullptr) {
      auto own = std::make_unique<Numpy>();
      Numpy& numpy = *own;
      const nb::module_ module = nb::module_::import_("numpy");
      numpy.empty = module.attr("empty").inc_ref().ptr();
      for (const auto& [dtype, word] : {std::pair(DType::f32, "f4"),
                                        {DType::f64, "f8"},
                                        {DType::f16, "f2"},
                                        {DType::i8, "i1"},
                                        {DType::i16, "i2"},
                                        {DType::i32, "i4"},
                                        {DType::i64, "i8"},
                                        {DType::u8, "u1"},
                                        {DType::u16, "u2"},
                                        {DType::u32, "u4"},
                                        {DType::u64, "u8"},
                                        {DType::boolean, "?"}}) {
        numpy.dtypes[static_cast<size_t>(dtype)] = module.attr("dtype")(word).release().ptr();
      }
      const Numpy* none = nullptr;
      if (found.compare_exchange_strong(none, own.get(), std::memory_order_acq_rel)) {
        [[maybe_unused]] const Numpy* const kept = own.release();
      }
    }
    return *found.load(std::memory_order_acquire);
  }
};

// A new numpy array with the tensor's values: of few bytes that is quicker than an array that holds their
// memory, which is made by way of a capsule and a memoryview.
constexpr uint64_t kFewBytes = 4096;

nb::object copied(const Tensor& tensor, const Shape& shape, uint64_t bytes) {
  const Numpy& numpy = Numpy::get();
  nb::object extents = nb::steal(PyTuple_New(static_cast<Py_ssize_t>(shape.size())));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    PyTuple_SetItem(extents.ptr(), static_cast<Py_ssize_t>(axis), PyLong_FromLongLong(shape[axis]));
  }
  nb::object array =
      nb::handle(numpy.empty)(extents, nb::handle(numpy.dtypes[static_cast<size_t>(tensor.dtype())]));
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_CONTIG) != 0) throw nb::python_error();
  if (bytes != 0) std::memcpy(buffer.buf, tensor.data(), bytes);
  PyBuffer_Release(&buffer);
  return array;
}

// A numpy array of ml_dtypes.bfloat16, for which buffers have no format and numpy gives no DLPack.
bool is_numpy_bf16(nb::handle array) { return nb::hasattr(array, "view") && dtype_word(array) == "bfloat16"; }

nb::object bf16_of_numpy() {
  try {
    return nb::module_::import_("ml_dtypes").attr("bfloat16");
  } catch (const nb::python_error& error) {
    if (!error.matches(PyExc_ImportError)) throw;
  }
  throw Error(ErrorCode::unsupported,
              "numpy has no bf16 of its own: install ml_dtypes, pass torch tensors to get torch tensors, or "
              "end the model with a Cast");
}

}  // namespace

nb::dlpack::dtype to_dlpack(DType dtype) {
  using Code = nb::dlpack::dtype_code;
  Code code = Code::Int;
  switch (dtype) {
    case DType::f32:
    case DType::f16:
    case DType::f64:
      code = Code::Float;
      break;
    case DType::bf16:
      code = Code::Bfloat;
      break;
    case DType::u8:
    case DType::u16:
    case DType::u32:
    case DType::u64:
      code = Code::UInt;
      break;
    case DType::boolean:
      code = Code::Bool;
      break;
    default:
      break;
  }
  return {static_cast<uint8_t>(code), static_cast<uint8_t>(size_of(dtype) * 8), 1};
}

Tensor to_tensor(nb::handle array, std::string_view name, const Device* on) {
  if (nb::isinstance<Tensor>(array)) return nb::cast<Tensor>(array);
  if (auto tensor = from_buffer(array, name)) return *std::move(tensor);
  if (is_on_a_gpu(array)) return lent(array, name, on);
  nb::ndarray<nb::ro> view;
  if (!nb::try_cast(array, view, true)) {
    if (nb::hasattr(array, "dtype")) {
      if (is_numpy_bf16(array)) {
        if (auto tensor = from_buffer(array.attr("view")("uint16"), name, DType::bf16))
          return *std::move(tensor);
      }
      refuse_dtype(name, dtype_word(array));
    }
    throw nb::type_error(("input '" + std::string(name) + "' is a " +
                          nb::cast<std::string>(array.type().attr("__name__")) +
                          "; pass a numpy array, or an array with __dlpack__")
                             .c_str());
  }
  if (view.device_type() != nb::device::cpu::value) {
    throw Error(ErrorCode::unsupported,
                "input '" + std::string(name) + "' is on another device; copy it to the host first");
  }
  const nb::dlpack::dtype given = view.dtype();
  const auto dtype = dtype_of(DlpackType{given.code, given.bits, given.lanes});
  if (!dtype) refuse_dtype(name, dtype_word(array));
  Shape shape;
  Shape strides;
  for (size_t axis = 0; axis < view.ndim(); ++axis) {
    shape.push_back(static_cast<int64_t>(view.shape(axis)));
    strides.push_back(view.stride(axis));
  }
  return Tensor::borrow(view.data(), *dtype, shape, strides, keep(nb::borrow(array)));
}

Kind::Kind(nb::object from_dlpack)
    : from_dlpack_(from_dlpack.is_none() ? nb::object() : std::move(from_dlpack)) {}

Kind Kind::of(nb::handle array) {
  // CuPy's arrays say that they have a buffer, too, which those in a GPU's memory refuse to give.
  if (PyObject_CheckBuffer(array.ptr()) && !nb::hasattr(array, "__cuda_array_interface__")) return numpy();
  if (nb::isinstance<Tensor>(array)) return Kind(nb::borrow(nb::type<Tensor>()));
  const auto module = nb::cast<std::string>(array.type().attr("__module__"));
  const nb::object library = nb::module_::import_(module.substr(0, module.find('.')).c_str());
  if (nb::hasattr(library, "from_dlpack")) return Kind(library.attr("from_dlpack"));
  return numpy();
}

nb::object Kind::wrap(const Tensor& tensor) const {
  if (from_dlpack_.is_valid() && from_dlpack_.is(nb::type<Tensor>())) return nb::cast(tensor);
  if (!tensor.on_host()) {
    if (from_dlpack_.is_valid()) return from_dlpack_(nb::cast(tensor));
    return wrap(without_gil([&] { return tensor.to_host(); }));
  }
  const Shape shape = tensor.shape();
  if (!from_dlpack_.is_valid() && tensor.dtype() != DType::bf16) {
    const uint64_t bytes = static_cast<uint64_t>(tensor.elements()) * size_of(tensor.dtype());
    if (bytes <= kFewBytes && tensor.is_contiguous()) return copied(tensor, shape, bytes);
  }
  std::vector<size_t> extents(shape.begin(), shape.end());
  const Shape strides = tensor.strides();
  Tensor held = tensor;
  void* data = held.mutable_data();
  nb::capsule owner(new Tensor(std::move(held)), [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  if (from_dlpack_.is_valid()) {
    const nb::ndarray<> view(data, extents.size(), extents.data(), owner, strides.data(),
                             to_dlpack(tensor.dtype()), nb::device::cpu::value, 0);
    return from_dlpack_(nb::cast(view));
  }
  const bool bf16 = tensor.dtype() == DType::bf16;
  const nb::object numpy_bf16 = bf16 ? bf16_of_numpy() : nb::object();
  const auto dtype = bf16 ? nb::dtype<uint16_t>() : to_dlpack(tensor.dtype());
  const nb::ndarray<nb::numpy> view(data, extents.size(), extents.data(), owner, strides.data(), dtype,
                                    nb::device::cpu::value, 0);
  return bf16 ? nb::cast(view).attr("view")(numpy_bf16) : nb::cast(view);
}

Shape to_shape(nb::handle sequence, std::string_view what) {
  Shape shape;
  if (!PySequence_Check(sequence.ptr())) {
    throw nb::type_error((std::string(what) + " must be a sequence of integers, such as (1, 128)").c_str());
  }
  for (nb::handle extent : nb::borrow<nb::object>(sequence)) shape.push_back(nb::cast<int64_t>(extent));
  return shape;
}

}  // namespace heddle::python
