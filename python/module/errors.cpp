// errors.cpp: heddle::Error becomes the exception class of its code (heddle/errors.py), and so does an
// argument that cannot be converted. A daemon thread that an exit of the interpreter stops gets SystemExit.
#include <heddle/heddle.h>

#include <array>
#include <new>
#include <stdexcept>

#include "bindings.h"

namespace heddle::python {

namespace nb = nanobind;

namespace {

std::array<PyObject*, 9> classes{};  // held for ever: the interpreter's own module holds them too

}  // namespace

nb::object to_exception(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Error& e) {
    return nb::handle(classes[static_cast<size_t>(e.code())])(e.what());
  } catch (const std::exception& e) {
    return nb::handle(classes[static_cast<size_t>(ErrorCode::internal)])(e.what());
  }
}

void bind_errors(nb::module_&) {
  static PyObject* ends_this_thread = nullptr;
  const nb::object errors = nb::module_::import_("heddle.errors");
  ends_this_thread = nb::object(errors.attr("exit_ends_this_thread")).release().ptr();
  const nb::object by_code = errors.attr("BY_CODE");
  for (size_t code = 1; code < classes.size(); ++code) {
    const auto word = name(static_cast<ErrorCode>(code));
    classes[code] = nb::object(by_code[nb::str(word.data(), word.size())]).release().ptr();
  }
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    try {
      std::rethrow_exception(p);
    } catch (const Error& e) {
      if (e.code() == ErrorCode::unavailable && nb::cast<bool>(nb::handle(ends_this_thread)())) {
        PyErr_SetNone(PyExc_SystemExit);
        return;
      }
      PyErr_SetString(classes[static_cast<size_t>(e.code())], e.what());
    } catch (const std::bad_alloc&) {  // of the binding itself: libheddle's are an Error
      PyErr_SetString(classes[static_cast<size_t>(ErrorCode::exhausted)], "the system has no memory left");
    } catch (const std::length_error& e) {
      PyErr_SetString(classes[static_cast<size_t>(ErrorCode::exhausted)], e.what());
    } catch (const nb::cast_error&) {
      PyErr_SetString(classes[static_cast<size_t>(ErrorCode::invalid)],
                      "an argument, or an element of one, is of the wrong type");
    }
  });
}

}  // namespace heddle::python
