// fragment.h: matrices of floats in the registers of a warp, and their product on tensor cores.
//
//   What       multiply() adds to a sum of 16 x 8 floats the product of 16 x 16 and 16 x 8 elements, as PTX
//              defines mma.m16n8k16: of each matrix a thread holds the elements that PTX gives it.
//              multiply_tf32() does so for 16 x 8 and 8 x 8 floats, of which kTf32Bits count (m16n8k8).
//              load_matrices() reads four matrices of 8 x 8 from shared memory, as ldmatrix does; Copies
//              brings elements there from global memory, as cp.async does.
//   Where      Compute capability 8.0 and newer; a kernel's lowering asks.
//   Bits       An element of the product depends on its row, its column and its sum, and on nothing beside
//              them. In which order 16 products are added the hardware says; the host adds them in double.
//   Uniform    multiply(), multiply_tf32(), load_matrices() and arrive() are called by all threads, never
//              inside a phase; start() is called in a phase. They are not in block.h because compiled chains
//              include that.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

inline constexpr int kFragment = 16;               // rows, and elements of a sum
inline constexpr int kSpan = 8;                    // columns; elements that are copied at once
inline constexpr uint32_t kTf32Bits = 0xffffe000;  // of a float: those that a TF32 has

struct Left {  // rows by elements of a sum
  uint32_t v[4];
};
struct Right {  // elements of a sum by columns
  uint32_t v[2];
};
struct Factors {
  float* sum;  // four; what they were is added
  Left left;
  Right right;
};
struct Matrices {
  uint32_t* to;         // four
  const uint16_t* row;  // that this thread names: the (lane % 8)th of matrix lane / 8; 16 bytes
};
struct alignas(16) Span {
  uint16_t v[kSpan];
};

template <Type kType>
using HalfOf = std::conditional_t<kType == Type::kF16, AsHalf<from_f16, to_f16>, AsHalf<from_bf16, to_bf16>>;

// Two elements of a row as a register has them.
template <Type kType>
HEDDLE_DEVICE uint32_t packed(float first, float second) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t both;
  if constexpr (kType == Type::kF16) {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  } else {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
  }
  return both;
#else
  const uint32_t low = HalfOf<kType>::template write<float>(first);
  return low | uint32_t{HalfOf<kType>::template write<float>(second)} << 16;
#endif
}

#if defined(__CUDACC__)

// factors(thread's own value) names what the thread multiplies.
template <Type kType, class T, class F>
HEDDLE_DEVICE void multiply(GpuBlock&, GpuBlock::Own<T>& own, F factors) {
  const Factors f = factors(own[0]);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define HEDDLE_MULTIPLY(type)                                                                               \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." type "." type                                       \
               ".f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                       \
               : "+f"(f.sum[0]), "+f"(f.sum[1]), "+f"(f.sum[2]), "+f"(f.sum[3])                             \
               : "r"(f.left.v[0]), "r"(f.left.v[1]), "r"(f.left.v[2]), "r"(f.left.v[3]), "r"(f.right.v[0]), \
                 "r"(f.right.v[1]))
  if constexpr (kType == Type::kF16) {
    HEDDLE_MULTIPLY("f16");
  } else {
    HEDDLE_MULTIPLY("bf16");
  }
#undef HEDDLE_MULTIPLY
#else
  __trap();
#endif
}

template <class T, class F>
HEDDLE_DEVICE void multiply_tf32(GpuBlock&, GpuBlock::Own<T>& own, F factors) {
  const Factors f = factors(own[0]);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(f.sum[0]), "+f"(f.sum[1]), "+f"(f.sum[2]), "+f"(f.sum[3])
      : "r"(f.left.v[0]), "r"(f.left.v[1]), "r"(f.left.v[2]), "r"(f.left.v[3]), "r"(f.right.v[0]),
        "r"(f.right.v[1]));
#else
  __trap();
#endif
}

// matrices(thread, its own value). With kTurned rows and columns change places.
template <bool kTurned, class T, class F>
HEDDLE_DEVICE void load_matrices(GpuBlock&, GpuBlock::Own<T>& own, F matrices) {
  const Matrices m = matrices(static_cast<int>(threadIdx.x), own[0]);
  const auto row = static_cast<uint32_t>(__cvta_generic_to_shared(m.row));
#define HEDDLE_LOAD(turned)                                                                 \
  asm volatile("ldmatrix.sync.aligned.m8n8.x4" turned ".shared.b16 {%0, %1, %2, %3}, [%4];" \
               : "=r"(m.to[0]), "=r"(m.to[1]), "=r"(m.to[2]), "=r"(m.to[3])                 \
               : "r"(row))
  if constexpr (kTurned) {
    HEDDLE_LOAD(".trans");
  } else {
    HEDDLE_LOAD("");
  }
#undef HEDDLE_LOAD
}

template <class Block>
class Copies;
template <>
class Copies<GpuBlock> {
 public:
  // The first `count` of eight elements, and zeros for the rest. Both addresses are multiples of 16 bytes.
  HEDDLE_DEVICE void start(uint16_t* to, uint64_t from, int count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const auto at = static_cast<uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(count * 2));
#else
    __trap();
#endif
  }
  // All that any thread started has come, for all threads; and a barrier.
  HEDDLE_DEVICE void arrive(GpuBlock& block) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    block.each([](int) {});
  }
};

#else

template <Type kType>
float element_of(const uint32_t* registers, int number) {
  return HalfOf<kType>::template read<float>(
      static_cast<uint16_t>(registers[number / 2] >> (number % 2 * 16)));
}

template <Type kType, class T, class F>
void multiply(HostBlock& block, HostBlock::Own<T>& own, F factors) {
  for (int warp = 0; warp < block.threads(); warp += kWarp) {
    float left[kFragment][kFragment], right[kSpan][kFragment];  // of one column beside each other
    float* sums[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) {
      const Factors f = factors(own[warp + lane]);
      const int group = lane / 4, pair = lane % 4 * 2;
      sums[lane] = f.sum;
      for (int i = 0; i < 8; ++i) {
        const int row = group + i / 2 % 2 * 8, k = pair + i % 2 + i / 4 * 8;
        left[row][k] = element_of<kType>(f.left.v, i);
      }
      for (int i = 0; i < 4; ++i) right[group][pair + i % 2 + i / 2 * 8] = element_of<kType>(f.right.v, i);
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const float *const row = left[lane / 4 + i / 2 * 8], *const column = right[lane % 4 * 2 + i % 2];
        double sum = sums[lane][i];
        for (int k = 0; k < kFragment; ++k) sum += double{row[k]} * double{column[k]};
        sums[lane][i] = static_cast<float>(sum);
      }
    }
  }
}

template <class T, class F>
void multiply_tf32(HostBlock& block, HostBlock::Own<T>& own, F factors) {
  const auto read = [](uint32_t bits) { return bits_as<float>(bits & kTf32Bits); };
  for (int warp = 0; warp < block.threads(); warp += kWarp) {
    float left[kFragment][kSpan], right[kSpan][kSpan];  // of one column beside each other
    float* sums[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) {
      const Factors f = factors(own[warp + lane]);
      const int group = lane / 4, k = lane % 4;
      sums[lane] = f.sum;
      for (int i = 0; i < 4; ++i) left[group + i % 2 * 8][k + i / 2 * 4] = read(f.left.v[i]);
      for (int i = 0; i < 2; ++i) right[group][k + i * 4] = read(f.right.v[i]);
    }
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int i = 0; i < 4; ++i) {
        const float *const row = left[lane / 4 + i / 2 * 8], *const column = right[lane % 4 * 2 + i % 2];
        double sum = sums[lane][i];
        for (int k = 0; k < kSpan; ++k) sum += double{row[k]} * double{column[k]};
        sums[lane][i] = static_cast<float>(sum);
      }
    }
  }
}

template <bool kTurned, class T, class F>
void load_matrices(HostBlock& block, HostBlock::Own<T>& own, F matrices) {
  for (int warp = 0; warp < block.threads(); warp += kWarp) {
    Matrices all[kWarp];
    for (int lane = 0; lane < kWarp; ++lane) all[lane] = matrices(warp + lane, own[warp + lane]);
    for (int lane = 0; lane < kWarp; ++lane) {
      for (int matrix = 0; matrix < 4; ++matrix) {
        const auto at = [&](int row, int column) {
          return kTurned ? all[matrix * 8 + column].row[row] : all[matrix * 8 + row].row[column];
        };
        const int row = lane / 4, column = lane % 4 * 2;
        all[lane].to[matrix] = uint32_t{at(row, column)} | uint32_t{at(row, column + 1)} << 16;
      }
    }
  }
}

template <class Block>
class Copies;
// What is copied is there when it has arrived, and before that what no element is.
template <>
class Copies<HostBlock> {
 public:
  void start(uint16_t* to, uint64_t from, int count) {
    for (int e = 0; e < kSpan; ++e) to[e] = 0xffff;
    under_way_.push_back({to, from, count});
  }
  void arrive(HostBlock& block) {
    for (const Copy& each : under_way_) {
      for (int e = 0; e < kSpan; ++e)
        each.to[e] = e < each.count ? *global<const uint16_t>(each.from + uint64_t{2} * unsigned(e)) : 0;
    }
    under_way_.clear();
    block.each([](int) {});
  }

 private:
  struct Copy {
    uint16_t* to;
    uint64_t from;
    int count;
  };
  std::vector<Copy> under_way_;
};

#endif

}  // namespace heddle::cuda
