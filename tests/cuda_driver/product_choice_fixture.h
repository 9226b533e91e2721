// product_choice_fixture.h: which kernel, or library, a device of the double takes for a product.
//
//   Threads    One.
#pragma once

#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "ir/op.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {

struct ChoosingDevice {
  bool library = false, exact = false, tunes = true;
  std::string folder = {};
};

inline Ref<device::Device> device_for(const ChoosingDevice& how) {
  const auto made = make_cuda_device({.api = &cuda_double::api(),
                                      .image = cuda_double::image(),
                                      .blas = how.library ? &cuda_double::blas_lt() : nullptr,
                                      .tuning = {.on = how.tunes, .folder = how.folder}});
  REQUIRE(made.ok());
  return *made;
}

struct AskedProduct {
  int64_t m = 8, k = 256, n = 32;
  ir::DType dtype = ir::DType::kF32;
  bool x_turned = false, y_turned = false;
  int64_t batches = 1;
  std::string activation = "";  // with it, it has a bias and a residual
};

struct MadeProduct {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;
};

inline MadeProduct product_of(const AskedProduct& q) {
  ir::Builder b;
  MadeProduct made;
  const auto input = [&](const ir::Extents& extents) {
    made.inputs.push_back(
        conformance::random_tensor(q.dtype, extents, static_cast<uint32_t>(made.inputs.size() + 1)));
    return b.input("in" + std::to_string(made.inputs.size()), made.inputs.back().type());
  };
  const auto weight = [&](const ir::Extents& extents) {
    return b.constant(conformance::random_tensor(q.dtype, extents, 9));
  };
  const ir::Extents y = q.y_turned ? ir::Extents{q.n, q.k} : ir::Extents{q.k, q.n};
  if (q.batches > 1) {
    b.output(*b.node("MatMul", {input({q.batches, q.m, q.k}), weight({q.batches, q.k, q.n})}));
  } else if (q.x_turned) {
    b.output(*b.node("Gemm", {input({q.k, q.m}), weight(y)},
                     {{"transA", int64_t{1}}, {"transB", int64_t{q.y_turned}}}));
  } else {
    const bool ends = !q.activation.empty();
    const ir::ValueId x = input({q.m, q.k}), w = weight(y), bias = ends ? weight({q.n}) : ir::kNoValue;
    const ir::ValueId residual = ends ? input({q.m, q.n}) : ir::kNoValue;
    b.output(*b.node("Linear", {x, w, bias, residual},
                     {{"trans_w", int64_t{q.y_turned}}, {"activation", q.activation}}));
  }
  made.graph = *b.take();
  return made;
}

// "few", "tensor", "tiles" or "library", of the program's first step; its result is the reference's.
inline std::string computes(device::Device& device, const AskedProduct& product, bool exact = false) {
  const MadeProduct made = product_of(product);
  const auto module = device.load(made.graph, {.exact = exact}, device::plain_source(device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
  const auto got = conformance::Session(device).run(*program, made.inputs);
  REQUIRE_MESSAGE(got.ok(), to_string(got.status()));
  const auto wanted = ir::evaluate(made.graph, made.inputs);
  REQUIRE(wanted.ok());
  const double close = product.dtype == ir::DType::kF32 ? 1e-4 : 3e-2;
  CHECK(conformance::difference(got->front(), wanted->front(), {close, close}) == "");
  const Step& first = static_cast<const CudaProgram&>(**program).lowered().steps.front();
  const auto* const launch = std::get_if<Launch>(&first);
  if (launch == nullptr) return "library";
  const std::string_view name = launch->kernel->name;
  return name.starts_with("product_few") ? "few" : name.starts_with("product_tensor") ? "tensor" : "tiles";
}
inline std::string computes(const ChoosingDevice& how, const AskedProduct& product) {
  return computes(*device_for(how), product, how.exact);
}

// The kernel that a plan names for it.
inline std::string planned_for(device::Device& device, const AskedProduct& product) {
  const MadeProduct made = product_of(product);
  const auto module = device.load(made.graph, {}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  const std::vector<ir::Extents> shapes = {{product.m, product.k}};
  const auto plan = (*module)->plan(shapes, UINT64_MAX, NoLocksHeld());
  REQUIRE(plan.ok());
  const std::string& path = plan->nodes[0].path;
  return path.substr(0, path.find_first_of(" ;,"));
}

}  // namespace heddle::cuda
