// limits.h: what Apple's stack cannot do or does wrongly on a Mac, by macOS and GPU, and what we do about it.
//
//   What       One table in limits.mm. Limits::of() gives the numbers that the lowering and the recorder ask
//              for; limits_of() gives the same rows for people.
//   Sources    Public reports and the workarounds of others. Nothing here was tried on a Mac.
//   Tests      Inject smaller numbers (MetalOptions::limits), so that no test needs gigabytes.
//   Threads    Pure; a Limits is plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace heddle::metal {

struct Mac {
  int64_t macos_major = 14;
  int64_t macos_minor = 0;
  int64_t family = 7;  // Metal's "Apple" family: 7 is M1, 8 is M2, 9 is M3 and M4
};

// What is largest still works. The defaults are those of a stack without limits.
struct Limits {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();

  // matrix products
  int64_t product_terms = kNone;   // of each sum, where rows and columns reach product_crowd
  int64_t product_crowd = 16;      // no limit of Apple's by itself
  int64_t product_extent = kNone;  // rows, columns and terms
  int64_t product_axes = kNone;
  // tensors of a graph, intermediates too
  int64_t array_elements = kNone;
  int64_t array_bytes = kNone;
  int64_t array_axes = kNone;
  // copies
  int64_t blit_bytes = kNone;
  // single operators
  int64_t reduced_axes = kNone;  // a reduced axis is one of the last so many
  int64_t ordered_axes = kNone;  // the same for scans and sorts
  int64_t convolution_extent = kNone;
  int64_t scatter_extreme_bits = kNone;  // integers of at most so many bits have scatters of extremes
  int64_t sort_rows = kNone;
  bool narrow_reductions = true;  // of i8, u8 and i16 in their own type
  bool all_sorts = true;          // of types beside i32, f32 and f16
  bool stable_sorts = true;
  bool lone_gathers = true;  // along an axis of a tensor that has no other axis above 1
  bool bool_concats = true;
  bool i64_signs = true;
  bool exact_division = true;   // of integers
  bool sound_attention = true;  // product, softmax and product in a row are not replaced

  static Limits of(const Mac& mac);
};

struct LimitReport {
  std::string name;    // short and stable: "product terms"
  bool applies;        // to this Mac; if not, the driver takes the plain way
  std::string where;   // macOS and GPUs: "before 14.4", "M1 and M2", "all"
  std::string limit;   // what goes wrong
  std::string driver;  // what the driver does about it
};
std::vector<LimitReport> limits_of(const Mac& mac);  // all rows, in the table's order

}  // namespace heddle::metal
