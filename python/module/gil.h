// gil.h: where the interpreter's lock is given up, and how that ends well when the interpreter does.
//
//   What       without_gil(f) runs f with the GIL free. Every binding that can wait or compute goes through
//              it. A binding that calls Python code which may free the GIL has an Entry.
//   Exit       A thread that comes back for the GIL of a finalising interpreter is killed by CPython in the
//              middle of C++ frames. So exit is announced first: before_exit() (an atexit handler) ends the
//              waits of other threads, waits until every thread is out, and from then on only the thread that
//              finalises may enter; the others get `unavailable`. On daemon threads errors.cpp raises
//              SystemExit in its place: Python ends such threads without a message.
//   Answers    What a model's own threads call (Callback) enters through a Visit, which exit waits for, too.
//   Signals    Heddle asks interrupt_asked() from inside its waits; on the main thread that runs Python's
//              signal handlers. What they raise is kept and raised when the wait has ended.
//   Memory     Python-owned memory that is dropped without the GIL goes to a list, emptied by the next call
//              that holds it.
//   No GIL     In a free-threaded Python (3.13t, 3.14t) "the GIL" above is the thread's attachment to the
//              interpreter: many threads have it at once, and none keeps the others from anything. What is
//              shared has locks of its own: nb::ft_mutex, which a GIL makes superfluous and nanobind then
//              leaves out, where Python code may run under it; std::mutex where none does.
#pragma once

#include <heddle/heddle.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>  // here, so that no two files disagree on how these types are cast
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <exception>
#include <type_traits>

namespace heddle::python {

namespace nb = nanobind;

class Entry {
 public:
  Entry();   // holds the GIL; throws Error(unavailable) where no thread may enter any more
  ~Entry();  // holds the GIL again
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;
};

void refuse_at_exit();   // throws Error(unavailable) where no thread may enter any more
void raise_interrupt();  // throws nb::python_error when a signal handler raised during a wait of this thread

template <class F>
auto without_gil(F&& f) {
  using R = std::invoke_result_t<F>;
  if constexpr (std::is_void_v<R>) {
    without_gil([&f] { return f(), true; });
  } else {
    const Entry entry;
    std::exception_ptr failure;
    std::optional<R> result;
    PyThreadState* state = PyEval_SaveThread();
    try {
      result.emplace(f());
    } catch (const Error&) {
      failure = std::current_exception();
    } catch (const std::bad_alloc&) {
      failure = std::current_exception();
    }
    PyEval_RestoreThread(state);
    raise_interrupt();
    if (failure) refuse_at_exit();
    if (failure) std::rethrow_exception(failure);
    return std::move(*result);
  }
}

// A reference to a Python object (or a Py_buffer) that C++ may drop on any thread.
std::shared_ptr<const void> keep(nb::object object);
std::shared_ptr<const void> keep(Py_buffer buffer);
void drop_released();  // holds the GIL: drops what other threads left

// A thread that no Python thread waits for, on its way to the GIL: exit waits until it is out. False once the
// interpreter exits: it must not ask for the GIL then.
class Visit {
 public:
  Visit();
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;
  explicit operator bool() const { return entered_; }

 private:
  const bool entered_;
};

// A Python function that C++ keeps and calls on any thread. before_exit() lets go of all of them: the
// interpreter frees nothing that only C++ refers to.
class KeptFunction;
class Callback {
 public:
  // `where` names the callback in the message about an exception that it raises.
  Callback(nb::object function, const char* where);
  template <class... Args>
  void operator()(const Args&... args) const {
    visit([&](const nb::object& function) { function(args...); });
  }
  // The same for the last time: body(function) runs with the GIL, and what was kept goes before it is freed.
  template <class Body>
  void visit_last(Body&& body) const {
    visit([&](const nb::object& function) {
      let_go();
      body(function);
    });
  }

 private:
  template <class Body>
  void visit(Body&& body) const {
    const Visit visit;
    if (!visit) return;
    const nb::gil_scoped_acquire gil;
    drop_released();
    const nb::object function = held();
    if (!function.is_valid()) return;
    try {
      body(function);
    } catch (nb::python_error& e) {
      e.discard_as_unraisable(where_);
    }
  }
  nb::object held() const;  // invalid at exit
  void let_go() const;
  std::shared_ptr<KeptFunction> function_;
  const char* where_;
};

void bind_process(nb::module_& m);

}  // namespace heddle::python
