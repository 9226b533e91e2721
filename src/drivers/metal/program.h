// program.h: a module for concrete shapes: one MPSGraphExecutable, shared by all threads, and how to call it.
//
//   What       encode() adds one run to a command buffer. Weights are the module's buffers; inputs, outputs
//              and status words come from the recorder.
//   Threads    Immutable but for what encode() borrows: tensor data of the weights, one set for each thread
//              that encodes at a time, since MPSGraph does not say that they may be shared. With
//              Defences::encodes_in_turn that is one thread.
//   Blocks     encode(), while its turn is another thread's.
//   Lifetime   Keeps the module's weights.
#pragma once

#import <Metal/Metal.h>
#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <memory>
#include <span>
#include <vector>

#include "base/sync.h"
#include "device/program.h"
#include "drivers/metal/lowered.h"
#include "drivers/metal/open_device.h"

namespace heddle::metal {

class MetalProgram final : public device::Program {
 public:
  static Result<Ref<const device::Program>> make(const ir::Graph& specialised, Ref<const Weights> weights,
                                                 Ref<const OpenDevice> open, bool half);

  bool runs_nothing() const { return !lowered_.executable; }
  size_t checks() const { return lowered_.checks.size(); }
  const Check& check(size_t index) const { return lowered_.checks[index]; }
  std::span<const size_t> written() const { return lowered_.outputs; }  // outputs that have elements
  std::span<const Feed> feeds() const { return lowered_.feeds; }

  // `inputs` by input (nil where no feed asks for it), `outputs` as written(), `words` by check.
  Status encode(MPSCommandBuffer* commands, std::span<const id<MTLBuffer>> inputs,
                std::span<const id<MTLBuffer>> outputs, std::span<const id<MTLBuffer>> words) const;

 private:
  using Data = Owned<MPSGraphTensorData*>;
  struct Shaped {  // what tensor data needs beside its buffer
    Owned<NSArray<NSNumber*>*> shape;
    MPSDataType type;
    Data data(id<MTLBuffer> buffer) const;
  };
  static Shaped shaped(ir::DType dtype, const ir::Extents& extents);
  struct Encoders {
    std::vector<std::vector<Data>> idle;  // tensor data of the weights, a set each
    bool busy = false;                    // a thread has its turn
  };
  std::vector<Data> borrow_weights() const;
  void give_back(std::vector<Data> weights) const;

  Lowered lowered_;
  Ref<const Weights> weights_;
  Ref<const OpenDevice> open_;
  std::vector<Shaped> input_shapes_, output_shapes_, word_shapes_;  // of feeds, of written(), of checks
  bool in_turn_ = true;
  mutable Guarded<Encoders, Rank::kHelpers> encoders_;
};

}  // namespace heddle::metal
