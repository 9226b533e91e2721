#include "session_fixture.h"

#include <doctest/doctest.h>

#include <cstring>

#include "device/plain_source_fixture.h"
#include "device/row_faults.h"

namespace heddle::conformance {

using device::MemoryKind;
using device::View;

namespace {

MemoryKind kind_of_operands = MemoryKind::device;

Ref<device::Buffer> make_buffer(device::Device& device, uint64_t bytes, MemoryKind kind) {
  auto buffer = device::PlainSource(device).allocate(bytes, kind);
  REQUIRE_MESSAGE(buffer.ok(), to_string(buffer.status()));
  return *buffer;
}

View in_staging(device::Device& device, ir::DType dtype, const ir::Extents& extents) {
  const auto bytes = static_cast<uint64_t>(extents.elements() * ir::size_of(dtype));
  const MemoryKind kind = device.traits().unified_memory ? MemoryKind::device : MemoryKind::staging;
  View view = View::contiguous(make_buffer(device, bytes, kind), dtype, extents);
  REQUIRE(view.host() != nullptr);
  return view;
}

// By a command on a queue of its own.
void copy(device::Device& device, const View& from, const View& to) {
  device::CommandList list;
  list.copy(from, to);
  const Status copied = Session(device).submit(list);
  REQUIRE_MESSAGE(copied.ok(), to_string(copied));
}

}  // namespace

void put_operands_in(MemoryKind kind) { kind_of_operands = kind; }

View empty_like(device::Device& device, ir::DType dtype, const ir::Extents& extents) {
  const auto bytes = static_cast<uint64_t>(extents.elements() * ir::size_of(dtype));
  View view = View::contiguous(make_buffer(device, bytes, kind_of_operands), dtype, extents);
  View all = View::contiguous(view.buffer, ir::DType::kU8, {static_cast<int64_t>(bytes)});
  device::CommandList list;
  list.fill(all, 0xa5);
  REQUIRE(Session(device).submit(list).ok());
  return view;
}

View upload(device::Device& device, const ir::Tensor& tensor) {
  const View staged = in_staging(device, tensor.dtype(), tensor.extents());
  if (tensor.bytes() > 0) std::memcpy(staged.host(), tensor.data(), static_cast<size_t>(tensor.bytes()));
  View view =
      View::contiguous(make_buffer(device, staged.bytes(), kind_of_operands), staged.dtype, staged.extents);
  copy(device, staged, view);
  return view;
}

View upload_strided(device::Device& device, const ir::Tensor& tensor) {
  const ir::Extents& extents = tensor.extents();
  View view{nullptr, 0, nullptr, tensor.dtype(), extents, extents};
  int64_t next = 2, start = 0;
  for (size_t axis = 0; axis < extents.rank(); ++axis) {
    view.strides[axis] = next;
    next *= extents[axis] + 1;
  }
  if (extents.rank() > 0 && tensor.elements() > 0) {
    const size_t last = extents.rank() - 1;
    start = view.strides[last] * (extents[last] - 1);
    view.strides[last] = -view.strides[last];
  }
  const int64_t size = ir::size_of(tensor.dtype());
  view.buffer = make_buffer(device, static_cast<uint64_t>((next + 2) * size), kind_of_operands);
  view.offset = static_cast<uint64_t>(start * size);
  copy(device, upload(device, tensor), view);
  return view;
}

ir::Tensor download(device::Device& device, const View& view) {
  ir::Tensor tensor = ir::Tensor::zeros(view.dtype, view.extents);
  const View staged = in_staging(device, view.dtype, view.extents);
  copy(device, view, staged);
  if (tensor.bytes() > 0)
    std::memcpy(tensor.mutable_data(), staged.host(), static_cast<size_t>(tensor.bytes()));
  return tensor;
}

Session::Session(device::Device& device) : device_(device) {
  auto queue = device.make_queue(NoLocksHeld());
  REQUIRE_MESSAGE(queue.ok(), to_string(queue.status()));
  queue_ = std::move(*queue);
}

Result<Ref<device::Buffer>> Session::arena_for(const device::Program& program) {
  if (arena_ == nullptr || arena_->bytes() < program.arena_bytes()) {
    HEDDLE_TRY_ASSIGN(arena_, device::arena_for(device_, program));
  }
  return arena_;
}

Status Session::submit(const device::CommandList& list) {
  const uint64_t value = next_value();
  const Status status = queue_->submit(list, value, NoLocksHeld());
  HEDDLE_TRY(queue_->timeline()->wait(value, Deadline::never()));
  return status;
}

Result<std::vector<ir::Tensor>> Session::run(const Ref<const device::Program>& program,
                                             const std::vector<device::View>& inputs) {
  HEDDLE_TRY_ASSIGN(const Ref<device::Buffer> arena, arena_for(*program));
  std::vector<device::View> outputs;
  for (const ir::ConcreteType& type : program->outputs())
    outputs.push_back(empty_like(device_, type.dtype, type.extents));
  device::CommandList list;
  const auto faults = std::make_shared<device::RowFaults>(0);
  list.run(program, arena, inputs, outputs, device_.traits().synchronous ? nullptr : faults);
  HEDDLE_TRY(submit(list));
  HEDDLE_TRY(faults->whole());
  std::vector<ir::Tensor> results;
  for (const device::View& view : outputs) results.push_back(download(device_, view));
  return results;
}

Result<std::vector<ir::Tensor>> Session::run(const Ref<const device::Program>& program,
                                             const std::vector<ir::Tensor>& inputs) {
  std::vector<device::View> views;
  for (const ir::Tensor& tensor : inputs) views.push_back(upload(device_, tensor));
  return run(program, views);
}

Result<Ref<const device::Program>> compile(const device::Module& module,
                                           const std::vector<ir::Tensor>& inputs) {
  std::vector<ir::Extents> extents;
  for (const ir::Tensor& tensor : inputs) extents.push_back(tensor.extents());
  return module.compile(extents, NoLocksHeld());
}

}  // namespace heddle::conformance
