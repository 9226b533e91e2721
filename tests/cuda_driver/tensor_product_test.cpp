// Products of f32 on tensor cores, whose factors are sums of two TF32: the kernel alone.
#include <doctest/doctest.h>

#include "drivers/cuda/kernels/tensor_product.h"
#include "tests/cuda_driver/product_fixture.h"

namespace heddle::cuda {
namespace {

struct TensorRun {
  std::vector<float> out;
  const char* wrong = nullptr;
  int64_t copied = 0;  // by all blocks
};

template <class Shape>
TensorRun run_tensor(const ProductParams& asked, uint64_t seed = 1) {
  TensorRun made{std::vector<float>(static_cast<size_t>(asked.batches * asked.m * asked.n), NAN)};
  TensorProduct<Shape> kernel{asked};
  kernel.p.out = reinterpret_cast<uint64_t>(made.out.data());
  const int64_t blocks = asked.batches * ((asked.m + Shape::kRows - 1) / Shape::kRows) *
                         ((asked.n + Shape::kColumns - 1) / Shape::kColumns);
  for (int64_t index = 0; index < blocks; ++index) {
    HostBlock block(index, blocks, Shape::kThreads, Shape::kSharedBytes, seed + static_cast<uint64_t>(index));
    kernel(block);
    made.copied += block.copied();
    if (block.overrun()) made.wrong = "it took more shared memory than it says";
    if (!block.followed_once()) made.wrong = "it did not wait for the kernel in front";
  }
  return made;
}
template <class Shape>
TensorRun run_tensor(const FloatProduct& q, FloatOperands& from, uint64_t seed = 1) {
  return run_tensor<Shape>(params_of_product(q, from, nullptr), seed);
}

template <class F>
void with_tensor_shapes(F f) {
  f(Tensor64x64());
  f(Tensor64x32By2());
  f(Tensor32x32By4());
}

const FloatProduct kTensorProblems[] = {
    {1, 1, 1},
    {2, 3, 5, true},
    {33, 36, 64},
    {33, 36, 64, true},
    {64, 64, 128},
    {70, 68, 192, true, Act::kRelu, false, true},
    {40, 72, 256, false, Act::kGelu, false, true, true},
    {65, 20, 600, true, Act::kNone, true},
    {100, 36, 320, false, Act::kSilu, true, true},
    {16, 70, 255, true, Act::kTanh, false, false, true},
    {34, 36, 260, false, Act::kNone, false, true, false, 1},
    {34, 36, 128, true, Act::kSigmoid, true, true, true, 2},
    {5, 40, 2304, true},
};

TEST_CASE("a product on tensor cores has the reference's values, whatever its shape and what follows it") {
  for (const FloatProduct& q : kTensorProblems) {
    CAPTURE(q.m);
    CAPTURE(q.n);
    CAPTURE(q.k);
    FloatOperands from(q);
    with_tensor_shapes([&]<class Shape>(Shape) {
      const TensorRun got = run_tensor<Shape>(q, from);
      CHECK(got.wrong == nullptr);
      CHECK(count_wrong(q, from, got.out) == 0);
    });
  }
}

// Of sums whose terms are about 1: their root mean square, beside the root of how many terms there are.
double error_of(const FloatProduct& q, FloatOperands& from, const std::vector<float>& got) {
  double squares = 0;
  for (int64_t e = 0; e < q.m * q.n; ++e) {
    const double error = double{got[static_cast<size_t>(e)]} - wanted_of(q, from, e / q.n, e % q.n);
    squares += error * error;
  }
  return std::sqrt(squares / static_cast<double>(q.m * q.n * q.k));
}

// 2^-22, of numbers of 24 bits. In TF32 it would be 2e-4.
TEST_CASE("a product on tensor cores has the error of a product in f32, and not of one in TF32") {
  for (const FloatProduct& q : {FloatProduct{64, 64, 384}, FloatProduct{64, 32, 1536, true}}) {
    FloatOperands from(q);
    with_tensor_shapes(
        [&]<class Shape>(Shape) { CHECK(error_of(q, from, run_tensor<Shape>(q, from).out) < 2.4e-7); });
  }
}

TEST_CASE("a row's bits on tensor cores depend neither on the rows beside it nor on where it lies") {
  const FloatProduct q{70, 40, 256};
  FloatOperands from(q);
  with_tensor_shapes([&]<class Shape>(Shape) {
    const std::vector<float> all = run_tensor<Shape>(q, from).out;
    for (const int64_t row : {0, 9, 31, 32, 64, 69}) {
      ProductParams alone = params_of_product(q, from, nullptr);
      alone.m = 1;
      alone.x += static_cast<uint64_t>(row * q.k) * sizeof(float);
      const std::vector<float> got = run_tensor<Shape>(alone).out;
      CHECK(std::memcmp(got.data(), all.data() + row * q.n, got.size() * sizeof(float)) == 0);
    }
  });
}

TEST_CASE("operands that lie anywhere give the bits of those that are aligned") {
  for (const bool turned : {false, true}) {
    const FloatProduct q{40, 44, 256, turned, Act::kRelu, false, true};
    FloatProduct moved = q;
    moved.first = 3;
    FloatOperands from(q), elsewhere(moved);
    with_tensor_shapes([&]<class Shape>(Shape) {
      const TensorRun got = run_tensor<Shape>(moved, elsewhere);
      CHECK(got.copied == 0);
      CHECK(same_floats(got.out, run_tensor<Shape>(q, from).out));
    });
  }
}

TEST_CASE("a tile on tensor cores copies its own rows and columns, once, and nothing else") {
  for (const FloatProduct& q : {
           FloatProduct{1, 64, 256},
           FloatProduct{40, 36, 128, true},
           FloatProduct{65, 100, 320},
           FloatProduct{33, 7, 1024, true},
       }) {
    CAPTURE(q.m);
    FloatOperands from(q);
    with_tensor_shapes([&]<class Shape>(Shape) {
      const int64_t tall = (q.m + Shape::kRows - 1) / Shape::kRows,
                    wide = (q.n + Shape::kColumns - 1) / Shape::kColumns;
      CHECK(run_tensor<Shape>(q, from).copied == (wide * q.m + tall * q.n) * q.k / 4);
    });
  }
}

TEST_CASE("products of several matrices on tensor cores have the bits of each alone") {
  const FloatProduct q{36, 40, 64}, all{72, 80, 64};
  FloatOperands from(all);
  with_tensor_shapes([&]<class Shape>(Shape) {
    ProductParams both = params_of_product(q, from, nullptr);
    both.batches = 2;
    both.batch.rank = 1;
    both.batch.extents[0] = 2;
    both.x_batch[0] = q.m * q.k;
    both.y_batch[0] = q.k * q.n;
    const std::vector<float> got = run_tensor<Shape>(both).out;
    for (size_t each = 0; each < 2; ++each) {
      ProductParams alone = params_of_product(q, from, nullptr);
      alone.x += each * static_cast<uint64_t>(q.m * q.k) * sizeof(float);
      alone.y += each * static_cast<uint64_t>(q.k * q.n) * sizeof(float);
      const std::vector<float> wanted = run_tensor<Shape>(alone).out;
      CHECK(std::memcmp(wanted.data(), got.data() + each * wanted.size(), wanted.size() * sizeof(float)) ==
            0);
    }
  });
}

// Of the reference, in f32 and in order: infinite where a factor is, and where f32 has no greater number.
TEST_CASE("infinities, NaN and the greatest numbers give on tensor cores what they give in f32") {
  for (const bool turned : {false, true}) {
    const FloatProduct q{34, 36, 128, turned};
    FloatOperands from(q);
    constexpr float kMost = 3.4028235e38f;  // rounded to a TF32 it is infinite
    float* const x = from.x.data();
    x[3 * q.k + 7] = INFINITY;
    x[4 * q.k + 127] = NAN;
    from.y.data()[11] = -INFINITY;
    for (int64_t k = 0; k < q.k; ++k) x[5 * q.k + k] = -0.0f;
    for (int64_t k = 0; k < q.k; ++k) x[6 * q.k + k] = k == 9 ? kMost : 0;
    for (int64_t k = 0; k < q.k; ++k) x[7 * q.k + k] = kMost;
    with_tensor_shapes([&]<class Shape>(Shape) {
      const std::vector<float> got = run_tensor<Shape>(q, from).out;
      int64_t other = 0;
      for (int64_t e = 0; e < q.m * q.n; ++e) {
        float sum = 0;
        for (int64_t k = 0; k < q.k; ++k)
          sum = std::fma(x[e / q.n * q.k + k], from.y.data()[turned ? e % q.n * q.k + k : k * q.n + e % q.n],
                         sum);
        const float found = got[static_cast<size_t>(e)];
        const bool alike = std::isnan(sum) ? std::isnan(found)
                           : std::isinf(sum)
                               ? found == sum
                               : std::fabs(double{found} - sum) <= 1e-4 * (1 + std::fabs(double{sum}));
        other += alike ? 0 : 1;
      }
      CHECK(other == 0);
    });
  }
}

TEST_CASE("the order of a block's threads and of its copies changes no bit on tensor cores") {
  const FloatProduct q{50, 40, 320, false, Act::kRelu, false, true};
  FloatOperands from(q);
  const std::vector<float> wanted = run_tensor<Tensor64x32By2>(q, from).out;
  for (uint64_t seed = 2; seed < 30; ++seed)
    CHECK(same_floats(run_tensor<Tensor64x32By2>(q, from, seed).out, wanted));
}

}  // namespace
}  // namespace heddle::cuda
