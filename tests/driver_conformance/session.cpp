#include "session_fixture.h"

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "device/row_faults.h"

namespace heddle::conformance {
namespace {

Ref<device::Buffer> make_buffer(device::Device& device, uint64_t bytes) {
  Result<std::unique_ptr<device::Memory>> memory = device.allocate(bytes, NoLocksHeld());
  REQUIRE_MESSAGE(memory.ok(), to_string(memory.status()));
  REQUIRE((*memory)->host() != nullptr);  // drivers without unified memory need copies here
  return std::make_shared<device::Buffer>(std::move(*memory), bytes, nullptr);
}

int64_t position(const device::View& view, int64_t index) {
  int64_t at = 0;
  for (size_t axis = view.extents.rank(); axis-- > 0;) {
    at += index % view.extents[axis] * view.strides[axis];
    index /= view.extents[axis];
  }
  return at * ir::size_of(view.dtype);
}

}  // namespace

device::View empty_like(device::Device& device, ir::DType dtype, const ir::Extents& extents) {
  const uint64_t bytes =
      std::max<uint64_t>(static_cast<uint64_t>(extents.elements() * ir::size_of(dtype)), 64);
  Ref<device::Buffer> buffer = make_buffer(device, bytes);
  std::byte* data = buffer->host();
  std::memset(data, 0xa5, bytes);
  return device::View::contiguous(std::move(buffer), data, dtype, extents);
}

device::View upload(device::Device& device, const ir::Tensor& tensor) {
  device::View view = empty_like(device, tensor.dtype(), tensor.extents());
  if (tensor.bytes() > 0) std::memcpy(view.data, tensor.data(), static_cast<size_t>(tensor.bytes()));
  return view;
}

device::View upload_strided(device::Device& device, const ir::Tensor& tensor) {
  const ir::Extents& extents = tensor.extents();
  device::View view{nullptr, nullptr, tensor.dtype(), extents, extents};
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
  view.buffer = make_buffer(device, static_cast<uint64_t>((next + 2) * size));
  view.data = view.buffer->host() + start * size;
  const auto* from = static_cast<const std::byte*>(tensor.data());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    std::memcpy(view.data + position(view, i), from + i * size, static_cast<size_t>(size));
  }
  return view;
}

ir::Tensor download(const device::View& view) {
  ir::Tensor tensor = ir::Tensor::zeros(view.dtype, view.extents);
  const int64_t size = ir::size_of(view.dtype);
  auto* to = static_cast<std::byte*>(tensor.mutable_data());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    std::memcpy(to + i * size, view.data + position(view, i), static_cast<size_t>(size));
  }
  return tensor;
}

Session::Session(device::Device& device) : device_(device) {
  auto queue = device.make_queue(NoLocksHeld());
  REQUIRE_MESSAGE(queue.ok(), to_string(queue.status()));
  auto slot = device.make_slot(NoLocksHeld());
  REQUIRE_MESSAGE(slot.ok(), to_string(slot.status()));
  queue_ = std::move(*queue);
  slot_ = std::move(*slot);
}

Status Session::submit(const device::CommandList& list) {
  const uint64_t value = next_value();
  const Status status = queue_->submit(list, value, NoLocksHeld());
  HEDDLE_TRY(queue_->timeline()->wait(value, Deadline::never()));
  return status;
}

Result<std::vector<ir::Tensor>> Session::run(const Ref<const device::Program>& program,
                                             const std::vector<device::View>& inputs) {
  HEDDLE_TRY(slot_->prepare(*program, NoLocksHeld()));
  std::vector<device::View> outputs;
  for (const device::ConcreteType& type : program->outputs())
    outputs.push_back(empty_like(device_, type.dtype, type.extents));
  device::CommandList list;
  const auto faults = std::make_shared<device::RowFaults>(0);
  list.run(program, *slot_, inputs, outputs, device_.traits().synchronous ? nullptr : faults);
  HEDDLE_TRY(submit(list));
  HEDDLE_TRY(faults->whole());
  std::vector<ir::Tensor> results;
  for (const device::View& view : outputs) results.push_back(download(view));
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

ir::Tensor random_tensor(ir::DType dtype, const ir::Extents& extents, uint32_t seed, double low,
                         double high) {
  std::mt19937 random(seed * 7919 + 17 * static_cast<uint32_t>(extents.elements()));
  std::uniform_real_distribution<double> real(low, high);
  ir::Tensor tensor = ir::Tensor::zeros(dtype, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = real(random);
    if (dtype == ir::DType::kBool) {
      tensor.set(i, x > (low + high) / 2 ? 1 : 0);
    } else {
      tensor.set(i, ir::is_float(dtype) ? x : std::floor(x));
    }
  }
  return tensor;
}

std::string difference(const ir::Tensor& got, const ir::Tensor& wanted, Tolerance tolerance) {
  if (!(got.type() == wanted.type())) return text("the type is ", got.type(), ", not ", wanted.type());
  for (int64_t i = 0; i < wanted.elements(); ++i) {
    if (!ir::is_float(wanted.dtype())) {
      if (got.get_i64(i) != wanted.get_i64(i))
        return text("element ", i, " is ", got.get_i64(i), ", not ", wanted.get_i64(i));
      continue;
    }
    const double a = got.get(i), b = wanted.get(i);
    if (!test::is_close(a, b, tolerance)) return text("element ", i, " is ", a, ", not ", b);
  }
  return "";
}

bool same_bits(const ir::Tensor& a, const ir::Tensor& b) {
  return a.type() == b.type() &&
         (a.bytes() == 0 || std::memcmp(a.data(), b.data(), static_cast<size_t>(a.bytes())) == 0);
}

}  // namespace heddle::conformance
