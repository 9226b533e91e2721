// eager.h: one kernel for every operator of the table.
//
//   What       The first call with given operator, dtypes, shapes and known arguments asks PyTorch's Meta
//              kernel for the results' types, which also raises PyTorch's own errors, and finds or builds the
//              operator's graph; the next ones find both. A graph is a Heddle model, and serves calls of
//              other shapes, too, once shapes were seen to vary (dynamic_shapes.h). It runs on the calling
//              thread's stream.
//   Refused    A call that PyTorch refuses raises PyTorch's error and leaves nothing behind: devices and
//              shared memory are checked before each call (checks.h), the rest by the Meta kernel, whose
//              refusals are not kept.
//   Strides    Results of a call that is computed element by element have the strides of PyTorch's CPU
//              (layout.h); others lie by rows.
//   Mutation   In-place and out= overloads compute the same graph, which writes its result to a target of its
//              shape that lies as the result does; to any other one it is copied, in stream order.
//   Threads    Any. A model is made once however many threads ask.
//   Blocks     For a first compilation, and on synchronous devices until the result is there.
#pragma once

#include <ATen/core/boxing/OperatorKernel.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <vector>

#include "arguments.h"
#include "call_key.h"
#include "table.h"

namespace heddle::torch_backend {

class CpuOperator;

// An overload of an entry's operator: what is left when its outputs are taken away are the entry's arguments.
struct Overload {
  const Entry* entry;
  c10::OperatorHandle op;
  enum class Kind : uint8_t { functional, in_place, out } kind;
  size_t arguments;  // of the entry; an out= overload's outputs follow them
  // Changes arguments that are no graph's: masks into indices. Null: nothing to change.
  void (*prepare)(c10::Stack& arguments) = nullptr;
  // Set by add_checks(), read by checks.cpp.
  using Check = void (*)(c10::ArrayRef<c10::IValue> arguments);
  Check check = nullptr;         // raises what the operator refuses by an argument's value; null: nothing
  uint64_t cpu_scalars = 0;      // bits of the arguments where a CPU tensor without dimensions may stand
  bool is_idempotent = false;    // the same value goes everywhere: elements may be written twice
  size_t apart_from = SIZE_MAX;  // from this argument on, no input may be a target as well
  // Positions of the arguments that say where a new tensor is to be and how it is laid out; -1: none.
  int device_argument = -1, layout_argument = -1;
  int dtype_argument = -1, memory_format_argument = -1;
  bool is_elementwise = false;        // layout.h
  CpuOperator* on_complex = nullptr;  // runs calls with complex numbers; null: nothing does
};

class EagerKernel final : public c10::OperatorKernel {
 public:
  explicit EagerKernel(Overload overload)
      : overload_(std::move(overload)), numbers_(scalar_arguments(overload_.op.schema())) {}
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, c10::Stack* stack);

 private:
  struct Place {
    const Device& device;
    c10::DeviceIndex index;
  };
  // None where they are in the targets. `may_turn`: results_in() may do it.
  std::vector<at::Tensor> results_of(c10::ArrayRef<c10::IValue> arguments, c10::ArrayRef<at::Tensor> targets,
                                     Place on, bool may_turn) const;
  std::vector<at::Tensor> results_in(const Axes& order, c10::ArrayRef<c10::IValue> arguments,
                                     c10::ArrayRef<at::Tensor> targets, Place on) const;

  const Overload overload_;
  const uint64_t numbers_;  // bits of the arguments of schema type Scalar
};

c10::OperatorName name_of(std::string_view op);  // "aten::add.Tensor" -> its name and its overload's
at::Tensor cast(const at::Tensor& tensor, c10::ScalarType type);  // a contiguous tensor of the same device

// Calls whose arguments and shapes were met before, and graphs, which calls of different shapes share.
struct EagerCacheStats {
  OnceCache::Stats calls, graphs;
};
EagerCacheStats eager_cache_stats();
void clear_eager_cache();

}  // namespace heddle::torch_backend
