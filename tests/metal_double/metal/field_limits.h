// field_limits.h: what others met on a Mac: limits and faults of MPSGraph by macOS and chip, as a table.
//
//   What       In the mode "as the field met it" (control.h) the double has the limits of one Mac, and what
//              MPSGraph refuses ends the process. The table is of public reports and of others' workarounds;
//              it shares nothing with the driver's table but the names of the rows.
//   Scale      A test sets smaller numbers, so that nothing needs gigabytes.
//   Threads    Plain data.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace heddle::metal_double {

enum class Chip : uint8_t { kM1, kM2, kM3, kM4 };

struct FieldMac {
  int32_t major = 14, minor = 0;
  Chip chip = Chip::kM1;
};

struct FieldLimits {
  static constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  // Where it begins to go wrong.
  int64_t wrong_terms = kNone;  // of a product whose rows and columns both reach wrong_from
  int64_t wrong_from = 16;
  int64_t wrong_blit_bytes = kNone;
  int64_t wrong_sort_rows = kNone;
  int64_t wrong_i64_sort = kNone;  // elements
  // What is still right; beyond it the process ends, or the numbers are wrong.
  int64_t product_extent = kNone;
  int64_t product_axes = kNone;
  int64_t array_elements = kNone, array_bytes = kNone, array_axes = kNone;
  int64_t reduced_axes = kNone, ordered_axes = kNone;
  int64_t convolution_extent = kNone;
  int64_t scatter_extreme_bits = kNone;  // of integers
  bool narrow_reductions = true;
  bool narrow_sorts = true;  // of types beside i32, i64, f32 and f16
  bool stable_sorts = true;
  bool lone_gathers = true;
  bool bool_concats = true;
  bool i64_signs = true;
  bool exact_division = true;  // of integers
  int division_ulps = 0;       // by which quotients of f32 are beside the right one, this way and that
  bool sound_attention = true;
  bool results_in_order = true;
  bool loops_take_one_element = true;  // not only scalars
};

struct FieldRow {
  std::string_view name;
  bool applies;
};

FieldLimits field_limits_of(const FieldMac& mac);
std::vector<FieldRow> field_rows(const FieldMac& mac);  // those that name no number of their own, too

}  // namespace heddle::metal_double
