// Which products the kernels of tensor_product.h compute.
#include <doctest/doctest.h>

#include "drivers/host/machine/folder_fixture.h"
#include "tests/cuda_driver/product_choice_fixture.h"

namespace heddle::cuda {
namespace {

using cuda_double::FewRowsTime, cuda_double::ProductTime, cuda_double::TensorTime;
using ir::DType;
using std::chrono::nanoseconds;

TEST_CASE(
    "without a library tensor cores compute products of f32 of more than 96 rows, unless they are exact") {
  struct Row {
    AskedProduct product;
    const char* by;
  };
  for (const Row& row : {
           Row{{.m = 97}, "tensor"},
           Row{{.m = 130, .k = 64, .n = 33, .y_turned = true, .activation = "gelu"}, "tensor"},
           Row{{.m = 100, .k = 70, .n = 36, .batches = 3}, "tensor"},
           Row{{.m = 96}, "few"},
           Row{{.m = 97, .k = 63}, "tiles"},
           Row{{.m = 97, .dtype = DType::kF16}, "tiles"},
           Row{{.m = 97, .x_turned = true}, "tiles"},
       }) {
    CAPTURE(text(row.product.m, ' ', row.product.k, ' ', row.product.n));
    CHECK(computes({}, row.product) == row.by);
    CHECK(computes({.exact = true}, row.product) != "tensor");
    CHECK(computes({.library = true, .exact = true}, row.product) != "tensor");
  }
}

TEST_CASE("tensor cores compute a product where they are faster than the library, or need less memory") {
  struct Row {
    nanoseconds tensor;
    int64_t n;
    const char* by;
  };
  for (const Row& row : {
           Row{nanoseconds(10'200), 32, "tensor"},  // the library takes 10 us, and a workspace
           Row{nanoseconds(10'400), 32, "library"},
           Row{nanoseconds(19'000), 2, "tensor"},  // 20 us, and none
           Row{nanoseconds(20'700), 2, "library"},
       }) {
    CAPTURE(row.tensor.count());
    const TensorTime tensor(row.tensor);
    CHECK(computes({.library = true}, {.m = 130, .n = row.n}) == row.by);
    CHECK(computes({.library = true}, {.m = 33, .n = row.n}) == row.by);
  }
  const TensorTime fastest(nanoseconds(1));
  CHECK(computes({.library = true}, {.m = 32}) == "library");
  CHECK(computes({.library = true}, {.m = 130, .k = 63}) == "library");
  CHECK(computes({.library = true}, {.m = 130, .dtype = DType::kF16}) == "library");
  CHECK(computes({.library = true, .tunes = false}, {.m = 130}) == "library");
}

TEST_CASE("that tensor cores won is kept, with the shape that did") {
  const host::TestFolder folder;
  const ChoosingDevice how{.library = true, .folder = folder.path()};
  {
    const TensorTime fast(nanoseconds(5'000));
    CHECK(computes(how, {.m = 130}) == "tensor");
  }
  CHECK(computes(how, {.m = 130}) == "tensor");  // it was not measured again
  CHECK(computes(how, {.m = 200}) == "library");
}

TEST_CASE("a plan names the largest tile of tensor cores of which each multiprocessor has one") {
  const auto device = device_for({});  // of four multiprocessors
  struct Row {
    int64_t m, n;
    const char* kernel;
  };
  for (const Row& row : {
           Row{100, 32, "product_tensor_32x32_by_4"},
           Row{97, 4, "product_tensor_32x32_by_4"},
           Row{128, 64, "product_tensor_64x32_by_2"},
           Row{128, 128, "product_tensor_64x64"},
       }) {
    CHECK(planned_for(*device, {.m = row.m, .n = row.n}) == row.kernel);
  }
}

}  // namespace
}  // namespace heddle::cuda
