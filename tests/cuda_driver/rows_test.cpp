// Softmax, normalisations and reductions of rows: a row's bits are its own.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using ir::DType;

struct RanRows {
  std::string kernel;
  ir::Tensor output;
};

RanRows ran_rows(std::string_view op, const ir::Tensor& x) {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  ir::Builder b;
  std::vector<ir::ValueId> in{b.input("x", x.type())};
  if (op.ends_with("Normalization"))
    in.push_back(b.constant(conformance::random_tensor(x.dtype(), {x.extents()[1]}, 7)));
  if (op.starts_with("Reduce")) in.push_back(b.constant(ir::Tensor::of_i64({1})));
  b.output(*b.node(op, in));
  const auto module = (*device)->load(*b.take(), {}, device::plain_source(**device), NoLocksHeld());
  REQUIRE_MESSAGE(module.ok(), to_string(module.status()));
  const auto program = conformance::compile(**module, {x});
  REQUIRE_MESSAGE(program.ok(), to_string(program.status()));
  const auto got = conformance::Session(**device).run(*program, std::vector<ir::Tensor>{x});
  REQUIRE_MESSAGE(got.ok(), to_string(got.status()));
  return {std::get<Launch>(static_cast<const CudaProgram&>(**program).lowered().steps[0]).kernel->name,
          (*got)[0]};
}

TEST_CASE("a row has the bits that it has alone, however many are beside it") {
  for (const char* op : {"Softmax", "LayerNormalization", "RMSNormalization", "ReduceMean"}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int64_t length : {7, 384, 1024, 3001, 9000}) {
        CAPTURE(std::string(op));
        CAPTURE(length);
        // With 37 rows a block of the double's GPU has four short ones.
        const ir::Tensor all = conformance::random_tensor(dtype, {37, length}, 3);
        ir::Tensor one = ir::Tensor::zeros(dtype, {1, length});
        for (int64_t i = 0; i < length; ++i) one.set(i, all.get(29 * length + i));
        const ir::Tensor together = ran_rows(op, all).output, alone = ran_rows(op, one).output;
        int64_t other = 0;
        for (int64_t i = 0; i < alone.elements(); ++i)
          other += alone.get(i) == together.get(29 * alone.elements() + i) ? 0 : 1;
        CHECK(other == 0);
      }
    }
  }
}

TEST_CASE("rows that fit into a block's registers are read once") {
  struct Row {
    const char* op;
    DType dtype;
    int64_t length;
    const char* kernel;
  };
  for (const Row& row : {Row{"Softmax", DType::kF32, 8192, "softmax_held"},
                         {"Softmax", DType::kF16, 5, "softmax_held"},
                         {"LayerNormalization", DType::kBF16, 8192, "norm_held"},
                         {"Softmax", DType::kF32, 8193, "softmax_f32"},
                         {"LayerNormalization", DType::kF32, 8193, "norm_f32"},
                         {"Softmax", DType::kF64, 5, "softmax_f64"}}) {
    CAPTURE(std::string(row.kernel));
    CHECK(ran_rows(row.op, conformance::random_tensor(row.dtype, {2, row.length}, 1)).kernel == row.kernel);
  }
}

}  // namespace
}  // namespace heddle::cuda
