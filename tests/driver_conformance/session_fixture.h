// session_fixture.h: the shortest way from tensors through a driver and back.
//
//   What       A Session owns one queue and one arena of a device. Tensors lie in memory of one kind,
//              contiguous or strided; they come and go by copies between staging memory and that.
//   Threads    One Session a thread; modules and programs are shared.
#pragma once

#include <vector>

#include "device/device.h"
#include "ir/graph.h"
#include "ir/tensor.h"
#include "tests/close_fixture.h"

namespace heddle::conformance {

// A tensor's elements in memory of the device.
device::View upload(device::Device& device, const ir::Tensor& tensor);
// The same elements, but with gaps, axes in reverse order in memory, and the last axis walked backwards.
device::View upload_strided(device::Device& device, const ir::Tensor& tensor);
device::View empty_like(device::Device& device, ir::DType dtype, const ir::Extents& extents);  // contiguous
ir::Tensor download(device::Device& device, const device::View& view);  // the work on it is over
void put_operands_in(device::MemoryKind kind);  // from here on; of devices without unified memory

class Session {
 public:
  explicit Session(device::Device& device);

  // Submits and waits.
  Status submit(const device::CommandList& list);
  Result<std::vector<ir::Tensor>> run(const Ref<const device::Program>& program,
                                      const std::vector<device::View>& inputs);
  Result<std::vector<ir::Tensor>> run(const Ref<const device::Program>& program,
                                      const std::vector<ir::Tensor>& inputs);

  device::Queue& queue() { return *queue_; }
  Result<Ref<device::Buffer>> arena_for(const device::Program& program);  // one for all that fit in it
  uint64_t next_value() { return ++value_; }

 private:
  device::Device& device_;
  std::unique_ptr<device::Queue> queue_;
  Ref<device::Buffer> arena_;
  uint64_t value_ = 0;
};

Result<Ref<const device::Program>> compile(const device::Module& module,
                                           const std::vector<ir::Tensor>& inputs);

ir::Tensor random_tensor(ir::DType dtype, const ir::Extents& extents, uint32_t seed, double low = -2,
                         double high = 2);

using test::Tolerance;
// Empty when they agree, else what differs first.
std::string difference(const ir::Tensor& got, const ir::Tensor& wanted, Tolerance tolerance);
bool same_bits(const ir::Tensor& a, const ir::Tensor& b);

}  // namespace heddle::conformance
