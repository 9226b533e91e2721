// A row of a product of floats has the same bits whatever tile computes it and wherever its operands lie.
#include <doctest/doctest.h>

#include <cstring>
#include <set>

#include "device/plain_source_fixture.h"
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/program.h"
#include "ir/builder.h"
#include "tests/cuda_double/cuda_double.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {
namespace {

using conformance::random_tensor;
using ir::DType;

Ref<device::Device> double_device() {
  const auto made = make_cuda_device({.api = &cuda_double::api(), .image = cuda_double::image()});
  REQUIRE(made.ok());
  return *made;
}

// Exact: x[rows, k] times a weight; turned: its columns lie one behind the other.
Ref<const device::Module> product_of(device::Device& device, DType dtype, int64_t k, int64_t n, bool turned) {
  ir::Builder b;
  const ir::ValueId x = b.input("x", {dtype, {ir::Dim::symbol("rows"), k}}),
                    w = b.constant(random_tensor(dtype, turned ? ir::Extents{n, k} : ir::Extents{k, n}, 3));
  b.output(*b.node("Linear", {x, w}, {{"trans_w", int64_t{turned}}}));
  const auto module = device.load(*b.take(), {.exact = true}, device::plain_source(device), NoLocksHeld());
  REQUIRE(module.ok());
  return *module;
}

ir::Tensor first_rows(const ir::Tensor& of, int64_t rows) {
  ir::Tensor taken = ir::Tensor::zeros(of.dtype(), {rows, of.extents()[1]});
  std::memcpy(taken.mutable_data(), of.data(), static_cast<size_t>(taken.bytes()));
  return taken;
}

TEST_CASE(
    "a row of an exact product has the same bits in batches of 1 to 300 rows, whatever tile computes it") {
  const auto device = double_device();
  struct Case {
    int64_t k, columns;
    bool turned;
  };
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (const auto& [k, columns, turned] : {Case{40, 70, true}, {600, 70, false}, {512, 72, false}}) {
      CAPTURE(std::string(ir::name(dtype)));
      CAPTURE(k);
      const auto module = product_of(*device, dtype, k, columns, turned);
      const ir::Tensor rows = random_tensor(dtype, {300, k}, 4);
      conformance::Session session(*device);
      std::set<std::string> tiles, few;
      const auto product_of_first = [&](int64_t count) {
        const std::vector<ir::Tensor> inputs = {first_rows(rows, count)};
        const auto program = conformance::compile(*module, inputs);
        REQUIRE(program.ok());
        for (const Step& step : static_cast<const CudaProgram&>(**program).lowered().steps) {
          const std::string name = std::get<Launch>(step).kernel->name;
          (name.starts_with("product_few") ? few : tiles).insert(name);
        }
        const auto got = session.run(*program, inputs);
        REQUIRE(got.ok());
        return got->front();
      };
      const ir::Tensor all = product_of_first(300);
      for (const int64_t count : {1, 2, 4, 5, 8, 15, 16, 17, 31, 33, 64, 65, 128, 131, 257})
        CHECK(conformance::same_bits(product_of_first(count), first_rows(all, count)));
      CHECK(tiles.size() == (few.empty() ? 4 : 3));  // every tile took part, or what took its rows
      CHECK(few.empty() == (dtype != DType::kF32 || k < 256));
    }
  }
}

TEST_CASE("a row of an exact product has the same bits beside 0 to 129 others") {
  const auto device = double_device();
  constexpr int64_t kMost = 130, kK = 272;
  for (const bool turned : {false, true}) {
    const auto module = product_of(*device, DType::kF32, kK, 36, turned);
    const ir::Tensor rows = random_tensor(DType::kF32, {kMost, kK}, 4);
    conformance::Session session(*device);
    const auto product_of_first = [&](int64_t count) {
      const std::vector<ir::Tensor> inputs = {first_rows(rows, count)};
      const auto program = conformance::compile(*module, inputs);
      REQUIRE(program.ok());
      const auto got = session.run(*program, inputs);
      REQUIRE(got.ok());
      return got->front();
    };
    const ir::Tensor all = product_of_first(kMost);
    int64_t other = 0;
    for (int64_t count = 1; count < kMost; ++count)
      other += conformance::same_bits(product_of_first(count), first_rows(all, count)) ? 0 : 1;
    CHECK(other == 0);
  }
}

TEST_CASE("a product of operands that begin at any element has the bits of aligned ones") {
  const auto device = double_device();
  for (const bool turned : {false, true}) {
    const auto module = product_of(*device, DType::kF32, 256, 32, turned);
    const ir::Tensor x = random_tensor(DType::kF32, {20, 256}, 4);
    const auto program = conformance::compile(*module, {x});
    REQUIRE(program.ok());
    conformance::Session session(*device);
    const auto wanted = session.run(*program, std::vector<ir::Tensor>{x});
    REQUIRE(wanted.ok());
    const device::View aligned = conformance::upload(*device, x);
    for (const uint64_t first : {1, 2, 3, 4}) {
      const device::View wide = conformance::empty_like(*device, DType::kF32, {20 * 256 + 4});
      const device::View moved =
          device::View::contiguous(wide.buffer, DType::kF32, x.extents(), first * sizeof(float));
      device::CommandList list;
      list.copy(aligned, moved);
      REQUIRE(session.submit(list).ok());
      const auto got = session.run(*program, std::vector<device::View>{moved});
      REQUIRE(got.ok());
      CHECK(conformance::same_bits(got->front(), wanted->front()));
    }
  }
}

}  // namespace
}  // namespace heddle::cuda
