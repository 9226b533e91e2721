#include "gil.h"

#include <dlfcn.h>
#include <pythread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <variant>
#include <vector>

namespace heddle::python {

class KeptFunction {
 public:
  explicit KeptFunction(nb::object function) : raw_(function.ptr()), kept_(keep(std::move(function))) {}
  nb::object get() {  // invalid once it was let go of
    const nb::ft_lock_guard lock(mutex_);
    return nb::borrow(nb::handle(raw_));
  }
  void let_go() {
    std::shared_ptr<const void> last;  // dies after the lock: that may run Python code
    const nb::ft_lock_guard lock(mutex_);
    raw_ = nullptr;
    last = std::exchange(kept_, nullptr);
  }

 private:
  nb::ft_mutex mutex_;  // of a Python with a GIL: that
  PyObject* raw_;
  std::shared_ptr<const void> kept_;
};

namespace {

using namespace nb::literals;

// One interpreter per process: its state is the process's.
std::atomic<int> inside{0};        // threads in an Entry or in a Visit
std::atomic<bool> exiting{false};  // set, then `inside` is read; who comes in does the reverse; all seq_cst
unsigned long main_thread = 0;     // set at import, by the main thread or on its behalf
thread_local PyObject* interrupt = nullptr;

using Held = std::variant<PyObject*, Py_buffer>;
// Of callbacks. Nothing that may run Python code runs under its mutex, so the GIL is never asked for there.
std::mutex functions_mutex;
std::vector<std::weak_ptr<KeptFunction>> functions;
size_t functions_swept = 16;  // at this many, those that are gone are taken out

std::mutex released_mutex;
std::atomic<bool> any_released{
    false};  // written with the mutex; a call that misses one leaves it to the next
std::vector<Held>& released() {
  static auto* list = new std::vector<Held>;  // outlives the threads that may still drop into it
  return *list;
}

bool has_gil() {
#if defined(Py_LIMITED_API)
  // Not part of the stable ABI. In a Python without it, what is dropped waits for the next call.
  static auto* const check = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return check != nullptr && check() != 0;
#else
  return PyGILState_Check() != 0;
#endif
}

void drop(Held& held) {
  if (auto* object = std::get_if<PyObject*>(&held)) {
    Py_DECREF(*object);
  } else {
    PyBuffer_Release(&std::get<Py_buffer>(held));
  }
}

void release(Held held) {
  if (!Py_IsInitialized()) return;  // the interpreter took its memory with it
  if (has_gil()) {
    drop(held);
    return;
  }
  const std::lock_guard lock(released_mutex);
  released().push_back(held);
  any_released.store(true, std::memory_order_relaxed);
}

struct HeldDeleter {
  void operator()(Held* held) const {
    release(*held);
    delete held;
  }
};

bool is_main() { return PyThread_get_thread_ident() == main_thread; }

bool refused() { return exiting.load() && !is_main(); }

bool interrupt_asked() {
  if (refused()) return true;
  if (!is_main() || exiting.load(std::memory_order_acquire)) return false;
  const PyGILState_STATE state = PyGILState_Ensure();
  const bool raised = PyErr_CheckSignals() != 0;
  if (raised) {
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* trace = nullptr;
    PyErr_Fetch(&type, &value, &trace);
    PyErr_NormalizeException(&type, &value, &trace);
    Py_XDECREF(type);
    Py_XDECREF(trace);
    Py_XDECREF(interrupt);
    interrupt = value;
  }
  PyGILState_Release(state);
  return raised;
}

void let_go_of_callbacks() {
  std::vector<std::weak_ptr<KeptFunction>> all;
  {
    const std::lock_guard lock(functions_mutex);
    all.swap(functions);
  }
  for (const auto& each : all) {
    if (const auto function = each.lock()) function->let_go();
  }
}

void before_exit() {
  exiting.store(true);
  PyThreadState* state = PyEval_SaveThread();
  while (inside.load() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  PyEval_RestoreThread(state);
  let_go_of_callbacks();
}

}  // namespace

Callback::Callback(nb::object function, const char* where)
    : function_(std::make_shared<KeptFunction>(std::move(function))), where_(where) {
  const std::lock_guard lock(functions_mutex);
  if (functions.size() >= functions_swept) {  // twice what lived then: a sweep costs each callback little
    std::erase_if(functions, [](const auto& each) { return each.expired(); });
    functions_swept = std::max<size_t>(16, functions.size() * 2);
  }
  functions.push_back(function_);
}

nb::object Callback::held() const { return function_->get(); }

void Callback::let_go() const { function_->let_go(); }

// Both orders are the default, seq_cst: either this thread sees that the interpreter exits, or the thread
// that ends it sees this one inside. With a GIL that alone would order an Entry; without one nothing else
// does.
Visit::Visit() : entered_((inside.fetch_add(1), !refused())) {}
Visit::~Visit() { inside.fetch_sub(1); }

void refuse_at_exit() {
  if (!refused()) return;
  throw Error(ErrorCode::unavailable,
              "the interpreter is shutting down: only the main thread may still call");
}

Entry::Entry() {
  inside.fetch_add(1);  // before it looks: as a Visit
  if (refused()) {
    inside.fetch_sub(1);
    refuse_at_exit();
  }
  drop_released();
}

Entry::~Entry() { inside.fetch_sub(1); }

void raise_interrupt() {
  if (interrupt == nullptr) return;
  PyObject* value = std::exchange(interrupt, nullptr);
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(value)), value);
  Py_DECREF(value);
  throw nb::python_error();
}

std::shared_ptr<const void> keep(nb::object object) {
  return {new Held(object.release().ptr()), HeldDeleter()};
}
std::shared_ptr<const void> keep(Py_buffer buffer) { return {new Held(buffer), HeldDeleter()}; }

void drop_released() {
  if (!any_released.load(std::memory_order_relaxed)) return;
  std::vector<Held> list;
  {
    const std::lock_guard lock(released_mutex);
    list.swap(released());
    any_released.store(false, std::memory_order_relaxed);
  }
  for (Held& held : list) drop(held);
}

void bind_process(nb::module_& m) {
  const nb::object threading = nb::module_::import_("threading");
  main_thread = nb::cast<unsigned long>(threading.attr("main_thread")().attr("ident"));
  set_interrupt_check(interrupt_asked);
  // An object in the frame of a daemon thread outlives the interpreter, which nanobind would call a leak.
  nb::set_leak_warnings(false);
  m.def("report_leaks", [] { nb::set_leak_warnings(true); });
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(before_exit));
  // A forked child has none of the threads that were inside.
  const nb::object none_inside = nb::cpp_function([] { inside.store(0, std::memory_order_release); });
  nb::module_::import_("os").attr("register_at_fork")("after_in_child"_a = none_inside);
}

}  // namespace heddle::python
