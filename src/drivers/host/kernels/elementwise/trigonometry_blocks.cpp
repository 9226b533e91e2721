// Trigonometry and the bits of integers, as instructions on blocks. The libm functions run one element at a
// time: nets rarely use them.
#include <cmath>

#include "drivers/host/kernels/elementwise/block_loops.h"

namespace heddle::host {

namespace {

#define HEDDLE_LIBM(Name, function)  \
  struct Name {                      \
    template <class T>               \
    static HEDDLE_INLINE T of(T x) { \
      return std::function(x);       \
    }                                \
  }
HEDDLE_LIBM(Tan, tan);
HEDDLE_LIBM(Asin, asin);
HEDDLE_LIBM(Acos, acos);
HEDDLE_LIBM(Atan, atan);
HEDDLE_LIBM(Sinh, sinh);
HEDDLE_LIBM(Cosh, cosh);
HEDDLE_LIBM(Asinh, asinh);
HEDDLE_LIBM(Acosh, acosh);
HEDDLE_LIBM(Atanh, atanh);
#undef HEDDLE_LIBM

struct BitwiseAnd {
  static HEDDLE_INLINE int64_t of(int64_t a, int64_t b) { return a & b; }
};
struct BitwiseOr {
  static HEDDLE_INLINE int64_t of(int64_t a, int64_t b) { return a | b; }
};
struct BitwiseXor {
  static HEDDLE_INLINE int64_t of(int64_t a, int64_t b) { return a ^ b; }
};
struct BitwiseNot {
  static HEDDLE_INLINE int64_t of(int64_t x) { return ~x; }
};
struct ShiftLeft {  // by the width and more: nothing is left
  static HEDDLE_INLINE int64_t of(int64_t x, int64_t by) {
    const int64_t y = static_cast<int64_t>(static_cast<uint64_t>(x) << (by & 63));
    return by < 0 || by > 63 ? 0 : y;
  }
};
struct ShiftRight {  // by the width and more: what the sign fills in is left
  static HEDDLE_INLINE int64_t of(int64_t x, int64_t by) { return x >> (by < 0 || by > 63 ? 63 : by); }
};

constexpr BlockEntry kTrigonometry[] = {
    unary<Tan, float>("Tan"),      unary<Tan, double>("Tan"),     unary<Asin, float>("Asin"),
    unary<Asin, double>("Asin"),   unary<Acos, float>("Acos"),    unary<Acos, double>("Acos"),
    unary<Atan, float>("Atan"),    unary<Atan, double>("Atan"),   unary<Sinh, float>("Sinh"),
    unary<Sinh, double>("Sinh"),   unary<Cosh, float>("Cosh"),    unary<Cosh, double>("Cosh"),
    unary<Asinh, float>("Asinh"),  unary<Asinh, double>("Asinh"), unary<Acosh, float>("Acosh"),
    unary<Acosh, double>("Acosh"), unary<Atanh, float>("Atanh"),  unary<Atanh, double>("Atanh"),
};

constexpr BlockEntry kBits[] = {
    binary<BitwiseAnd, int64_t>("BitwiseAnd"),   binary<BitwiseOr, int64_t>("BitwiseOr"),
    binary<BitwiseXor, int64_t>("BitwiseXor"),   unary<BitwiseNot, int64_t>("BitwiseNot"),
    binary<ShiftLeft, int64_t>("BitShift:LEFT"), binary<ShiftRight, int64_t>("BitShift:RIGHT"),
};

}  // namespace

std::span<const BlockEntry> trigonometry_blocks() { return kTrigonometry; }
std::span<const BlockEntry> bit_blocks() { return kBits; }

}  // namespace heddle::host
