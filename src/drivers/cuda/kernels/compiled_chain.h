// compiled_chain.h: a chain of element-wise operators as a kernel of its own.
//
//   What       The frame of the sources that lowering/chain_source.h writes and NVRTC compiles: which
//              elements a thread takes, and how it reads and writes them. The source adds a Body: types, how
//              each operand lies, and the operators, which are those of scalar.h, step by step. It has the
//              bits of kernels/chain.h.
//   Shapes     Extents, strides, addresses and numbers are parameters: one kernel serves all shapes.
//   Blocks     A block takes a tile: of each thread `quads` times four elements in a row. All operands are
//              read before anything is computed, first those whose places are known at once. What is beyond
//              the last whole tile goes element by element, and so does everything where an address does not
//              allow one access for four elements.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/quad.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

// Where four elements in a row are: at the result's places, elsewhere but next to each other, all at one
// place, at one place that is the same for all elements, or each by itself.
enum class Lies { kFlat, kRow, kOne, kFixed, kEach };

struct CompiledHead {
  int64_t count = 0;
  int32_t quads = 1, unused = 0;  // of a thread in a tile: 1, or Body::kQuads
  Axes axes;
};

// `words`: addresses of operands, then those of results, then numbers, then kAxes strides for each operand
// that has places of its own.
template <int kWords>
struct CompiledParams {
  CompiledHead head;
  uint64_t words[kWords];
};

// An operand: the word of its address, how it is read, and where its strides begin.
template <int kAt, class AsWord, Lies kHow, int kStridesAt = 0>
struct ChainOperand {
  using As = AsWord;
  using Word = typename As::Word;
  static constexpr int kWord = kAt, kStrides = kStridesAt;
  static constexpr Lies kLies = kHow;
};

// Four of them, or one that stands for four.
template <class Word>
struct Single {
  Word x[1];
};
template <class Word>
HEDDLE_DEVICE Word element(const Quad<Word>& quad, int e) {
  return quad.x[e];
}
template <class Word>
HEDDLE_DEVICE Word element(const Single<Word>& single, int) {
  return single.x[0];
}

template <class Op, class C, class... X>
HEDDLE_DEVICE C made(const Numbers& numbers, X... x) {
  const C operands[] = {x...};
  return Op::template apply<C>(operands, numbers);
}

HEDDLE_DEVICE Numbers attributes_of(uint64_t word) {
  return {bits_as<float>(uint32_t(word)), bits_as<float>(uint32_t(word >> 32))};
}

template <class C>
HEDDLE_DEVICE C number_of(uint64_t word) {
  if constexpr (std::is_same_v<C, float>) {
    return bits_as<float>(uint32_t(word));
  } else {
    return C(word);
  }
}

// As one access, or two of 16 bytes: a compiler that sees the elements makes up to four of it.
#if defined(__CUDACC__)
HEDDLE_DEVICE void write_bits(uint32_t* to, uint32_t x) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(to), "r"(x) : "memory");
}
HEDDLE_DEVICE void write_bits(uint2* to, uint2 x) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(x.x), "r"(x.y) : "memory");
}
HEDDLE_DEVICE void write_bits(uint4* to, uint4 x) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w)
               : "memory");
}
template <int kBytes>
struct Access {
  using Bits = uint4;
};
template <>
struct Access<8> {
  using Bits = uint2;
};
template <>
struct Access<4> {
  using Bits = uint32_t;
};
template <class Word>
struct Accesses {
  using Bits = typename Access<sizeof(Quad<Word>)>::Bits;
  static constexpr int kCount = sizeof(Quad<Word>) / sizeof(Bits);
  Bits x[kCount];
};
template <class Word>
HEDDLE_DEVICE Quad<Word> read_whole(const Word* from) {
  using All = Accesses<Word>;
  All all;
  HEDDLE_UNROLL
  for (int i = 0; i < All::kCount; ++i) all.x[i] = reinterpret_cast<const typename All::Bits*>(from)[i];
  return bits_as<Quad<Word>>(all);
}
template <class Word>
HEDDLE_DEVICE void write_whole(Word* to, const Quad<Word>& quad) {
  using All = Accesses<Word>;
  const All all = bits_as<All>(quad);
  HEDDLE_UNROLL
  for (int i = 0; i < All::kCount; ++i) write_bits(reinterpret_cast<typename All::Bits*>(to) + i, all.x[i]);
}
#else
template <class Word>
Quad<Word> read_whole(const Word* from) {
  return *reinterpret_cast<const Quad<Word>*>(from);
}
template <class Word>
void write_whole(Word* to, const Quad<Word>& quad) {
  *reinterpret_cast<Quad<Word>*>(to) = quad;
}
#endif

template <class Body>
struct CompiledChain {
  using Operands = typename Body::Operands;
  using Results = typename Body::Results;
  static constexpr int kThreads = 256;
  CompiledParams<Body::kWords> p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    block.each([&](int thread) {
      const int64_t threads = block.threads(), tile = threads * kQuad * p.head.quads;
      const bool quads = all_take_quads();
      HEDDLE_ROLLED
      for (int64_t begin = block.index() * tile; begin < p.head.count; begin += block.blocks() * tile) {
        if (!quads || begin + tile > p.head.count) {
          const int64_t end = begin + tile < p.head.count ? begin + tile : p.head.count;
          HEDDLE_ROLLED
          for (int64_t i = begin + thread; i < end; i += threads) one(i);
          continue;
        }
        const int64_t first = begin + int64_t{thread} * kQuad;
        if constexpr (Body::kQuads > 1) {
          if (p.head.quads > 1) {
            whole<Body::kQuads>(first, threads * kQuad);
            continue;
          }
        }
        whole<1>(first, 0);
      }
    });
  }

 private:
  struct Places {
    int64_t at[Body::kPlaces + 1];  // of operands with places of their own, in their order
  };

  HEDDLE_DEVICE bool all_take_quads() const {
    bool all = true;
    Operands operands;
    Results results;
    const auto look = [&](int word, uint64_t align) { all = all && p.words[word] % align == 0; };
    Body::each_operand(operands, [&](auto operand, auto&) {
      using Of = decltype(operand);
      if constexpr (Of::kLies == Lies::kFlat || Of::kLies == Lies::kRow)
        look(Of::kWord, alignof(Quad<typename Of::Word>));
    });
    Body::each_result(
        results, [&](int word, auto& to) { look(word, alignof(std::remove_reference_t<decltype(to)>)); });
    return all;
  }

  // f(axis, place along it) of an element that there is: nothing is divided for the outermost axis.
  template <class F>
  HEDDLE_DEVICE void each_axis(int64_t element, F f) const {
    const Axes& axes = p.head.axes;
    int axis = axes.rank - 1;
    if (axes.small != 0) {
      uint32_t rest = static_cast<uint32_t>(element);
      HEDDLE_ROLLED
      for (; axis > 0; --axis) {
        const uint32_t extent = static_cast<uint32_t>(axes.extents[axis]), above = rest / extent;
        f(axis, static_cast<int64_t>(rest - above * extent));
        rest = above;
      }
      element = rest;
    }
    HEDDLE_ROLLED
    for (; axis > 0; --axis) {
      const int64_t above = element / axes.extents[axis];
      f(axis, element - above * axes.extents[axis]);
      element = above;
    }
    if (axis == 0) f(0, element);
  }

  HEDDLE_DEVICE Places places_of_element(int64_t element) const {
    Places places{};
    if constexpr (Body::kPlaces > 0) {
      each_axis(element, [&](int axis, int64_t along) {
        HEDDLE_UNROLL
        for (int k = 0; k < Body::kPlaces; ++k)
          places.at[k] += along * static_cast<int64_t>(p.words[Body::kStrides + k * kAxes + axis]);
      });
    }
    return places;
  }

  template <class Operand>
  HEDDLE_DEVICE const typename Operand::Word* memory(Operand) const {
    return global<const typename Operand::Word>(p.words[Operand::kWord]);
  }
  template <class Operand>
  static HEDDLE_DEVICE int64_t place(Operand, int64_t element, const Places& places) {
    if constexpr (Operand::kLies == Lies::kFlat) {
      return element;
    } else if constexpr (Operand::kLies == Lies::kFixed) {
      return 0;
    } else {
      return places.at[(Operand::kStrides - Body::kStrides) / kAxes];
    }
  }
  template <class Operand>
  static constexpr bool is_known_at_once() {
    return Operand::kLies == Lies::kFlat || Operand::kLies == Lies::kFixed;
  }

  HEDDLE_DEVICE void one(int64_t element) const {
    const Places places = places_of_element(element);
    Operands operands;
    Results results;
    Body::each_operand(operands, [&](auto operand, auto& to) {
      to.x[0] = memory(operand)[place(operand, element, places)];
    });
    Body::compute(p.words, operands, 0, results);
    Body::each_result(results, [&](int word, auto& from) {
      using Word = std::remove_reference_t<decltype(from.x[0])>;
      global<Word>(p.words[word])[element] = from.x[0];
    });
  }

  // Quads from `first` on, `apart` elements from each other.
  template <int kQuads>
  HEDDLE_DEVICE void whole(int64_t first, int64_t apart) const {
    Operands operands[kQuads];
    HEDDLE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      Body::each_operand(operands[q], [&](auto operand, auto& to) {
        if constexpr (is_known_at_once<decltype(operand)>()) read(operand, first + q * apart, {}, to);
      });
    }
    Places places[kQuads];
    HEDDLE_UNROLL
    for (int q = 0; q < kQuads; ++q) places[q] = places_of_element(first + q * apart);
    HEDDLE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      Body::each_operand(operands[q], [&](auto operand, auto& to) {
        if constexpr (!is_known_at_once<decltype(operand)>()) read(operand, first + q * apart, places[q], to);
      });
      read_each(first + q * apart, operands[q]);
    }
    HEDDLE_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      Results results;
      HEDDLE_UNROLL
      for (int e = 0; e < kQuad; ++e) Body::compute(p.words, operands[q], e, results);
      Body::each_result(results, [&](int word, auto& from) {
        using Word = std::remove_reference_t<decltype(from.x[0])>;
        write_whole(global<Word>(p.words[word]) + first + q * apart, from);
      });
    }
  }

  template <class Operand, class To>
  HEDDLE_DEVICE void read(Operand operand, int64_t first, const Places& places, To& to) const {
    const auto* const from = memory(operand) + place(operand, first, places);
    if constexpr (Operand::kLies == Lies::kFlat || Operand::kLies == Lies::kRow) {
      to = read_whole(from);
    } else {
      to.x[0] = *from;
    }
  }

  // The other elements of operands whose elements lie each by itself.
  HEDDLE_DEVICE void read_each(int64_t first, Operands& operands) const {
    if constexpr (Body::kEach) {
      HEDDLE_UNROLL
      for (int e = 1; e < kQuad; ++e) {
        const Places places = places_of_element(first + e);
        Body::each_operand(operands, [&](auto operand, auto& to) {
          if constexpr (decltype(operand)::kLies == Lies::kEach)
            to.x[e] = memory(operand)[place(operand, first + e, places)];
        });
      }
    }
  }
};

}  // namespace heddle::cuda

// What a source ends with: the kernel heddle_chain, and for tests/cuda_double what that is on the host.
#if defined(__CUDACC__)
#define HEDDLE_COMPILED_CHAIN(...)                                                                 \
  extern "C" __global__ void __launch_bounds__(heddle::cuda::CompiledChain<__VA_ARGS__>::kThreads) \
      heddle_chain(const __grid_constant__ heddle::cuda::CompiledChain<__VA_ARGS__> kernel) {      \
    heddle::cuda::GpuBlock block;                                                                  \
    heddle::cuda::start(kernel, block);                                                            \
  }
#else
namespace heddle::cuda {

struct HostChain {
  size_t params_bytes;
  int most_threads;
  void (*run)(const void* params, HostBlock& block);
  OnTouch* (**on_touch)();  // to be set before the first run (portable.h)
};

template <class Body>
void run_on_host(const void* params, HostBlock& block) {
  start(*static_cast<const CompiledChain<Body>*>(params), block);
}

}  // namespace heddle::cuda
#define HEDDLE_COMPILED_CHAIN(...)                                                                          \
  extern "C" __attribute__((visibility("default"))) const heddle::cuda::HostChain heddle_chain = {          \
      sizeof(heddle::cuda::CompiledChain<__VA_ARGS__>), heddle::cuda::CompiledChain<__VA_ARGS__>::kThreads, \
      heddle::cuda::run_on_host<__VA_ARGS__>, &heddle::cuda::on_touch_of_thread};
#endif
