// graphs_fixture.h: a program that becomes a graph, and places that it runs at again and again.
#pragma once

#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/graphs.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_double/graph_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda::graphs_fixture {

using conformance::random_tensor;
using conformance::Session;
using cuda_double::Call;
using cuda_double::calls_of;

inline constexpr int64_t kWidth = 8;

inline Ref<device::Device> device_of(const CudaOptions& wanted) {
  cuda_double::forget_faults();
  CudaOptions options = wanted;
  if (options.api == nullptr) options.api = &cuda_double::api();
  options.image = cuda_double::image();
  const auto made = make_cuda_device(options);
  REQUIRE(made.ok());
  return *made;
}

inline Ref<device::Device> device_with_graphs(uint64_t bytes = 64 << 20) {
  return device_of({.graph_bytes = bytes});
}

// `layers` products, each with a softmax behind it: two launches a layer, with an arena between them.
inline ir::Graph graph_of_layers(const ir::Dim& rows, int count, uint32_t seed = 1) {
  ir::Builder b;
  ir::ValueId x = b.input("x", {ir::DType::kF32, {rows, kWidth}});
  for (int i = 0; i < count; ++i) {
    const ir::Tensor w = random_tensor(ir::DType::kF32, {kWidth, kWidth}, seed + static_cast<uint32_t>(i));
    x = *b.node("Softmax", {*b.node("MatMul", {x, b.constant(w)})}, {{"axis", int64_t{-1}}});
  }
  b.output(x);
  return *b.take();
}

inline Ref<const device::Program> layers(device::Device& device, int64_t rows, int count = 3,
                                         uint32_t seed = 1) {
  const auto module =
      device.load(graph_of_layers(rows, count, seed), {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const ir::Extents extents{rows, kWidth};
  const auto program = (*module)->compile(std::vector{extents}, NoLocksHeld());
  REQUIRE(program.ok());
  return *program;
}

inline const CudaProgram& of_cuda(const Ref<const device::Program>& program) {
  return static_cast<const CudaProgram&>(*program);
}

inline int launches_of(const Ref<const device::Program>& program) {
  return static_cast<int>(of_cuda(program).lowered().steps.size());
}

// Where a run finds what it reads and writes: the same addresses for as long as it lives.
struct Place {
  Ref<device::Buffer> arena;
  std::vector<device::View> inputs, outputs;
};

inline Place place_of(device::Device& device, const device::Program& program,
                      const std::vector<ir::Tensor>& inputs) {
  Place place{*device::arena_for(device, program), {}, {}};
  for (const ir::Tensor& tensor : inputs) place.inputs.push_back(conformance::upload(device, tensor));
  for (const ir::ConcreteType& type : program.outputs())
    place.outputs.push_back(conformance::empty_like(device, type.dtype, type.extents));
  return place;
}

inline Status run_at(Session& session, const Ref<const device::Program>& program, const Place& place) {
  device::CommandList list;
  list.run(program, place.arena, place.inputs, place.outputs);
  return session.submit(list);
}

// Runs there, and gives the first output; what was there before is overwritten.
inline ir::Tensor result_at(device::Device& device, Session& session,
                            const Ref<const device::Program>& program, const Place& place) {
  device::CommandList list;
  list.fill(place.outputs[0], -1);
  list.run(program, place.arena, place.inputs, place.outputs);
  const Status status = session.submit(list);
  REQUIRE_MESSAGE(status.ok(), to_string(status));
  return conformance::download(device, place.outputs[0]);
}

inline ir::Tensor rows_of(int64_t rows, uint32_t seed) {
  return random_tensor(ir::DType::kF32, {rows, kWidth}, seed);
}

// What a call of arrays submits: copies in, the run, copies out.
struct Staged {
  Place place;
  device::View in, out;  // pinned

  Staged(device::Device& device, const device::Program& program, const ir::Tensor& x)
      : place(place_of(device, program, {rows_of(x.extents()[0], 99)})),
        in(pinned_like(device, x)),
        out(pinned_like(device, x)) {
    put(x);
  }
  static device::View pinned_like(device::Device& device, const ir::Tensor& x) {
    const auto buffer =
        device::plain_source(device)->allocate(static_cast<uint64_t>(x.bytes()), device::MemoryKind::staging);
    REQUIRE(buffer.ok());
    return device::View::contiguous(*buffer, x.dtype(), x.extents());
  }
  void put(const ir::Tensor& x) { std::memcpy(in.host(), x.data(), static_cast<size_t>(x.bytes())); }
  device::CommandList list_for(const Ref<const device::Program>& program) const {
    device::CommandList list;
    list.copy(in, place.inputs[0]);
    list.run(program, place.arena, place.inputs, place.outputs);
    list.copy(place.outputs[0], out);
    return list;
  }
  Status submit(Session& session, const Ref<const device::Program>& program) const {
    return session.submit(list_for(program));
  }
  bool holds(const ir::Tensor& wanted) const {
    return std::memcmp(out.host(), wanted.data(), static_cast<size_t>(wanted.bytes())) == 0;
  }
};

// By a device that makes no graphs.
inline ir::Tensor launched_directly(const ir::Tensor& x, uint32_t seed = 1) {
  const auto device = device_of({.graph_bytes = 0});
  const auto program = layers(*device, x.extents()[0], 3, seed);
  const auto got = Session(*device).run(program, std::vector{x});
  REQUIRE(got.ok());
  return (*got)[0];
}

}  // namespace heddle::cuda::graphs_fixture
