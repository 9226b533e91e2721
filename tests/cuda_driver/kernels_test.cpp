// Kernels that no graph reaches in all their forms, called as they are.
#include <doctest/doctest.h>

#include <cmath>
#include <random>
#include <vector>

#include "drivers/cuda/kernels/fragment.h"
#include "drivers/cuda/kernels/product.h"

namespace heddle::cuda {
namespace {

// Elements of a type, from a multiple of 16 bytes on or from one element after it.
class Elements {
 public:
  Elements(Type type, int64_t count, int64_t first, uint32_t seed)
      : type_(type), count_(count), words_(static_cast<size_t>((count + first) / 2 + 1)) {
    const uint64_t begin = reinterpret_cast<uint64_t>(words_.data());
    REQUIRE(begin % 16 == 0);
    at = begin + static_cast<uint64_t>(first) * (type == Type::kF32 ? 4 : 2);
    std::mt19937 random(seed);
    std::normal_distribution<float> normal(0, 2);
    for (int64_t i = 0; i < count; ++i) store<float>(at, type, i, normal(random));
  }
  double operator[](int64_t i) const { return load<double>(at, type_, i); }
  std::vector<double> all() const {
    std::vector<double> all;
    for (int64_t i = 0; i < count_; ++i) all.push_back((*this)[i]);
    return all;
  }

  uint64_t at;

 private:
  Type type_;
  int64_t count_;
  std::vector<uint64_t> words_;
};

template <class Kernel>
void call_kernel(const Kernel& kernel, int64_t blocks, int threads) {
  for (int64_t i = 0; i < blocks; ++i) {
    HostBlock block(i, blocks, threads, 0, 17 + static_cast<uint64_t>(i));
    kernel(block);
  }
}

struct Follows {  // a sum of products
  int64_t batches, m, n, c_row, c_column;
  bool c, bias, residual;
};

// What follows sums that begin `first` elements after a multiple of 16 bytes, as the kernel makes it.
std::vector<double> made_of(const Follows& f, Type type, Act act, int64_t first,
                            std::vector<double>& wanted) {
  const int64_t count = f.batches * f.m * f.n;
  const Elements out(type, count, first, 1), c(type, f.m * f.n, 0, 2), bias(type, f.n, 0, 3),
      residual(type, count, 0, 4);
  ProductParams p;
  p.type = type;
  p.act = act;
  p.act_numbers = act == Act::kClip ? Numbers{-0.5, 1.5} : Numbers{0.2, 0.5};
  p.batches = f.batches;
  p.m = f.m;
  p.n = f.n;
  p.c_row = f.c_row;
  p.c_column = f.c_column;
  p.alpha = 0.75;
  p.beta = -0.5;
  p.out = out.at;
  p.c = f.c ? c.at : 0;
  p.bias = f.bias ? bias.at : 0;
  p.residual = f.residual ? residual.at : 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = i / f.n % f.m, column = i % f.n;
    double x = out[i] * p.alpha;
    if (f.c) x += p.beta * c[row * f.c_row + column * f.c_column];
    if (f.bias) x += bias[column];
    wanted.push_back(activated<double>(act, x, p.act_numbers) + (f.residual ? residual[i] : 0));
  }
  call_kernel(EndOfProduct{p}, 3, 64);
  return out.all();
}

TEST_CASE(
    "every kernel gives what follows a product: the same where 16 bytes are read at once and elsewhere") {
  const Follows all[] = {
      {1, 5, 24, 0, 0, false, true, false},  {1, 5, 24, 24, 1, true, true, true},
      {2, 3, 16, 16, 1, true, false, false}, {2, 3, 16, 0, 1, true, true, false},
      {1, 7, 8, 1, 0, true, false, true},    {1, 40, 64, 0, 0, false, false, true},
      {3, 2, 13, 13, 1, true, true, true},   {1, 0, 8, 0, 0, false, true, false},
  };
  for (const Type type : {Type::kF32, Type::kF16, Type::kBF16}) {
    const double close = type == Type::kF32 ? 2e-6 : type == Type::kF16 ? 2e-3 : 1.6e-2;
    for (int act = 0; act <= static_cast<int>(Act::kClip); ++act) {
      for (const Follows& f : all) {
        CAPTURE(static_cast<int>(type));
        CAPTURE(act);
        CAPTURE(f.n);
        std::vector<double> wanted, unused;
        const std::vector<double> got = made_of(f, type, static_cast<Act>(act), 0, wanted);
        REQUIRE(got.size() == wanted.size());
        size_t wrong = 0;
        for (size_t i = 0; i < got.size(); ++i)
          wrong += std::fabs(got[i] - wanted[i]) <= close * (1 + std::fabs(wanted[i])) ? 0 : 1;
        CHECK(wrong == 0);
        CHECK(made_of(f, type, static_cast<Act>(act), 1, unused) == got);
      }
    }
  }
}

// 6e-8 and 2e-7 of the value; the GPU's power of two adds 4e-8 to the first.
TEST_CASE("GELU of f32 is within 2e-7 of its value, or 6e-8 of zero, from -10 to 10") {
  const Numbers none;
  double worst = 0, worst_tail = 0;
  for (int i = -10 * 8192; i <= 10 * 8192; ++i) {
    const float x = static_cast<float>(i) / 8192;
    const double exact = 0.5 * double{x} * std::erfc(-double{x} / std::sqrt(2.0));
    const double error = std::fabs(double{Gelu::apply<float>(&x, none)} - exact);
    worst = std::max(worst, error / (6e-8 + 2e-7 * std::fabs(exact)));
    if (x < 0 && x >= -4) worst_tail = std::max(worst_tail, error / std::fabs(exact));
  }
  CHECK(worst <= 1);
  CHECK(worst_tail <= 5e-6);
  const auto gelu = [&](float x) { return Gelu::apply<float>(&x, none); };
  CHECK(gelu(INFINITY) == INFINITY);
  CHECK(gelu(3e38f) == 3e38f);
  CHECK(gelu(-3e38f) == 0);
  CHECK(std::isnan(gelu(NAN)));
}

// What lies where is written down here again, from PTX's description of mma.m16n8k16: a thread's registers
// hold a0 a1 | a2 a3 | a4 a5 | a6 a7, b0 b1 | b2 b3 and c0, c1, c2, c3.
struct Places {
  int group, in_group;  // of the thread: lane / 4, lane % 4
  int a_row(int i) const { return i < 2 || (i >= 4 && i < 6) ? group : group + 8; }
  int a_column(int i) const { return in_group * 2 + (i & 1) + (i < 4 ? 0 : 8); }
  int b_row(int i) const { return in_group * 2 + (i & 1) + (i < 2 ? 0 : 8); }
  int b_column(int) const { return group; }
  int c_row(int i) const { return i < 2 ? group : group + 8; }
  int c_column(int i) const { return in_group * 2 + (i & 1); }
};

struct Fragments {
  Left left;
  Right right;
  float sum[4];
};

// Numbers that 16 bits hold, whose products and sums f32 holds: the result is the same in any order.
int small_number(int row, int column, int turn) { return (row * 7 + column * 5 + turn * 3) % 17 - 8; }

template <Type kType>
void check_product(int threads) {
  HostBlock block(0, 1, threads, 0, 3);
  HostBlock::Own<Fragments> own(block);
  const auto each = [&](auto f) {
    for (int t = 0; t < threads; ++t) f(Places{t % kWarp / 4, t % 4}, t / kWarp, own[t]);
  };
  each([](const Places& at, int warp, Fragments& mine) {
    const auto set = [](uint32_t* registers, int i, int number) {
      const uint32_t word = HalfOf<kType>::template write<float>(static_cast<float>(number));
      registers[i / 2] |= word << (i % 2 * 16);
    };
    mine = {};
    for (int i = 0; i < 8; ++i) set(mine.left.v, i, small_number(at.a_row(i), at.a_column(i), warp));
    for (int i = 0; i < 4; ++i) set(mine.right.v, i, small_number(at.b_row(i), at.b_column(i), warp + 1));
    for (int i = 0; i < 4; ++i)
      mine.sum[i] = static_cast<float>(small_number(at.c_row(i), at.c_column(i), warp + 2));
  });
  multiply<kType>(block, own, [](Fragments& mine) { return Factors{mine.sum, mine.left, mine.right}; });
  int wrong = 0;
  each([&](const Places& at, int warp, const Fragments& mine) {
    for (int i = 0; i < 4; ++i) {
      int sum = small_number(at.c_row(i), at.c_column(i), warp + 2);
      for (int k = 0; k < 16; ++k)
        sum += small_number(at.c_row(i), k, warp) * small_number(k, at.c_column(i), warp + 1);
      wrong += mine.sum[i] == static_cast<float>(sum) ? 0 : 1;
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("a product of fragments is that of the matrices that PTX says they are, for each warp") {
  for (const int threads : {32, 64, 96, 256}) {
    check_product<Type::kF16>(threads);
    check_product<Type::kBF16>(threads);
  }
}

template <bool kTurned>
void check_load(int threads) {
  constexpr int kStride = 24;
  std::vector<uint16_t> words(static_cast<size_t>(threads) * kStride);
  for (size_t i = 0; i < words.size(); ++i) words[i] = static_cast<uint16_t>(i);
  HostBlock block(0, 1, threads, 0, 3);
  HostBlock::Own<Fragments> own(block);
  load_matrices<kTurned>(block, own, [&](int thread, Fragments& mine) {
    return Matrices{mine.left.v, words.data() + thread * kStride};
  });
  int wrong = 0;
  for (int t = 0; t < threads; ++t) {
    for (int matrix = 0; matrix < 4; ++matrix) {
      for (int i = 0; i < 2; ++i) {
        const int row = kTurned ? t % 4 * 2 + i : t % kWarp / 4,
                  column = kTurned ? t % kWarp / 4 : t % 4 * 2 + i;
        const int at = (t / kWarp * kWarp + matrix * 8 + row) * kStride + column;
        const auto got = static_cast<uint16_t>(own[t].left.v[matrix] >> (i * 16));
        wrong += got == words[static_cast<size_t>(at)] ? 0 : 1;
      }
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("matrices in shared memory come as fragments, row by row or turned") {
  for (const int threads : {32, 128}) {
    check_load<false>(threads);
    check_load<true>(threads);
  }
}

TEST_CASE("what is copied to shared memory is not there before it arrives") {
  alignas(16) uint16_t from[8] = {1, 2, 3, 4, 5, 6, 7, 8}, to[16] = {};
  HostBlock block(0, 1, 32, 0, 3);
  Copies<HostBlock> copies;
  copies.start(to, reinterpret_cast<uint64_t>(from), 5);
  copies.start(to + 8, reinterpret_cast<uint64_t>(from), 8);
  CHECK(to[0] == 0xffff);
  copies.arrive(block);
  CHECK(std::vector<uint16_t>(to, to + 16) ==
        std::vector<uint16_t>{1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("a quotient is right on both sides of 32 bits") {
  const int64_t all[] = {1, 2, 7, INT32_MAX, int64_t{UINT32_MAX}, int64_t{1} << 32, (int64_t{1} << 40) + 9};
  for (const int64_t x : all) {
    for (const int64_t y : all) CHECK(quotient(x, y) == x / y);
  }
}

}  // namespace
}  // namespace heddle::cuda
