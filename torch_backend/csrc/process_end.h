// process_end.h: how threads that still call when the interpreter ends are kept from crashing the process.
//
//   Why        CPython kills a thread that comes back for the GIL of a finalising interpreter, in the middle
//              of whatever frames it has; PyTorch's do not survive that (std::terminate). So exit is
//              announced first, and from then on a thread that starts work, or comes back for the GIL, waits
//              for the end of the process. What is longer in PyTorch's own operators than exit waits is
//              killed there, and waits in the terminate handler, as threads of CPython 3.14 do. So does any
//              other thread that ends without an exception from then on.
//   Threads    Any. before_exit() on the one that ends the interpreter.
//   Blocks     before_exit(): until all threads that ever called wait so, at most kLongest.
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <chrono>
#include <optional>

namespace heddle::torch_backend {

constexpr std::chrono::milliseconds kLongest{200};

void before_exit();  // holds the GIL, and gives it to the others meanwhile

// This thread calls: until it ends, or waits for the end of the process, before_exit() waits for it. PyTorch
// lets go of the GIL where it frees a tensor, so a thread that only drops what others made is one as well.
void count_caller();
void stay_out_of_exit();  // where work starts
bool process_ends();      // exit is announced: nothing needs to be freed any more

// Frees the GIL while it lives, if the thread has it. Nothing else in this module frees it.
class FreeGil {
 public:
  FreeGil();
  ~FreeGil();
  FreeGil(const FreeGil&) = delete;
  FreeGil& operator=(const FreeGil&) = delete;

 private:
  std::optional<pybind11::gil_scoped_release> free_;
};

}  // namespace heddle::torch_backend
