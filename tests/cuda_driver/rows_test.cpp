// Softmax, normalisations and reductions of rows: a row's bits are its own.
#include <doctest/doctest.h>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/op_check_fixture.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using ir::DType;

struct RanRows {
  std::string kernel;
  ir::Tensor output;
};

RanRows ran_rows(std::string_view op, const ir::Tensor& x, const std::vector<int64_t>& axes = {1}) {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  ir::Builder b;
  std::vector<ir::ValueId> in{b.input("x", x.type())};
  if (op.ends_with("Normalization"))
    in.push_back(b.constant(conformance::random_tensor(x.dtype(), {x.extents()[1]}, 7)));
  if (op.starts_with("Reduce")) in.push_back(b.constant(ir::Tensor::of_i64(axes)));
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

TEST_CASE("a row has the bits that it has alone, whichever axis the others lie along") {
  struct Form {  // [outer, others, inner], in a shape of its own
    std::vector<int64_t> shape;
    size_t others;
    std::vector<int64_t> axes;
    int64_t outer, inner, made;  // `made` elements of the result for each of the others
  };
  for (const int64_t length : {3, 92, 1030}) {
    for (const Form& form : {Form{{length, 37}, 1, {0}, length, 1, 1},
                             {{length, 37, 5}, 1, {0, 2}, length, 5, 1},
                             {{37, length, 5}, 0, {1}, 1, 5 * length, 5},
                             {{37, 4, length}, 0, {1, 2}, 1, 4 * length, 1}}) {
      CAPTURE(length);
      CAPTURE(form.axes.size());
      const ir::Tensor all = conformance::random_tensor(DType::kF32, ir::Extents(form.shape), 3);
      std::vector<int64_t> shape = form.shape;
      shape[form.others] = 1;
      ir::Tensor one = ir::Tensor::zeros(DType::kF32, ir::Extents(shape));
      for (int64_t o = 0; o < form.outer; ++o) {
        for (int64_t i = 0; i < form.inner; ++i)
          one.set(o * form.inner + i, all.get((o * 37 + 29) * form.inner + i));
      }
      const ir::Tensor together = ran_rows("ReduceSum", all, form.axes).output,
                       alone = ran_rows("ReduceSum", one, form.axes).output;
      REQUIRE(alone.elements() == form.made);
      for (int64_t i = 0; i < form.made; ++i) CHECK(alone.get(i) == together.get(29 * form.made + i));
    }
  }
}

TEST_CASE(
    "every kernel gives reductions the reference's values, of rows, of columns and of what lies apart") {
  const auto device = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(device.ok());
  using conformance::ints, conformance::T;
  const std::vector<DType> types = {DType::kF32, DType::kF16, DType::kBF16, DType::kF64,
                                    DType::kI32, DType::kI64, DType::kU8};
  std::vector<conformance::Case> cases;
  // Its squares wrap below zero.
  const conformance::Case wrapping{"ReduceL2", {ints({3037000500}), ints({0})}, {}, {}};
  const Status wrapped = conformance::check_case(**device, wrapping, DType::kI64);
  CHECK_MESSAGE(wrapped.ok(), to_string(wrapped));
  for (const char* op : {"ReduceSum", "ReduceMax", "ReduceL2"}) {
    const auto add = [&](ir::Extents extents, std::vector<int64_t> axes) {
      cases.push_back({op, {T(extents, 0, 2), ints(std::move(axes))}, {}, types});
    };
    for (const int64_t length : {0, 1, 3, 4, 17, 92, 131, 600}) {
      add({5, length}, {1});
      add({3, length, 6}, {1});
      add({2, length, 3, 4}, {1, 3});
      add({2, 3, length, 2, 7}, {0, 2});
    }
    add({700, 3}, {1});  // several teams in a block, and the last one has fewer
    add({3, 700}, {0});
    add({0, 5}, {1});
    add({5, 0}, {0});
  }
  for (const conformance::Case& c : cases) {
    for (const DType dtype : c.dtypes) {
      if (std::string_view(c.op) == "ReduceL2" && !ir::is_float(dtype)) continue;
      CAPTURE(std::string(c.op));
      CAPTURE(text(c.in[0].extents));
      CAPTURE(std::string(ir::name(dtype)));
      const Status status = conformance::check_case(**device, c, dtype);
      CHECK_MESSAGE(status.ok(), to_string(status));
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
