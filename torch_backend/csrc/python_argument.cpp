#include "python_argument.h"

#include <torch/csrc/Dtype.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include "storage.h"

namespace py = pybind11;

namespace heddle::torch_backend {
namespace {

struct Reader {
  const c10::FunctionSchema& schema;
  GraphBuilder& graph;
  std::string argument;

  [[noreturn]] void mismatch(py::handle object, const char* wanted) const {
    throw py::type_error(c10::str(schema.operator_name(), ": argument '", argument, "' has to be ", wanted,
                                  ", not ", py::repr(object).cast<std::string>()));
  }

  const Node* node(py::handle object) const {
    return py::isinstance<Node>(object) ? &object.cast<const Node&>() : nullptr;
  }

  Argument tensor(py::handle object) const {
    if (const Node* its = node(object)) return TensorArgument{its->value, its->number};
    if (is_number(object)) return TensorArgument{literal_of(object, graph), true};
    mismatch(object, "a tensor of this graph");
  }

  Int size(py::handle object) const {
    if (const Node* its = node(object)) return Int(its->value);
    if (!PyLong_Check(object.ptr())) mismatch(object, "a whole number");
    return object.cast<int64_t>();
  }

  double real(py::handle object) const {
    if (!is_number(object)) mismatch(object, "a known number");
    return object.cast<double>();
  }

  bool flag(py::handle object) const {
    if (!PyBool_Check(object.ptr())) mismatch(object, "True or False");
    return object.cast<bool>();
  }

  Argument number(py::handle object) const {
    if (const Node* its = node(object)) return Number{graph.port(its->value).dtype, std::nullopt, its->value};
    if (!is_number(object)) mismatch(object, "a real number");
    const DType kind = PyBool_Check(object.ptr())    ? DType::boolean
                       : PyFloat_Check(object.ptr()) ? DType::f64
                                                     : DType::i64;
    return Number{kind, object.cast<double>()};
  }

  DType dtype(py::handle object) const {
    if (THPDtype_Check(object.ptr()))
      return to_heddle(reinterpret_cast<THPDtype*>(object.ptr())->scalar_type);
    if (PyLong_Check(object.ptr())) return to_heddle(static_cast<at::ScalarType>(object.cast<int>()));
    mismatch(object, "a dtype");
  }

  Argument tensors(py::handle list) const {
    std::vector<TensorArgument> read;
    for (const py::handle item : py::reinterpret_borrow<py::object>(list)) {
      read.push_back(item.is_none() ? TensorArgument{GraphBuilder::absent()}
                                    : std::get<TensorArgument>(tensor(item)));
    }
    return read;
  }

  template <class T>
  Argument each(py::handle list, T (Reader::*one)(py::handle) const) const {
    if (!py::isinstance<py::list>(list) && !py::isinstance<py::tuple>(list)) return (this->*one)(list);
    std::vector<T> read;
    for (const py::handle item : py::reinterpret_borrow<py::object>(list)) read.push_back((this->*one)(item));
    return read;
  }

  // A list of some type; a lone number counts as a list of one, which Call does too.
  Argument list(py::handle object, c10::TypeKind element) const {
    switch (element) {
      case c10::TypeKind::TensorType:
      case c10::TypeKind::OptionalType:
        return tensors(object);
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return each(object, &Reader::size);
      case c10::TypeKind::FloatType:
        return each(object, &Reader::real);
      case c10::TypeKind::BoolType:
        return each(object, &Reader::flag);
      default:
        mismatch(object, "of another type: lists of this one are not offered");
    }
  }

  Argument read(py::handle object, const c10::TypePtr& type) const {
    if (object.is_none()) return std::monostate();
    switch (type->kind()) {
      case c10::TypeKind::OptionalType:
        return read(object, type->expectRef<c10::OptionalType>().getElementType());
      case c10::TypeKind::TensorType:
        return tensor(object);
      case c10::TypeKind::IntType:
      case c10::TypeKind::SymIntType:
        return size(object);
      case c10::TypeKind::FloatType:
        return real(object);
      case c10::TypeKind::BoolType:
        return flag(object);
      case c10::TypeKind::StringType:
        return object.cast<std::string>();
      case c10::TypeKind::NumberType:
        return number(object);
      case c10::TypeKind::ScalarTypeType:
        return dtype(object);
      case c10::TypeKind::ListType:
        return list(object, type->expectRef<c10::ListType>().getElementType()->kind());
      case c10::TypeKind::DeviceObjType:
      case c10::TypeKind::LayoutType:
      case c10::TypeKind::MemoryFormatType:
      case c10::TypeKind::GeneratorType:
        return std::monostate();
      default:
        mismatch(object, "of another type: this one is not offered");
    }
  }
};

}  // namespace

bool is_number(py::handle object) {
  return PyBool_Check(object.ptr()) || PyLong_Check(object.ptr()) || PyFloat_Check(object.ptr());
}

Value literal_of(py::handle number, GraphBuilder& graph) {
  if (PyBool_Check(number.ptr())) return graph.constant(Tensor::of<bool>({}, {number.cast<bool>()}));
  if (PyLong_Check(number.ptr())) return graph.constant(Tensor::of<int64_t>({}, {number.cast<int64_t>()}));
  return graph.constant(Tensor::of<double>({}, {number.cast<double>()}));
}

std::vector<Argument> from_python(const c10::FunctionSchema& schema, const py::sequence& positional,
                                  const py::dict& named, GraphBuilder& graph) {
  Reader reader{schema, graph, {}};
  std::vector<Argument> arguments;
  for (const c10::Argument& expected : schema.arguments()) {
    const size_t position = arguments.size();
    reader.argument = expected.name();
    py::object given;
    if (position < positional.size()) {
      given = positional[position];
    } else if (named.contains(expected.name())) {
      given = named[expected.name().c_str()];
    } else if (expected.default_value()) {
      given = torch::jit::toPyObject(*expected.default_value());
    } else {
      throw py::type_error(c10::str(schema.operator_name(), ": argument '", expected.name(), "' is missing"));
    }
    arguments.push_back(reader.read(given, expected.real_type()));
  }
  return arguments;
}

}  // namespace heddle::torch_backend
