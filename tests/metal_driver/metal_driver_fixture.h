// metal_driver_fixture.h: a Metal device on a fresh double, and models small enough to look through.
//
//   What       Devices may be made without one of the driver's defences: a test then shows what the fault
//              does.
//   Threads    One test at a time: the double's state is the process's.
#pragma once

#include <doctest/doctest.h>

#include <span>
#include <utility>
#include <vector>

#include "base/thread.h"
#include "device/plain_source_fixture.h"
#include "device/row_faults.h"
#include "drivers/metal/metal_device.h"
#include "ir/builder.h"
#include "tests/driver_conformance/session_fixture.h"
#include "tests/metal_double/control.h"

namespace heddle::metal::test {

using conformance::Session;
using ir::DType;
using ir::Extents;
using metal_double::Count;
using metal_double::Fault;

constexpr auto kStuckAfter = std::chrono::milliseconds(100);

template <class Holds>
void wait_until(Holds&& holds) {
  while (!holds()) give_way();
}

// As the watchdog does, again and again: a kernel may begin to be stuck after a rescue.
template <class Holds>
void rescue_until(Holds&& holds) {
  wait_until([&] {
    metal_double::end_stuck_kernels();
    return holds();
  });
}

// A double as a fresh process has it, before and after; nothing is in flight at the end.
struct Machine {
  Machine() { metal_double::reset(); }
  ~Machine() {
    rescue_until([] { return metal_double::count(Count::kSettled) >= metal_double::count(Count::kCommits); });
    metal_double::reset();
  }
};

inline Ref<device::Device> open(const Defences& defences = {}) {
  auto device = make_metal_device({defences, kStuckAfter});
  REQUIRE_MESSAGE(device.ok(), to_string(device.status()));
  return *device;
}

// Memory is unified: tensors come and go without a command that a test would count or a fault would hit.
inline device::View empty_like(device::Device& device, DType dtype, const Extents& extents) {
  const auto bytes = static_cast<uint64_t>(extents.elements() * ir::size_of(dtype));
  return device::View::contiguous(*device::PlainSource(device).allocate(bytes), dtype, extents);
}
inline device::View callers(const ir::Tensor& tensor) {
  return device::View::contiguous(static_cast<std::byte*>(const_cast<void*>(tensor.data())), tensor.dtype(),
                                  tensor.extents());
}
inline device::View upload(device::Device& device, const ir::Tensor& tensor) {
  device::View view = empty_like(device, tensor.dtype(), tensor.extents());
  copy_view(callers(tensor), view);
  return view;
}
inline ir::Tensor download(const device::View& view) {
  ir::Tensor tensor = ir::Tensor::zeros(view.dtype, view.extents);
  copy_view(view, callers(tensor));
  return tensor;
}

inline ir::Tensor numbers(const Extents& extents, double first, double step = 1) {
  ir::Tensor tensor = ir::Tensor::zeros(DType::kF32, extents);
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, first + step * static_cast<double>(i));
  return tensor;
}

// y[batch, 2] = table[indices[batch]]; the table has five rows.
inline Ref<const device::Program> lookup(device::Device& device, int64_t batch) {
  ir::Builder b;
  const ir::ValueId table = b.constant(numbers({5, 2}, 0)),
                    indices = b.input("indices", {DType::kI64, {ir::Dim::symbol("batch")}});
  b.output(*b.node("Gather", {table, indices}, {}, "lookup"));
  const auto module = device.load(*b.take(), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const std::vector<Extents> shapes = {{batch}};
  const auto program = (*module)->compile(shapes, NoLocksHeld());
  REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
  return *program;
}

struct Flood {
  Status last;        // what the last submission got
  uint64_t held = 0;  // submissions that Metal kept waiting
};

// Submits `lists` behind a kernel that never ends, on a thread of its own, until one is refused.
inline Flood flood(Session& session, std::span<const device::CommandList> lists) {
  Flood result;
  metal_double::set(Fault::kKernelNeverEnds, true);
  Atomic<bool> over{false};
  {
    const Thread submitter("submitter", [&] {
      for (const device::CommandList& list : lists) {
        result.last = session.queue().submit(list, session.next_value(), NoLocksHeld());
        if (!result.last.ok()) break;
      }
      over.store_release(true);
    });
    wait_until([&] { return over.load_acquire() || metal_double::count(Count::kQueueWaits) > 0; });
    result.held = metal_double::count(Count::kQueueWaits);
    rescue_until([&] { return over.load_acquire(); });
  }
  rescue_until([&] { return session.queue().timeline()->failed(); });
  return result;
}

}  // namespace heddle::metal::test
