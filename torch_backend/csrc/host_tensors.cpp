// host_tensors.cpp: the device's memory as a CPU tensor's, or copied to and fro.
#include "host_tensors.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "activities.h"
#include "private_names.h"
#include "storage.h"

namespace heddle::torch_backend {
namespace {

void free_bytes(void* context) { delete static_cast<Tensor*>(context); }

at::Tensor alias(c10::Storage storage, const at::Tensor& like, c10::DispatchKey key) {
  auto made = make_tensor<c10::TensorImpl>(std::move(storage), c10::DispatchKeySet(key), like.dtype());
  made.unsafeGetTensorImpl()->set_storage_offset(like.storage_offset());
  made.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  return made;
}

// What a copy moves: no element twice, complex numbers as pairs, and memory as it lies, without the marks
// that its values are negated or conjugate ones.
at::Tensor elements_of(const at::Tensor& tensor) {
  std::vector<int64_t> sizes = tensor.sizes().vec(), strides = tensor.strides().vec();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (strides[i] == 0) sizes[i] = std::min<int64_t>(sizes[i], 1);
  }
  int64_t offset = tensor.storage_offset();
  if (tensor.is_complex()) {
    for (int64_t& each : strides) each *= 2;
    sizes.push_back(2), strides.push_back(1);
    offset *= 2;
  }
  auto made = make_tensor<c10::TensorImpl>(
      c10::Storage(tensor.storage()),
      c10::DispatchKeySet(tensor.is_cpu() ? c10::DispatchKey::CPU : c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(c10::toRealValueType(tensor.scalar_type())));
  made.unsafeGetTensorImpl()->set_storage_offset(offset);
  made.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return made;
}

size_t first_byte(const at::Tensor& tensor) {
  return static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
}

size_t end_byte(const at::Tensor& tensor) {
  return tensor.numel() == 0 ? first_byte(tensor)
                             : computeStorageNbytes(tensor.sizes(), tensor.strides(), tensor.element_size(),
                                                    static_cast<size_t>(tensor.storage_offset()));
}

}  // namespace

HostTensors::HostTensors(c10::Device device)
    : device_(device), is_in_place_(translated([&] { return device_at(device.index()).unified_memory(); })) {}

at::Tensor HostTensors::of(const at::Tensor& tensor, Use use) {
  if (!tensor.defined() || tensor.device() != device_) return tensor;
  at::Tensor made = alias(is_in_place_ ? in_place(tensor.storage(), use != Use::read) : copy_of(tensor),
                          tensor, c10::DispatchKey::CPU);
  made.unsafeGetTensorImpl()->_set_conj(tensor.is_conj());
  made.unsafeGetTensorImpl()->_set_neg(tensor.is_neg());
  if (!is_in_place_) fetched_.push_back({tensor, made, use != Use::written});
  return made;
}

c10::Storage HostTensors::in_place(const c10::Storage& storage, bool written) {
  return translated([&] {
    Tensor bytes = bytes_of(storage);
    if (storage.nbytes() != 0) {  // both wait
      if (written) {
        bytes.mutable_data();
      } else {
        bytes.data();
      }
    }
    for (const auto& [theirs, made] : made_) {
      if (theirs == storage.unsafeGetStorageImpl()) return made;
    }
    void* const data = const_cast<void*>(bytes.address());
    c10::DataPtr kept(data, new Tensor(std::move(bytes)), &free_bytes, c10::Device(c10::kCPU));
    c10::Storage made(c10::Storage::use_byte_size_t(), storage.nbytes(), std::move(kept),
                      c10::GetAllocator(c10::kCPU), /*resizable=*/true);
    made_.emplace_back(storage.unsafeGetStorageImpl(), made);
    return made;
  });
}

// Without memory until fetch(), which knows all that lies in it.
c10::Storage HostTensors::copy_of(const at::Tensor& tensor) {
  auto* const theirs = tensor.storage().unsafeGetStorageImpl();
  auto found = std::ranges::find(copied_, theirs, &Copied::theirs);
  if (found == copied_.end()) {
    c10::Storage made(c10::Storage::use_byte_size_t(), 0, c10::DataPtr(nullptr, c10::Device(c10::kCPU)),
                      c10::GetAllocator(c10::kCPU), /*resizable=*/true);
    found = copied_.insert(found, {theirs, std::move(made), SIZE_MAX, 0});
  }
  found->begin = std::min(found->begin, first_byte(tensor));
  found->end = std::max(found->end, end_byte(tensor));
  return found->made;
}

// Of a storage, only what the tensors reach. What lies between their elements is never touched, and takes
// addresses rather than memory.
void HostTensors::lay_out() {
  constexpr size_t kLargestElement = 16;
  for (Copied& each : copied_) {
    each.begin -= each.begin % kLargestElement;
    const size_t bytes = each.end - each.begin;
    each.made.set_data_ptr_noswap(c10::GetAllocator(c10::kCPU)->allocate(bytes));
    each.made.set_nbytes(bytes);
  }
  for (const Fetched& each : fetched_) {
    const auto storage =
        std::ranges::find(copied_, each.theirs.storage().unsafeGetStorageImpl(), &Copied::theirs);
    each.made.unsafeGetTensorImpl()->set_storage_offset(
        static_cast<int64_t>((first_byte(each.theirs) - storage->begin) / each.theirs.element_size()));
  }
}

void HostTensors::fetch() {
  if (is_in_place_) return;
  lay_out();
  struct Arriving {
    at::Tensor target;
    Tensor source, pinned;
  };
  std::vector<Arriving> arriving;
  translated([&] {
    const Device& device = device_at(device_.index());
    for (const Fetched& each : fetched_) {
      if (!each.is_read || each.theirs.numel() == 0) continue;
      const Tensor source = to_heddle(elements_of(each.theirs));
      const Tensor pinned = Tensor::pinned(source.dtype(), source.shape(), device);
      const Activity activity("copy", device_.index(), Doing::copy);
      current_stream_of(device_.index()).copy(source, pinned);
      arriving.push_back({elements_of(each.made), source, pinned});
    }
    for (const Arriving& each : arriving) {
      auto* const values = const_cast<void*>(each.pinned.data());
      each.source.wait();  // throws the mistake of the run that made the values
      each.target.copy_(at::from_blob(values, each.target.sizes(), each.target.options()));
    }
  });
}

at::Tensor HostTensors::give(const at::Tensor& result) const {
  if (!result.defined() || !result.device().is_cpu()) return result;
  const auto options = result.options().device(device_);
  const bool is_dense = result.is_non_overlapping_and_dense();
  at::Tensor made = is_dense ? at::empty_strided(result.sizes(), result.strides(), options)
                             : at::empty(result.sizes(), options);
  if (made.numel() == 0) return made;
  if (is_in_place_) {
    HostTensors(device_).of(made, Use::written).copy_(result);
  } else {
    put((is_dense ? result : result.contiguous()).resolve_conj().resolve_neg(), made);
  }
  return made;
}

void HostTensors::take_back_shape(const at::Tensor& host, const at::Tensor& target) const {
  if (host.sizes() == target.sizes() && host.strides() == target.strides()) return;
  const size_t bytes = host.numel() == 0
                           ? 0
                           : computeStorageNbytes(host.sizes(), host.strides(), host.element_size(),
                                                  static_cast<size_t>(target.storage_offset()));
  if (bytes > target.storage().nbytes()) resize_storage(target.storage(), bytes);
  target.unsafeGetTensorImpl()->set_sizes_and_strides(host.sizes(), host.strides());
}

void HostTensors::take_back(const at::Tensor& host, const at::Tensor& target) {
  if (host.numel() == 0) return;
  if (!is_in_place_) return put(host, target);
  const bool moved = host.storage().data() != bytes_of(target.storage()).address();
  if (moved) HostTensors(device_).of(target, Use::written).copy_(host);
}

// Of the same strides and marks.
void HostTensors::put(const at::Tensor& host, const at::Tensor& target) const {
  translated([&] {
    const Activity activity("copy", device_.index(), Doing::copy);
    current_stream_of(device_.index()).copy(to_heddle(elements_of(host)), to_heddle(elements_of(target)));
  });
}

}  // namespace heddle::torch_backend
