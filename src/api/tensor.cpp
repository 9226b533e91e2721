// tensor.cpp: Tensor: views of the caller's memory and of results.
#include <algorithm>
#include <cstring>

#include "api/internals.h"
#include "api/process_devices.h"
#include "device/buffer.h"
#include "ir/tensor.h"

namespace heddle {
namespace {

const device::View& view_of(const Tensor& tensor) { return Internals::view(tensor); }

// The work that still writes this memory, or with `readers` touches it at all.
std::vector<device::Point> users(const device::View& view, bool readers) {
  std::vector<device::Point> points;
  if (view.buffer == nullptr) return points;
  check(view.buffer->readable());
  view.buffer->collect_waits(readers, nullptr, points);
  return points;
}

std::byte* host_address(const device::View& view) {
  if (view.host() != nullptr || view.bytes() == 0) return view.host();
  throw Error(ErrorCode::unsupported,
              "the host cannot address this tensor's memory, which is the device's own; to_host() copies it");
}

ir::Extents strides_of(std::span<const int64_t> strides, std::span<const int64_t> shape) {
  if (strides.size() != shape.size()) {
    throw Error(ErrorCode::invalid,
                text(strides.size(), " strides for a shape of ", shape.size(), " dimensions"));
  }
  return ir::Extents(strides);
}

// Bytes before and after the first element that a view reaches; invalid: more than there are addresses.
Result<std::pair<int64_t, int64_t>> reach(const device::View& view) {
  if (view.extents.elements() == 0) return std::pair<int64_t, int64_t>(0, 0);
  const auto size = static_cast<int64_t>(ir::size_of(view.dtype));
  const int64_t most = ir::kMaxBytes / size;
  int64_t first = 0, last = 0;
  for (size_t i = 0; i < view.extents.rank(); ++i) {
    int64_t span = 0;
    int64_t& end = view.strides[i] < 0 ? first : last;
    if (__builtin_mul_overflow(view.extents[i] - 1, view.strides[i], &span) ||
        __builtin_add_overflow(end, span, &end) || first < -most || last >= most) {
      return Status::invalid("strides of ", to_string(view.strides), " for a shape of ",
                             to_string(view.extents), " reach further than memory does");
    }
  }
  return std::pair(first * size, (last + 1) * size);
}

}  // namespace

std::string_view name(DType dtype) { return ir::name(to_ir(dtype)); }
size_t size_of(DType dtype) { return static_cast<size_t>(ir::size_of(to_ir(dtype))); }

ir::Extents to_extents(std::span<const int64_t> shape, DType dtype) {
  if (shape.size() > ir::kMaxRank) {
    throw Error(ErrorCode::invalid,
                text("a shape of ", shape.size(), " dimensions; at most ", ir::kMaxRank, " are possible"));
  }
  take(ir::checked_elements(shape, to_ir(dtype)));
  return ir::Extents(shape);
}

Tensor Internals::make_tensor(device::View view, std::shared_ptr<const void> keep, bool writable) {
  Tensor tensor;
  tensor.rep_ = std::make_shared<Internals::TensorRep>(
      Internals::TensorRep{std::move(view), std::move(keep), writable});
  return tensor;
}

bool Internals::keeps_all(const Device& device, std::span<const Tensor> tensors) {
  if (runtime(device).device().traits().synchronous) return false;
  return std::all_of(tensors.begin(), tensors.end(), [](const Tensor& each) {
    const device::View& view = each.rep_->view;
    return view.buffer != nullptr || each.rep_->keep != nullptr || view.bytes() == 0;
  });
}

std::shared_ptr<const void> Internals::keep_all(const Device& device, std::span<const Tensor> tensors) {
  if (!keeps_all(device, tensors)) return nullptr;
  auto owners = std::make_shared<std::vector<std::shared_ptr<const void>>>();
  for (const Tensor& each : tensors) {
    if (each.rep_->view.buffer == nullptr) owners->push_back(each.rep_->keep);
  }
  return owners;
}

const device::View& Internals::view(const Tensor& tensor) {
  if (tensor.rep_ == nullptr)
    throw Error(ErrorCode::invalid, "this Tensor is empty: it was made by Tensor() and never assigned");
  return tensor.rep_->view;
}

Tensor Tensor::zeros(DType dtype, const Shape& shape) {
  auto bytes = std::make_shared<ir::Tensor>(take(ir::Tensor::make(to_ir(dtype), to_extents(shape, dtype))));
  auto* data = static_cast<std::byte*>(bytes->mutable_data());
  return Internals::make_tensor(device::View::contiguous(data, bytes->dtype(), bytes->extents()), bytes);
}

Tensor Tensor::copy_of(const Shape& shape, DType dtype, const void* values, size_t count) {
  Tensor tensor = zeros(dtype, shape);
  if (static_cast<int64_t>(count) != tensor.elements()) {
    throw Error(ErrorCode::invalid, text(count, " values for shape ", to_string(tensor.rep_->view.extents),
                                         ", which has ", tensor.elements(), " elements"));
  }
  if (count > 0) std::memcpy(tensor.rep_->view.host(), values, count * heddle::size_of(dtype));
  return tensor;
}

Tensor Tensor::borrow(const void* data, DType dtype, const Shape& shape, const Shape& strides,
                      std::shared_ptr<const void> keep) {
  Tensor tensor = borrow_mutable(const_cast<void*>(data), dtype, shape, strides, std::move(keep));
  tensor.rep_->writable = false;
  return tensor;
}

Tensor Tensor::borrow_mutable(void* data, DType dtype, const Shape& shape, const Shape& strides,
                              std::shared_ptr<const void> keep) {
  const ir::Extents extents = to_extents(shape, dtype);
  if (data == nullptr && extents.elements() > 0)
    throw Error(ErrorCode::invalid, "the data of a borrowed tensor is null");
  device::View view = device::View::contiguous(static_cast<std::byte*>(data), to_ir(dtype), extents);
  if (!strides.empty()) {
    view.strides = strides_of(strides, shape);
    take(reach(view));
  }
  return Internals::make_tensor(std::move(view), std::move(keep));
}

Tensor Tensor::lend(void* data, DType dtype, const Shape& shape, const Shape& strides, const Device& device,
                    std::shared_ptr<const void> keep, void* stream) {
  const ir::Extents extents = to_extents(shape, dtype);
  if (extents.elements() == 0) return empty(dtype, shape, device);
  device::View view = device::View::contiguous(nullptr, to_ir(dtype), extents);
  if (!strides.empty()) view.strides = strides_of(strides, shape);
  const auto [first, last] = take(reach(view));
  device::ForeignMemory memory{reinterpret_cast<uint64_t>(data) + static_cast<uint64_t>(first),
                               static_cast<uint64_t>(last - first), std::move(keep)};
  view.buffer = take(Internals::runtime(device).lend(std::move(memory), stream));
  view.offset = static_cast<uint64_t>(-first);
  return Internals::make_tensor(std::move(view));
}

namespace {

runtime::Runtime& runtime_of(const std::optional<Device>& device) {
  if (!device)
    throw Error(ErrorCode::invalid, "the tensor is in no memory of a device that is open: nothing orders it");
  return Internals::runtime(*device);
}

}  // namespace

void Tensor::hand_to(void* stream) const { check(runtime_of(device()).hand_to(stream, view_of(*this))); }
void Tensor::released_by(void* stream) const {
  check(runtime_of(device()).released_by(stream, view_of(*this)));
}

Tensor Tensor::empty(DType dtype, const Shape& shape, const Device& device) {
  return Internals::make_tensor(
      take(Internals::runtime(device).allocate(to_ir(dtype), to_extents(shape, dtype))));
}

Tensor Tensor::pinned(DType dtype, const Shape& shape, const Device& device) {
  return Internals::make_tensor(take(Internals::runtime(device).allocate(
      to_ir(dtype), to_extents(shape, dtype), device::MemoryKind::staging)));
}

void Internals::set_window(device::View& view, const Model::Window& window) {
  const device::View& from = view_of(window.memory);
  const int64_t offset = window.offset;
  view.dtype = to_ir(window.dtype);
  view.extents = to_extents(window.shape, window.dtype);
  view.strides = strides_of(window.strides, window.shape);
  if (from.buffer == nullptr) {
    view.callers = from.callers + offset;
    return;
  }
  const auto [first, last] = take(reach(view));
  const auto start = static_cast<int64_t>(from.offset), held = static_cast<int64_t>(from.buffer->bytes());
  if (offset < -start - first || offset > held - start - last) {
    throw Error(ErrorCode::invalid,
                text("a view of ", to_string(view.extents), ' ', offset, " bytes after byte ", start,
                     " leaves its tensor's memory of ", held, " bytes"));
  }
  view.offset = static_cast<uint64_t>(start + offset);
}

Tensor Internals::make_view(const Model::Window& window) {
  device::View view;
  set_window(view, window);
  const TensorRep& whole = *window.memory.rep_;
  view.buffer = whole.view.buffer;
  return make_tensor(std::move(view), whole.keep, whole.writable);
}

Tensor Tensor::view(DType dtype, const Shape& shape, const Shape& strides, int64_t offset) const {
  return Internals::make_view({*this, dtype, shape, strides, offset});
}

DType Tensor::dtype() const { return to_public(view_of(*this).dtype); }
Shape Tensor::shape() const { return {view_of(*this).extents.begin(), view_of(*this).extents.end()}; }
Shape Tensor::strides() const { return {view_of(*this).strides.begin(), view_of(*this).strides.end()}; }
int64_t Tensor::elements() const { return view_of(*this).extents.elements(); }
bool Tensor::is_contiguous() const { return view_of(*this).is_contiguous(); }

const void* Tensor::data() const {
  wait();
  return host_address(view_of(*this));
}

void* Tensor::mutable_data() {
  const device::View& view = view_of(*this);
  if (!rep_->writable)
    throw Error(ErrorCode::invalid,
                "this tensor borrows memory that it may only read; copy it with contiguous() or Tensor::of");
  for (const device::Point& point : users(view, true))
    check(point.timeline->wait(point.value, Deadline::never()));
  if (view.buffer != nullptr) view.buffer->forget_writer();
  return host_address(view);
}

const void* Tensor::address() const { return reinterpret_cast<const void*>(view_of(*this).address()); }

const void* Tensor::checked_data(DType dtype) const {
  const device::View& view = view_of(*this);
  if (view.dtype != to_ir(dtype)) {
    throw Error(ErrorCode::invalid,
                text("values of ", name(dtype), " were asked for; the tensor holds ", ir::name(view.dtype)));
  }
  if (!view.is_contiguous())
    throw Error(ErrorCode::invalid,
                "values() needs a contiguous tensor; this one is strided: use contiguous()");
  wait();
  return host_address(view);
}

bool Tensor::ready() const {
  for (const device::Point& point : users(view_of(*this), false)) {
    point.timeline->want(point.value);
    if (point.timeline->is_ours()) point.timeline->look();
    if (!point.timeline->done(point.value)) return false;
  }
  return true;
}

void Tensor::wait(Timeout timeout) const {
  for (const device::Point& point : users(view_of(*this), false))
    check(point.timeline->wait(point.value, to_deadline(timeout)));
  const device::View& view = view_of(*this);
  if (view.buffer != nullptr) check(view.buffer->fault());  // of the run that should have made it
}

void Tensor::record_stream(const Stream& stream) const {
  check(Internals::runtime(stream.device()).ours());
  const device::View& view = view_of(*this);
  const runtime::Stream& s = Internals::stream(stream);
  if (view.buffer != nullptr) view.buffer->mark_read(s.record().point());
}

Tensor Tensor::contiguous() const {
  const device::View& view = view_of(*this);
  if (view.is_contiguous()) return *this;
  if (!on_host()) return to_host();
  wait();
  Tensor copy = zeros(to_public(view.dtype), shape());
  device::copy_view(view, copy.rep_->view);
  return copy;
}

bool Tensor::on_host() const { return view_of(*this).host() != nullptr || view_of(*this).bytes() == 0; }

std::optional<Device> Tensor::device() const {
  const device::View& view = view_of(*this);
  if (view.buffer == nullptr) return std::nullopt;
  return process_devices::of_maker(view.buffer->memory().maker());
}

Tensor Tensor::to_host() const {
  const device::View& view = view_of(*this);
  wait();
  if (on_host()) return *this;
  const std::optional<Device> owner = device();
  if (!owner)
    throw Error(ErrorCode::unavailable, "the device whose memory this tensor is in is closed or gone");
  Tensor copy = zeros(to_public(view.dtype), shape());
  const Stream stream = current_stream(*owner);
  stream.copy(*this, copy);
  stream.record().wait();
  return copy;
}

}  // namespace heddle
