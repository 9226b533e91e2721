// Products of few rows, whose tiles the blocks of a cluster share: the kernels alone.
#include <doctest/doctest.h>

#include "drivers/cuda/kernels/few_rows.h"
#include "tests/cuda_double/cluster_run.h"
#include "tests/cuda_driver/product_fixture.h"

namespace heddle::cuda {
namespace {

struct Run {
  std::vector<float> out;
  const char* wrong = nullptr;
  int64_t copied = 0;  // by all blocks
};

template <class Shape>
Run run_few(const FloatProduct& q, FloatOperands& from, uint64_t seed = 1) {
  Run made{std::vector<float>(static_cast<size_t>(q.m * q.n), NAN)};
  const FewRows<Shape> kernel{params_of_product(q, from, made.out.data())};
  const int64_t tiles =
      (q.m + Shape::kRows - 1) / Shape::kRows * ((q.n + Shape::kColumns - 1) / Shape::kColumns);
  for (int64_t tile = 0; tile < tiles && made.wrong == nullptr; ++tile) {
    const cuda_double::ClusterShape shape{
        tile * kSums,    tiles * kSums,       kSums,
        Shape::kThreads, Shape::kSharedBytes, seed + static_cast<uint64_t>(tile)};
    made.wrong = cuda_double::run_cluster(shape, [&](HostBlock& block) {
      kernel(block);
      made.copied += block.copied();
    });
  }
  return made;
}

template <class Shape>
std::vector<float> run_tiles(const FloatProduct& q, FloatOperands& from) {
  std::vector<float> out(static_cast<size_t>(q.m * q.n), NAN);
  const TiledProduct<F32, Shape> kernel{params_of_product(q, from, out.data())};
  HostBlock block(0, 1, Shape::kThreads, Shape::kSharedBytes, 5);
  kernel(block);
  return out;
}

template <class F>
void with_shapes(F f) {
  f(Few8x16());
  f(Few8x32());
  f(Few8x64());
  f(Few16x32());
  f(Few24x32());
  f(Few32x32());
}

const FloatProduct kProblems[] = {
    {1, 1, 1},
    {2, 3, 5, true},
    {7, 33, 17},
    {8, 32, 256},
    {9, 31, 257, true},
    {5, 64, 512, false, Act::kRelu, false, true},
    {24, 48, 384, true, Act::kGelu, false, true, true},
    {40, 40, 96, false, Act::kClip, true, true, true},
    {65, 20, 600, true, Act::kNone, true},
    {33, 36, 1024, false, Act::kSilu, false, true},
    {16, 70, 255, true, Act::kTanh, false, false, true},
    {12, 36, 260, false, Act::kNone, false, true, false, 1},
    {12, 36, 260, true, Act::kSigmoid, true, true, true, 2},
    {11, 35, 512, true, Act::kNone, false, true, false, 3},
    {9, 40, 2304, true},  // more stages than shared memory holds
    {17, 36, 2304, false, Act::kRelu, false, true},
};

TEST_CASE("a product of few rows has the reference's values, whatever its shape and what follows it") {
  for (const FloatProduct& q : kProblems) {
    CAPTURE(q.m);
    CAPTURE(q.n);
    CAPTURE(q.k);
    FloatOperands from(q);
    with_shapes([&]<class Shape>(Shape) {
      const Run got = run_few<Shape>(q, from);
      CHECK(got.wrong == nullptr);
      CHECK(count_wrong(q, from, got.out) == 0);
    });
  }
}

TEST_CASE("a product of few rows has the tiles' bits in every shape of both") {
  for (const FloatProduct& q : kProblems) {
    CAPTURE(q.m);
    CAPTURE(q.n);
    CAPTURE(q.k);
    FloatOperands from(q);
    const std::vector<float> tiles = run_tiles<Tile32x32>(q, from);
    CHECK(same_floats(run_tiles<Tile4x8>(q, from), tiles));
    with_shapes([&]<class Shape>(Shape) { CHECK(same_floats(run_few<Shape>(q, from).out, tiles)); });
  }
}

TEST_CASE("a tile of few rows copies its own rows and columns, once, and nothing else") {
  for (const FloatProduct& q : {
           FloatProduct{1, 64, 256},
           FloatProduct{3, 36, 384, true},  // some groups have no part of k
           FloatProduct{25, 100, 768},      // parts that end within a stage
           FloatProduct{40, 7, 1024, true},
       }) {
    CAPTURE(q.m);
    FloatOperands from(q);
    with_shapes([&]<class Shape>(Shape) {
      const int64_t tall = (q.m + Shape::kRows - 1) / Shape::kRows,
                    wide = (q.n + Shape::kColumns - 1) / Shape::kColumns;
      CHECK(run_few<Shape>(q, from).copied == (wide * q.m + tall * q.n) * q.k / 4);
    });
  }
}

TEST_CASE("infinities, NaN and negative zeros of a product of few rows are the tiles'") {
  for (const bool turned : {false, true}) {
    const FloatProduct q{10, 40, 300, turned};
    FloatOperands from(q);
    from.x.data()[3 * 300 + 7] = INFINITY;
    from.x.data()[4 * 300 + 299] = NAN;
    from.y.data()[11] = -INFINITY;
    for (int64_t i = 0; i < 300; ++i) from.x.data()[5 * 300 + i] = -0.0f;
    for (int64_t i = 0; i < 300; ++i) from.x.data()[6 * 300 + i] = -1e-38f * 1e-6f;
    const std::vector<float> tiles = run_tiles<Tile16x16>(q, from);
    with_shapes([&]<class Shape>(Shape) {
      const std::vector<float> few = run_few<Shape>(q, from).out;
      int64_t other = 0;
      for (size_t i = 0; i < tiles.size(); ++i) {
        const bool both = std::isnan(few[i]) && std::isnan(tiles[i]);
        other += both || std::memcmp(&few[i], &tiles[i], sizeof(float)) == 0 ? 0 : 1;
      }
      CHECK(other == 0);
    });
  }
}

TEST_CASE("the order of a cluster's blocks and of their threads changes no bit of a product of few rows") {
  const FloatProduct q{20, 40, 520, false, Act::kRelu, false, true};
  FloatOperands from(q);
  const std::vector<float> wanted = run_few<Few16x32>(q, from).out;
  for (uint64_t seed = 2; seed < 40; ++seed) {
    const Run got = run_few<Few16x32>(q, from, seed);
    CHECK(got.wrong == nullptr);
    CHECK(same_floats(got.out, wanted));
  }
}

// Sums of three numbers each, which come as three groups of copies into two places.
struct InStages {
  bool awaits;
  uint64_t from, out;

  template <class Block>
  void operator()(Block& block) const {
    auto* const stages = block.template shared<Four<float>>(2 * kWarp);
    typename Block::template Own<float> sum(block);
    const auto start = [&](int step) {
      block.each_alone([&](int thread) {
        const auto place = static_cast<uint64_t>(step * kWarp + thread);
        if (step < 3) block.copy(stages + step % 2 * kWarp + thread, from + place * sizeof(Four<float>));
      });
      block.end_copies();
    };
    start(0);
    start(1);
    for (int step = 0; step < 3; ++step) {
      if (awaits && step == 0) block.template await_copies<1>();
      if (awaits && step > 0) block.template await_copies<0>();
      if (step > 0) start(step + 1);
      block.each([&](int thread) { sum[thread] += stages[step % 2 * kWarp + kWarp - 1 - thread].v[2]; });
    }
    block.each([&](int thread) { global<float>(out)[thread] = sum[thread]; });
  }
};

TEST_CASE("copies that a kernel does not await show") {
  FloatMatrix numbers(int64_t{4} * 3 * kWarp, 0, 7);
  std::vector<float> wanted(kWarp, 0);
  for (int step = 0; step < 3; ++step) {
    for (int t = 0; t < kWarp; ++t)
      wanted[static_cast<size_t>(t)] += numbers.data()[4 * (step * kWarp + kWarp - 1 - t) + 2];
  }
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    for (const bool awaits : {true, false}) {
      std::vector<float> out(kWarp);
      const InStages kernel{awaits, numbers.at(), reinterpret_cast<uint64_t>(out.data())};
      HostBlock block(0, 1, kWarp, 2 * kWarp * sizeof(Four<float>), seed);
      kernel(block);
      CHECK(same_floats(out, wanted) == awaits);
    }
  }
}

// Each block sends its rank to the next one, whose answer it is.
struct Ring {
  static constexpr int kCluster = 4;
  int puts = 1;
  bool awaits_all = true, awaits_puts = true, reads_early = false;
  int follows = 1;
  uint64_t out = 0;

  template <class Block>
  void operator()(Block& block) const {
    auto* const mine = block.template shared<Four<float>>(1);
    const int rank = static_cast<int>(block.index() % kCluster);
    const auto read = [&] {
      block.each([&](int thread) {
        if (thread == 0) global<float>(out)[rank] = mine->v[3];
      });
    };
    for (int i = 0; i < follows; ++i) block.follow();
    block.arrive(puts);
    if (awaits_all) block.await();
    block.each([&](int thread) {
      const auto sent = static_cast<float>(rank + 1);
      if (thread == 0) block.put(mine, (rank + 1) % kCluster, Four<float>{{sent, sent, sent, sent}});
    });
    if (reads_early) read();
    if (awaits_puts) block.await_puts();
    if (!reads_early) read();
  }
};

TEST_CASE("what a kernel of clusters does not await shows") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::vector<float> out;
    const auto run = [&](Ring ring) {
      out.assign(4, -1);
      ring.out = reinterpret_cast<uint64_t>(out.data());
      const cuda_double::ClusterShape shape{0, 4, 4, 32, kPutBytes + kArriveBytes, seed};
      return cuda_double::run_cluster(shape, [&](HostBlock& block) { ring(block); });
    };
    const std::vector<float> right = {4, 1, 2, 3};
    CHECK(run({}) == nullptr);
    CHECK(out == right);
    CHECK(run({.awaits_all = false}) != nullptr);
    CHECK(run({.awaits_puts = false}) != nullptr);
    CHECK(run({.puts = 0}) != nullptr);
    CHECK(run({.puts = 2}) != nullptr);
    CHECK(run({.follows = 0}) != nullptr);
    CHECK(run({.follows = 2}) != nullptr);
    CHECK(run({.reads_early = true}) == nullptr);
    CHECK(out != right);
  }
}

TEST_CASE("a block that awaits others in vain is found") {
  const cuda_double::ClusterShape shape{0, 4, 4, 32, 64, 3};
  const char* const stuck = cuda_double::run_cluster(shape, [](HostBlock& block) {
    if (block.index() != 1) block.arrive(0);
    block.await();
  });
  CHECK(stuck != nullptr);
}

}  // namespace
}  // namespace heddle::cuda
