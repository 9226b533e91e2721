// memory.cpp: making, viewing, resizing and copying tensors: operators that compute nothing.
#include <ATen/InferSize.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "activities.h"
#include "eager.h"
#include "pinned.h"
#include "private_names.h"
#include "process_end.h"
#include "storage.h"

namespace heddle::torch_backend {

void resize_storage(const c10::Storage& storage, size_t bytes) {
  auto* impl = storage.unsafeGetStorageImpl();
  const c10::DeviceIndex index = storage.device().index();
  const FreeGil without_gil;  // as in storage.cpp
  translated([&] {
    const Tensor former = bytes_of(storage);
    Tensor grown = Tensor::empty(DType::u8, {static_cast<int64_t>(bytes)}, device_at(index));
    const auto kept = static_cast<int64_t>(std::min(bytes, impl->nbytes()));
    if (kept > 0) {
      current_stream_of(index).copy(former.view(DType::u8, {kept}, {1}, 0),
                                    grown.view(DType::u8, {kept}, {1}, 0));
    }
    impl->set_data_ptr(data_of(std::move(grown), index));
    impl->set_nbytes(bytes);
  });
}

namespace {

c10::ScalarType type_or_default(std::optional<c10::ScalarType> type) {
  return type.value_or(c10::get_default_dtype_as_scalartype());
}

c10::DeviceIndex index_or_current(std::optional<c10::Device> device) {
  return device ? index_of(*device) : current_device();
}

class OnDevice {  // the allocator allocates on the current device
 public:
  explicit OnDevice(c10::DeviceIndex index) : former_(exchange_device(index)) {}
  ~OnDevice() { exchange_device(former_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  const c10::DeviceIndex former_;
};

at::Tensor empty_memory_format(at::IntArrayRef sizes, std::optional<c10::ScalarType> type,
                               std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                               std::optional<bool> /*pinned*/, std::optional<c10::MemoryFormat> format) {
  const OnDevice on(index_or_current(device));
  check_type(type_or_default(type));
  return empty_generic(sizes, c10::GetAllocator(kType), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
                       type_or_default(type), format);
}

at::Tensor empty_strided(at::IntArrayRef sizes, at::IntArrayRef strides, std::optional<c10::ScalarType> type,
                         std::optional<c10::Layout> /*layout*/, std::optional<c10::Device> device,
                         std::optional<bool> /*pinned*/) {
  const OnDevice on(index_or_current(device));
  check_type(type_or_default(type));
  return empty_strided_generic(sizes, strides, c10::GetAllocator(kType),
                               c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), type_or_default(type));
}

// ---- copies

// Neither is in the host's reach. The second copy begins when the first one is over.
void copy_through_pinned_memory(const Tensor& source, c10::DeviceIndex first, const Tensor& target,
                                c10::DeviceIndex second) {
  const Tensor pinned = Tensor::pinned(source.dtype(), source.shape(), device_at(first));
  {
    const Activity activity("copy", first, Doing::copy);
    current_stream_of(first).copy(source, pinned);
  }
  const Activity activity("copy", second, Doing::copy);
  current_stream_of(second).copy(pinned, target);
}

// The target's stream makes the one copy. Where the host does not reach the source, the source's stream does.
// The copy waits for what both current streams were given, and the target's stream waits for the copy, as on
// CUDA.
void copy_between_devices(const at::Tensor& from, const at::Tensor& to) {
  const Writes writes({to});
  const FreeGil without_gil;
  translated([&] {
    const c10::DeviceIndex first = from.device().index(), second = to.device().index();
    const Tensor source = to_heddle(from), target = to_heddle(to);
    const bool is_pulled = source.on_host();
    if (!is_pulled && !target.on_host()) return copy_through_pinned_memory(source, first, target, second);
    const Stream &here = current_stream_of(first), &there = current_stream_of(second);
    const Stream &copies = is_pulled ? there : here, &follows = is_pulled ? here : there;
    copies.wait(follows.record());
    {
      const Activity activity("copy", is_pulled ? second : first, Doing::copy);
      copies.copy(source, target);
    }
    if (!is_pulled) there.wait(here.record());
  });
}

void copy_same_type(const at::Tensor& from, const at::Tensor& to, bool non_blocking) {
  const c10::DeviceIndex index = (to.device().type() == kType ? to : from).device().index();
  if (from.device().type() == kType && from.device().index() != index) {
    copy_between_devices(from, to);
    return;
  }
  const Writes writes({to});
  const FreeGil without_gil;
  translated([&] {
    std::optional<Tensor> pinned_source = pinned_view(from, CopySide::source);
    std::optional<Tensor> pinned_target = pinned_view(to, CopySide::target);
    const Tensor source = pinned_source ? *pinned_source : to_heddle(from);
    const Tensor target = pinned_target ? *pinned_target : to_heddle(to);
    {
      const Activity activity("copy", index, Doing::copy);
      current_stream_of(index).copy(source, target);
    }
    if (non_blocking) return;
    if (pinned_source) pinned_source->mutable_data();
    if (pinned_target) pinned_target->mutable_data();
    if (pinned_target) source.wait();  // throws the mistake of the run that made the values
  });
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl();
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& target, bool non_blocking) {
  if (target.numel() == 0) return target;
  at::assert_no_internal_overlap(target);
  at::assert_no_partial_overlap(target, self);
  at::Tensor from = self.sizes() == target.sizes() ? self : self.expand(target.sizes());
  if (from.is_complex() != target.is_complex()) from = from.cpu().to(target.scalar_type());
  if (target.is_complex()) {
    if (from.scalar_type() != target.scalar_type()) from = from.cpu().to(target.scalar_type());
    copy_from(at::view_as_real(from), at::view_as_real(target), non_blocking);
    return target;
  }
  if (from.scalar_type() != target.scalar_type())
    from = from.device().type() == kType ? cast(from, target.scalar_type()) : from.to(target.scalar_type());
  // Of one storage, they may overlap.
  if (overlap(from, target) && !from.is_same(target)) {
    at::Tensor apart = empty(from.sizes(), from.scalar_type(), target.device().index());
    copy_same_type(from, apart, non_blocking);
    from = apart;
  }
  if (!from.is_same(target)) copy_same_type(from, target, non_blocking);
  return target;
}

// The same memory without the marks that its values are negated or conjugate ones.
at::Tensor without_marks(const at::Tensor& tensor) {
  const at::Tensor positive = tensor.is_neg() ? at::_neg_view(tensor) : tensor;
  return positive.is_conj() ? at::_conj(positive) : positive;
}

at::Tensor conjugate(const at::Tensor& tensor) {
  if (!tensor.is_complex()) return tensor;
  const at::Tensor halves = at::view_as_real(tensor);
  return at::view_as_complex(at::stack({halves.select(-1, 0), at::neg(halves.select(-1, 1))}, -1));
}

// PyTorch's own ends in _copy_from, which its fallback for such views would resolve by a copy, for ever.
at::Tensor& copy_(at::Tensor& self, const at::Tensor& from, bool non_blocking) {
  at::Tensor target = without_marks(self);
  at::Tensor plain = without_marks(from);
  if (self.is_neg() != from.is_neg()) plain = at::neg(plain);
  if (self.is_conj() != from.is_conj()) plain = conjugate(plain);
  at::native::copy_(target, plain, non_blocking);
  return self;
}

// PyTorch's own has kernels for its own devices only.
at::Tensor& conj_physical_(at::Tensor& self) {
  return self.is_complex() ? self.copy_(conjugate(self)) : self;
}

at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& target) {
  target.resize_(self.sizes());
  return copy_from(self, target, false);
}

// ---- sizes

const at::Tensor& resize_(const at::Tensor& self, at::IntArrayRef sizes,
                          std::optional<c10::MemoryFormat> format) {
  auto* impl = self.unsafeGetTensorImpl();
  if (self.sizes() != sizes) {  // else its strides stay, too
    impl->set_sizes_contiguous(sizes);
    const size_t bytes = computeStorageNbytesContiguous(sizes, self.dtype().itemsize(),
                                                        static_cast<size_t>(self.storage_offset()));
    if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  }
  if (format) impl->empty_tensor_restride(*format);
  return self;
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef sizes,
                        at::IntArrayRef strides) {
  at::native::checkSetStorage(self, source, offset, sizes, strides);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  const size_t bytes =
      strides.empty() && !sizes.empty()
          ? computeStorageNbytesContiguous(sizes, self.dtype().itemsize(), static_cast<size_t>(offset))
          : computeStorageNbytes(sizes, strides, self.dtype().itemsize(), static_cast<size_t>(offset));
  if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  if (strides.empty()) {
    self.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    self.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  return self;
}

at::Tensor& set_whole_storage(at::Tensor& self, at::Storage source) {
  const auto length = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {length}, {});
}

at::Tensor& set_nothing(at::Tensor& self) {
  const at::Tensor none = empty({0}, self.scalar_type(), self.device().index());
  return set_storage(self, none.storage(), 0, {0}, {});
}

// PyTorch's copies later, behind the operators' back: nothing would order it with them.
at::Tensor lazy_clone(const at::Tensor& self) { return self.clone(); }

bool is_set_to(const at::Tensor& self, const at::Tensor& other) {
  return overlap(self, other) && self.storage_offset() == other.storage_offset() &&
         self.sizes() == other.sizes() && self.strides() == other.strides();
}

void record_stream(at::Tensor& self, c10::Stream stream) {
  translated([&] { bytes_of(self.storage()).record_stream(*NamedStream(stream)); });
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  return self.sizes() == other.sizes() && at::eq(self, other).all().item<bool>();
}

}  // namespace

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", at::native::as_strided_tensorimpl);
  m.impl("view", at::native::view);
  m.impl("view_as_complex", at::native::view_as_complex);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("copy_", copy_);
  m.impl("conj_physical_", conj_physical_);
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_", set_nothing);
  m.impl("_lazy_clone", lazy_clone);
  m.impl("is_set_to", is_set_to);
  m.impl("record_stream", record_stream);
  m.impl("equal", equal);
}

}  // namespace heddle::torch_backend
