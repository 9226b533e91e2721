// host_tensors.h: the tensors of one call as CPU tensors, for a kernel of PyTorch's CPU.
//
//   What       Where the host addresses the device's memory they lie in it: nothing is copied. Elsewhere they
//              are copies of the elements in the host's memory, with the same strides. Tensors of one storage
//              share a storage here, too, so that PyTorch finds what overlaps.
//   Use        of() each tensor, then fetch(), then the kernel, then give() and take_back().
//   Blocks     of(), where the memory is used in place, until nothing else uses it; fetch(), elsewhere, until
//              what writes the tensors and their copies are over. Copies to the device are enqueued only.
//   Errors     The waits throw the failure of a run that made a tensor's values. Where tensors are copies,
//              nothing of the device's is changed before give() and take_back().
//   Threads    One; others may use the same tensors.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace heddle::torch_backend {

class HostTensors {
 public:
  enum class Use : uint8_t { read, updated, written };  // written: what it holds before is not read

  explicit HostTensors(c10::Device device);
  at::Tensor of(const at::Tensor& tensor, Use use);  // itself where it is not the device's
  void fetch();

  // A result as a new tensor of the device.
  at::Tensor give(const at::Tensor& result) const;
  // Of what a kernel left of of(target): its shape, perhaps in memory of its own; then its values.
  void take_back_shape(const at::Tensor& host, const at::Tensor& target) const;
  void take_back(const at::Tensor& host, const at::Tensor& target);

 private:
  struct Copied {
    c10::StorageImpl* theirs;
    c10::Storage made;
    size_t begin, end;  // the bytes that its tensors reach
  };
  struct Fetched {
    at::Tensor theirs, made;
    bool is_read;
  };

  c10::Storage in_place(const c10::Storage& storage, bool written);
  c10::Storage copy_of(const at::Tensor& tensor);
  void lay_out();
  void put(const at::Tensor& host, const at::Tensor& target) const;

  const c10::Device device_;
  const bool is_in_place_;
  std::vector<std::pair<c10::StorageImpl*, c10::Storage>> made_;  // in place
  std::vector<Copied> copied_;
  std::vector<Fetched> fetched_;
};

}  // namespace heddle::torch_backend
