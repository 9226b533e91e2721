// limit_trial.h: one small graph on this machine's GPU, by MPSGraph itself and none of the driver.
//
//   What       Placeholders with their numbers, then run() of a tensor. What MPSGraph throws, or answers with
//              nil, is Refused.
//   Lifetime   Buffers, and the results in them, live as long as their Trial.
//   Threads    One thread makes and runs a Trial.
#pragma once

#import <MetalPerformanceShadersGraph/MetalPerformanceShadersGraph.h>

#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace heddle::limits {

using Shape = std::vector<int64_t>;

struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct TooLarge : std::runtime_error {
  using std::runtime_error::runtime_error;
};

template <class T>
constexpr MPSDataType type_of() {
  if constexpr (std::is_same_v<T, float>) return MPSDataTypeFloat32;
  if constexpr (std::is_same_v<T, int8_t>) return MPSDataTypeInt8;
  if constexpr (std::is_same_v<T, uint8_t>) return MPSDataTypeUInt8;
  if constexpr (std::is_same_v<T, int16_t>) return MPSDataTypeInt16;
  if constexpr (std::is_same_v<T, int32_t>) return MPSDataTypeInt32;
  if constexpr (std::is_same_v<T, int64_t>) return MPSDataTypeInt64;
  if constexpr (std::is_same_v<T, bool>) return MPSDataTypeBool;
}

NSArray<NSNumber*>* numbers(const Shape& shape);
int64_t elements(const Shape& shape);

class Trial {
 public:
  Trial();
  ~Trial();
  Trial(const Trial&) = delete;
  Trial& operator=(const Trial&) = delete;

  MPSGraph* graph() const { return graph_; }
  id<MTLDevice> device() const { return device_; }
  id<MTLCommandQueue> queue() const { return queue_; }

  template <class T>
  MPSGraphTensor* input(const Shape& shape, const std::function<T(int64_t)>& at) {
    MPSGraphTensor* tensor = feed(shape, type_of<T>(), sizeof(T));
    auto* to = static_cast<T*>([fed_.back() contents]);
    for (int64_t i = 0; i < elements(shape); ++i) to[i] = at(i);
    return tensor;
  }

  // What the tensor is, of so many elements of T.
  template <class T>
  std::span<const T> run(MPSGraphTensor* target, const Shape& shape) {
    return run<T>(std::vector<MPSGraphTensor*>{target}, {shape})[0];
  }
  template <class T>
  std::vector<std::span<const T>> run(const std::vector<MPSGraphTensor*>& targets,
                                      const std::vector<Shape>& shapes) {
    std::vector<std::span<const T>> all;
    for (const void* from : run(targets, shapes, type_of<T>(), sizeof(T)))
      all.emplace_back(static_cast<const T*>(from), static_cast<size_t>(elements(shapes[all.size()])));
    return all;
  }

  // Throws TooLarge where all of the trial's buffers are more than the GPU is good for.
  id<MTLBuffer> room(uint64_t bytes);
  MPSGraphExecutable* compile(const std::vector<MPSGraphTensor*>& targets);
  NSArray<MPSGraphTensorData*>* feeds(MPSGraphExecutable* executable);
  static MPSGraphTensorData* data(id<MTLBuffer> buffer, const Shape& shape, MPSDataType type);
  void commit(MPSCommandBuffer* commands);  // and wait

 private:
  MPSGraphTensor* feed(const Shape& shape, MPSDataType type, size_t size);
  std::vector<const void*> run(const std::vector<MPSGraphTensor*>& targets, const std::vector<Shape>& shapes,
                               MPSDataType type, size_t size);

  id<MTLDevice> device_;
  id<MTLCommandQueue> queue_;
  MPSGraph* graph_;
  std::vector<id<MTLBuffer>> buffers_, fed_;
  std::vector<MPSGraphTensor*> placeholders_;
  std::vector<Shape> shapes_;
  std::vector<MPSDataType> types_;
  uint64_t held_ = 0;
};

}  // namespace heddle::limits
