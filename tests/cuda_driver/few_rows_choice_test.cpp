// Which products the kernels for few rows compute.
#include <doctest/doctest.h>

#include "drivers/host/machine/folder_fixture.h"
#include "tests/cuda_double/faults.h"
#include "tests/cuda_driver/product_choice_fixture.h"

namespace heddle::cuda {
namespace {

using cuda_double::FewRowsTime, cuda_double::NoClusters, cuda_double::ProductTime;
using host::TestFolder;
using ir::DType;
using std::chrono::nanoseconds;

TEST_CASE("products of f32 of 2 to 96 rows are the kernels' for few rows, without a library and exact") {
  struct Row {
    AskedProduct product;
    const char* by;
  };
  for (const Row& row : {
           Row{{.m = 2}, "few"},
           Row{{.m = 96}, "few"},
           Row{{.m = 50, .n = 33, .y_turned = true, .activation = "gelu"}, "few"},
           Row{{.m = 7, .k = 259, .n = 5, .activation = "relu"}, "few"},
           Row{{.m = 1}, "tiles"},
           Row{{.k = 255}, "tiles"},  // threads would have no part of k
           Row{{.dtype = DType::kF16}, "tiles"},
           Row{{.batches = 2}, "tiles"},
           Row{{.x_turned = true}, "tiles"},
       }) {
    CAPTURE(text(row.product.m, ' ', row.product.k, ' ', row.product.n));
    CHECK(computes({}, row.product) == row.by);
    CHECK(computes({.library = true, .exact = true}, row.product) == row.by);
  }
  CHECK(computes({.exact = true}, {.m = 97}) == "tiles");
}

TEST_CASE("a GPU whose code has no clusters has the tiles in place of the kernels for few rows") {
  const NoClusters none;
  const FewRowsTime fastest(nanoseconds(1));
  CHECK(computes({}, {}) == "tiles");
  CHECK(computes({.library = true, .exact = true}, {}) == "tiles");
  CHECK(computes({.library = true}, {}) == "library");
}

TEST_CASE(
    "kernels for few rows have to beat the library by 1.2, or as other ways do if it needs a workspace") {
  struct Row {
    nanoseconds few, tiles;
    int64_t m, n;
    std::string activation;
    const char* by;
  };
  for (const Row& row : {
           // the library takes 10 us, and a workspace
           Row{nanoseconds(10'200), nanoseconds(25'000), 8, 32, "", "few"},
           Row{nanoseconds(10'400), nanoseconds(25'000), 8, 32, "", "library"},
           Row{nanoseconds(11'200), nanoseconds(25'000), 8, 32, "gelu", "few"},  // 1 us follows the library
           Row{nanoseconds(11'400), nanoseconds(25'000), 8, 32, "gelu", "library"},
           // 20 us, and none
           Row{nanoseconds(16'600), nanoseconds(25'000), 8, 2, "", "few"},
           Row{nanoseconds(16'700), nanoseconds(25'000), 8, 2, "", "library"},
           Row{nanoseconds(18'900), nanoseconds(19'000), 8, 2, "", "few"},
           Row{nanoseconds(19'100), nanoseconds(19'000), 8, 2, "", "tiles"},
           Row{nanoseconds(17'400), nanoseconds(26'000), 8, 2, "gelu", "few"},
           Row{nanoseconds(17'600), nanoseconds(26'000), 8, 2, "gelu", "library"},
       }) {
    CAPTURE(
        text(row.few.count(), " and ", row.tiles.count(), " ns ", row.m, ' ', row.n, ' ', row.activation));
    const FewRowsTime few(row.few);
    const ProductTime tiles(row.tiles);
    CHECK(computes({.library = true}, {.m = row.m, .n = row.n, .activation = row.activation}) == row.by);
  }
  const FewRowsTime few(nanoseconds(1'000));
  CHECK(computes({.library = true}, {.m = 97}) == "library");
  CHECK(computes({.library = true}, {.dtype = DType::kF16}) == "library");
}

TEST_CASE(
    "what has as few blocks as a GPU has multiprocessors is measured as in a graph: each begins early") {
  const auto early_of = [](const AskedProduct& product) {
    cuda_double::forget_faults();
    const auto device = device_for({.library = true});
    const MadeProduct made = product_of(product);
    const auto module = device->load(made.graph, {}, device::plain_source(*device), NoLocksHeld());
    REQUIRE(module.ok());
    REQUIRE(conformance::compile(**module, made.inputs).ok());
    return cuda_double::calls_of(cuda_double::Call::kEarlyLaunch);
  };
  CHECK(early_of({.m = 8, .n = 32}) >= 20);  // what is timed
  CHECK(early_of({.m = 96, .n = 512}) == 0);
  const NoClusters none;
  CHECK(early_of({.m = 8, .n = 32}) == 0);
}

TEST_CASE("numbers of rows that are alike are the kernels' for few rows, or none of them is") {
  const ProductTime tiles(nanoseconds(25'000));
  const auto device = device_for({.library = true});
  {
    const FewRowsTime few(nanoseconds(5'000));
    CHECK(computes(*device, {.m = 65}) == "few");
    CHECK(computes(*device, {.m = 3}) == "few");
  }
  const FewRowsTime few(nanoseconds(20'000));
  for (const int64_t m : {66, 80, 96, 4}) CHECK(computes(*device, {.m = m}) == "few");
  for (const int64_t m : {64, 49, 97, 2}) CHECK(computes(*device, {.m = m}) == "library");
}

TEST_CASE("what is not measured the kernels for few rows compute") {
  CHECK(computes({.library = true, .tunes = false}, {}) == "few");
  CHECK(computes({.library = true, .tunes = false}, {.k = 64}) == "tiles");
  CHECK(computes({.library = true, .tunes = false}, {.m = 128}) == "library");
}

TEST_CASE("that the kernels for few rows won is kept, for GPUs that have them") {
  const TestFolder folder;
  const ChoosingDevice how{.library = true, .folder = folder.path()};
  const auto with_few_at = [&](nanoseconds time) {
    const FewRowsTime few(time);
    const ProductTime tiles(nanoseconds(9'000));
    return computes(how, {});
  };
  CHECK(with_few_at(nanoseconds(5'000)) == "few");
  CHECK(with_few_at(nanoseconds(50'000)) == "few");  // it was not measured again
  {
    const NoClusters none;
    CHECK(with_few_at(nanoseconds(5'000)) == "tiles");
  }
  CHECK(with_few_at(nanoseconds(5'000)) == "tiles");  // which is kept now
}

TEST_CASE("what the library cannot read as it lies the kernels for few rows multiply") {
  const auto device = device_for({.library = true});
  const MadeProduct made = product_of({});
  const auto module = device->load(made.graph, {}, device::plain_source(*device), NoLocksHeld());
  REQUIRE(module.ok());
  const auto program = conformance::compile(**module, made.inputs);
  REQUIRE(program.ok());
  const auto& steps = static_cast<const CudaProgram&>(**program).lowered().steps;
  REQUIRE(steps.size() == 2);
  CHECK(std::holds_alternative<LibraryStep>(steps[0]));
  CHECK(std::string_view(std::get<Launch>(steps[1]).kernel->name).starts_with("product_few"));
  conformance::Session session(*device);
  const device::View wide = conformance::empty_like(*device, DType::kF32, {8 * 256 + 1});
  const device::View moved = device::View::contiguous(wide.buffer, DType::kF32, {8, 256}, sizeof(float));
  device::CommandList list;
  list.copy(conformance::upload(*device, made.inputs[0]), moved);
  REQUIRE(session.submit(list).ok());
  const auto got = session.run(*program, std::vector<device::View>{moved});
  REQUIRE(got.ok());
  const auto exact = device->load(made.graph, {.exact = true}, device::plain_source(*device), NoLocksHeld());
  REQUIRE(exact.ok());
  const auto own = conformance::compile(**exact, made.inputs);
  REQUIRE(own.ok());
  const auto wanted = session.run(*own, made.inputs);
  REQUIRE(wanted.ok());
  CHECK(conformance::same_bits(got->front(), wanted->front()));
}

TEST_CASE("a plan names the kernel for few rows, the one whose tiles are done in the fewest short turns") {
  const auto device = device_for({});  // of four multiprocessors
  struct Row {
    int64_t m, n;
    const char* kernel;
  };
  for (const Row& row : {
           Row{8, 16, "product_few_8x16"},
           Row{8, 32, "product_few_8x32"},
           Row{8, 128, "product_few_8x64"},
           Row{16, 32, "product_few_16x32"},
           Row{24, 32, "product_few_24x32"},
           Row{32, 64, "product_few_32x32"},
       }) {
    CHECK(planned_for(*device, {.m = row.m, .n = row.n}) == row.kernel);
  }
}

}  // namespace
}  // namespace heddle::cuda
