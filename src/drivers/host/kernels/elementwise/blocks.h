// blocks.h: the element-wise instructions: each is one vectorised loop over a block of registers.
//
//   What       A register is a block of up to kBlock elements of one Kind. The sixteen-bit floats are
//              computed in f32, integers in i64 and wrapped to their width by store or wrap; bool is one
//              byte, 0 or 1.
//   Invariant  An instruction writes only its destination, element i from elements i. Its bits do not depend
//              on i or count.
//   Threads    Tables are constants; kernels are pure functions over the caller's memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "ir/dtype.h"

namespace heddle::host {

inline constexpr int64_t kBlock = 512;  // f32 registers of a typical fused chain stay in L1
inline constexpr int64_t kRegisterBytes = kBlock * 8;

enum class Kind : uint8_t { kF32, kF64, kI64, kBool };

Kind kind_of(ir::DType dtype);
bool is_native(ir::DType dtype);  // memory and register hold the same bytes

struct BlockArgs {
  const void* a;
  const void* b;
  const void* c;
  void* d;
  int64_t count;
  double alpha;
  double beta;
};
using BlockKernel = void (*)(const BlockArgs&);

struct BlockEntry {
  std::string_view op;
  Kind operand;  // of the last operand: Where's condition is always bool
  Kind result;
  BlockKernel run;
};

// Null when there is none.
BlockKernel find_block(std::string_view op, Kind operand, Kind* result);
BlockKernel cast_block(Kind from, Kind to);
BlockKernel load_block(ir::DType dtype);   // memory a -> register d; a plain copy for native types
BlockKernel store_block(ir::DType dtype);  // register a -> memory d
BlockKernel wrap_block(ir::DType dtype);   // register a -> register d, rounded or wrapped to what the type
                                           // holds; null when it holds all

// The families.
std::span<const BlockEntry> unary_blocks();
std::span<const BlockEntry> binary_blocks();
std::span<const BlockEntry> trigonometry_blocks();
std::span<const BlockEntry> bit_blocks();

}  // namespace heddle::host
