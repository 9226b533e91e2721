// lowering_bench.h: from a graph to an executable of the double, and its results, without a driver.
//
//   What       A Bench compiles as a module of the driver does, and runs on the caller's thread.
//   Threads    Any; a Bench is immutable.
#pragma once

#import <Metal/Metal.h>
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/metal/lowered.h"
#include "plan/passes/optimize.h"
#include "plan/rows/batchable.h"
#include "plan/specialize.h"
#include "tests/metal_double/graph/building.h"
#include "tests/metal_double/graph/executable.h"

namespace heddle::metal {

using ir::DType;

inline ir::Tensor random_tensor(DType dtype, const ir::Extents& extents, uint32_t seed, double low,
                                double high) {
  std::mt19937 random(seed * 7919 + 17);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = low + (high - low) * (static_cast<double>(random()) / 4294967295.0);
    if (ir::is_float(dtype)) {
      tensor.set(i, x);
    } else if (dtype == DType::kBool) {
      tensor.set_i64(i, x > (low + high) / 2 ? 1 : 0);
    } else {
      tensor.set(i, std::min(std::floor(x), std::ceil(high) - 1));  // u64 goes beyond what an i64 holds
    }
  }
  return tensor;
}

struct Compiled {
  ir::Graph graph;
  Ref<const Weights> weights;
  Lowered lowered;
};

class Bench {
 public:
  Bench() : device_(Owned<id<MTLDevice>>::adopt(MTLCreateSystemDefaultDevice())) {}
  id<MTLDevice> device() const { return device_.get(); }

  Result<Compiled> compile(ir::Graph graph, const std::vector<ir::Tensor>& inputs,
                           Defences defences = {}) const {
    HEDDLE_TRY_ASSIGN(ir::Graph optimised, plan::optimize(std::move(graph)));
    optimised = plan::mark_rows(std::move(optimised));
    std::vector<ir::Extents> extents;
    for (const ir::Tensor& input : inputs) extents.push_back(input.extents());
    Compiled out;
    device::CountingSource source;
    HEDDLE_TRY_ASSIGN(out.weights, Weights::make(device(), optimised, source));
    HEDDLE_TRY_ASSIGN(out.graph, plan::specialize(optimised, extents));
    HEDDLE_TRY_ASSIGN(out.lowered, lower(out.graph, *out.weights, {device(), false, defences}));
    return out;
  }

  // Results in the order of the graph's outputs; flags after them.
  std::vector<ir::Tensor> run(const Compiled& c, const std::vector<ir::Tensor>& inputs) const {
    @autoreleasepool {
      std::vector<ir::Tensor> out;
      for (const ir::ValueId id : c.graph.outputs)
        out.push_back(ir::Tensor::zeros(c.graph.type(id).dtype, *c.graph.type(id).extents()));
      if (!c.lowered.executable) return out;
      std::vector<metal_double::Array> feeds;
      for (const Feed& feed : c.lowered.feeds) {
        const ir::Tensor& tensor =
            feed.kind == Feed::Kind::input ? inputs[feed.index] : c.weights->tensor(feed.index);
        const MPSGraphTensor* type = [[c.lowered.executable.get() feedTensors] objectAtIndex:feeds.size()];
        const std::vector<int64_t> shape = metal_double::numbers_of([type shape]);
        feeds.push_back(metal_double::Array::borrow([type dataType], shape, tensor.data()));
      }
      const auto made = metal_double::run_now(c.lowered.executable.get(), feeds);
      for (size_t i = 0; i < made.size(); ++i) {
        if (i >= c.lowered.outputs.size())
          out.push_back(ir::Tensor::zeros(DType::kI32, ir::Extents(made[i].shape())));  // a flag
        ir::Tensor& result = i < c.lowered.outputs.size() ? out[c.lowered.outputs[i]] : out.back();
        REQUIRE(result.bytes() == made[i].bytes());
        std::memcpy(result.mutable_data(), made[i].data(), static_cast<size_t>(result.bytes()));
      }
      return out;
    }
  }

 private:
  Owned<id<MTLDevice>> device_;
};

}  // namespace heddle::metal
