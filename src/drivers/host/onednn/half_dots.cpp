#include "drivers/host/onednn/half_dots.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <dnnl.hpp>

#include "drivers/host/onednn/engine.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace heddle::host {

#if defined(__x86_64__)

namespace {

#define HEDDLE_WIDE __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

constexpr int64_t kAtOnce = 4;      // columns
constexpr int64_t kMostAtOnce = 6;  // rows: all sums stay in registers

using Sixteen = float __attribute__((vector_size(64)));
using Quad = float __attribute__((vector_size(16)));

HEDDLE_WIDE inline __mmask32 first_of(int64_t all, int64_t left) {
  return left >= all ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
}

// How operands are read, `kElements` at a time or those of the mask, and multiplied.
struct PairsOfBf16 {
  using X = uint16_t;
  static constexpr int64_t kElements = 32;
  // Not as __m512bh: a function of Clang 16 without optimisation returns garbage for that.
  HEDDLE_WIDE static __m512i x(const uint16_t* from, __mmask32 those) {
    return _mm512_maskz_loadu_epi16(those, from);
  }
  HEDDLE_WIDE static __m512i weight(const uint16_t* from, __mmask32 those) { return x(from, those); }
  HEDDLE_WIDE static Sixteen added(Sixteen sum, __m512i x, __m512i w) {
    return _mm512_dpbf16_ps(sum, reinterpret_cast<__m512bh>(x), reinterpret_cast<__m512bh>(w));
  }
};

struct InF32 {
  using X = float;
  static constexpr int64_t kElements = 16;
  HEDDLE_WIDE static __m512 x(const float* from, __mmask32 those) {
    return _mm512_maskz_loadu_ps(static_cast<__mmask16>(those), from);
  }
  HEDDLE_WIDE static __m256i halves(const uint16_t* from, __mmask32 those) {
    return _mm256_maskz_loadu_epi16(static_cast<__mmask16>(those), from);
  }
  HEDDLE_WIDE static Sixteen added(Sixteen sum, __m512 x, __m512 w) { return _mm512_fmadd_ps(x, w, sum); }
};
struct F16InF32 : InF32 {
  HEDDLE_WIDE static __m512 weight(const uint16_t* from, __mmask32 those) {
    return _mm512_cvtph_ps(halves(from, those));
  }
};
struct Bf16InF32 : InF32 {
  HEDDLE_WIDE static __m512 weight(const uint16_t* from, __mmask32 those) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves(from, those)), 16));
  }
};

// GCC 12 takes what its own intrinsics for this leave undefined for a mistake.
HEDDLE_WIDE inline Sixteen sums_of_pairs(const Sixteen& a, const Sixteen& b) {
  return __builtin_shufflevector(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
         __builtin_shufflevector(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
}

// The sum of each.
HEDDLE_WIDE inline Quad sums_of(const std::array<Sixteen, kAtOnce>& s) {
  const Sixteen ab = sums_of_pairs(s[0], s[1]), cd = sums_of_pairs(s[2], s[3]);
  const Sixteen quarters =
      __builtin_shufflevector(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
      __builtin_shufflevector(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
  return (__builtin_shufflevector(quarters, quarters, 0, 1, 2, 3) +
          __builtin_shufflevector(quarters, quarters, 8, 9, 10, 11)) +
         (__builtin_shufflevector(quarters, quarters, 4, 5, 6, 7) +
          __builtin_shufflevector(quarters, quarters, 12, 13, 14, 15));
}

struct Columns {
  std::array<const uint16_t*, kAtOnce> rows;  // of the weight
  int64_t ahead;  // from these to those after them, which the groups of x fetch in turn
  int64_t first_fetch, fetch_step;
};

// to[row][column], of kRows rows of x. Unrolled, so that GCC 12 keeps the sums in registers.
template <class How, size_t kRows>
HEDDLE_WIDE void dots_of(const typename How::X* x, int64_t depth, const Columns& columns, float* to) {
  std::array<std::array<Sixteen, kAtOnce>, kRows> sums{};
  int64_t fetch = columns.first_fetch;
  for (int64_t at = 0; at < depth; at += How::kElements) {
    const __mmask32 those = first_of(How::kElements, depth - at);
    decltype(How::weight(nullptr, 0)) w[kAtOnce];
#pragma GCC unroll 8
    for (size_t column = 0; column < kAtOnce; ++column)
      w[column] = How::weight(columns.rows[column] + at, those);
    if (at == fetch) {
      for (const uint16_t* const row : columns.rows) __builtin_prefetch(row + columns.ahead + at);
      fetch += columns.fetch_step;
    }
#pragma GCC unroll 8
    for (size_t row = 0; row < kRows; ++row) {
      const auto its = How::x(x + static_cast<int64_t>(row) * depth + at, those);
#pragma GCC unroll 8
      for (size_t column = 0; column < kAtOnce; ++column)
        sums[row][column] = How::added(sums[row][column], its, w[column]);
    }
  }
#pragma GCC unroll 8
  for (size_t row = 0; row < kRows; ++row) {
    const Quad its = sums_of(sums[row]);
    std::memcpy(to + row * kAtOnce, &its, sizeof its);
  }
}

template <class How>
void all_dots(const HalfDots<typename How::X>& dots) {
  using DotsOf = void (*)(const typename How::X*, int64_t, const Columns&, float*);
  constexpr std::array<DotsOf, kMostAtOnce> kDotsOf = {dots_of<How, 1>, dots_of<How, 2>, dots_of<How, 3>,
                                                       dots_of<How, 4>, dots_of<How, 5>, dots_of<How, 6>};
  const int64_t groups = (dots.rows + kMostAtOnce - 1) / kMostAtOnce;
  for (int64_t first = 0; first < dots.columns; first += kAtOnce) {
    const int64_t count = std::min(kAtOnce, dots.columns - first);
    Columns columns{};
    for (int64_t i = 0; i < kAtOnce; ++i)  // the last one again where there are fewer
      columns.rows[static_cast<size_t>(i)] = dots.w + (first + std::min(i, count - 1)) * dots.depth;
    columns.ahead = kAtOnce * dots.depth;
    columns.fetch_step = groups * How::kElements;
    const bool more = first + 2 * kAtOnce <= dots.columns;
    for (int64_t group = 0; group < groups; ++group) {
      const int64_t begin = dots.rows * group / groups, rows = dots.rows * (group + 1) / groups - begin;
      std::array<float, kMostAtOnce * kAtOnce> sums;
      columns.first_fetch = more ? group * How::kElements : dots.depth;
      kDotsOf[static_cast<size_t>(rows - 1)](dots.x + begin * dots.depth, dots.depth, columns, sums.data());
      for (int64_t row = 0; row < rows; ++row) {
        float* const y = dots.y + (begin + row) * dots.y_stride + first;
        for (int64_t i = 0; i < count; ++i) {
          const float sum = sums[static_cast<size_t>(row * kAtOnce + i)];
          y[i] = sum + (dots.bias == nullptr ? 0 : dots.bias[first + i]);
        }
      }
    }
  }
}

}  // namespace

bool has_half_dots() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core);
  return (isa & wanted) == wanted;
}
bool has_bf16_dots() { return Engine::multiplies_bf16(); }

void half_dots(ir::DType weight, const HalfDots<float>& dots) {
  if (weight == ir::DType::kF16) return all_dots<F16InF32>(dots);
  all_dots<Bf16InF32>(dots);
}
void bf16_dots(const HalfDots<uint16_t>& dots) { all_dots<PairsOfBf16>(dots); }

#else

bool has_half_dots() { return false; }
bool has_bf16_dots() { return false; }
void half_dots(ir::DType, const HalfDots<float>&) {}
void bf16_dots(const HalfDots<uint16_t>&) {}

#endif

}  // namespace heddle::host
