#include "tests/metal_double/metal/field_limits.h"

#include <algorithm>

namespace heddle::metal_double {
namespace {

constexpr int32_t kEver = std::numeric_limits<int32_t>::max();

// From `since` to before `mended`, up to `last` of the chips.
struct Limit {
  const char* name;
  void (*set)(FieldLimits&) = nullptr;  // null: the double refuses it in every mode, or has no such operator
  int32_t since[2] = {0, 0};
  int32_t mended[2] = {kEver, 0};
  Chip last = Chip::kM4;
};

constexpr Limit kLimits[] = {
    {"product terms", [](FieldLimits& f) { f.wrong_terms = 32767; }, {0, 0}, {kEver, 0}, Chip::kM2},
    {"product extents", [](FieldLimits& f) { f.product_extent = 32768; }, {0, 0}, {14, 4}},
    {"product axes", [](FieldLimits& f) { f.product_axes = 4; }},
    {"array size",
     [](FieldLimits& f) {
       f.array_elements = 2147483647;
       f.array_bytes = 4294967296;
     }},
    {"array axes", [](FieldLimits& f) { f.array_axes = 16; }},
    {"blit size", [](FieldLimits& f) { f.wrong_blit_bytes = 4294967296; }},
    {"reduced axes", [](FieldLimits& f) { f.reduced_axes = 4; }},
    {"narrow reductions", [](FieldLimits& f) { f.narrow_reductions = false; }},
    {"scatter extremes", [](FieldLimits& f) { f.scatter_extreme_bits = 0; }, {0, 0}, {15, 0}},
    {"scatter extremes of i64",
     [](FieldLimits& f) { f.scatter_extreme_bits = std::min<int64_t>(f.scatter_extreme_bits, 32); }},
    {"sort types", [](FieldLimits& f) { f.narrow_sorts = false; }},
    {"long sorts of i64", [](FieldLimits& f) { f.wrong_i64_sort = 256; }, {15, 4}},
    {"sort rows", [](FieldLimits& f) { f.wrong_sort_rows = 1 << 22; }},
    {"sort ties", [](FieldLimits& f) { f.stable_sorts = false; }},
    {"ordered axes", [](FieldLimits& f) { f.ordered_axes = 4; }},
    {"lone gathers", [](FieldLimits& f) { f.lone_gathers = false; }, {0, 0}, {15, 2}},
    {"bool concatenation", [](FieldLimits& f) { f.bool_concats = false; }},
    {"sign of i64", [](FieldLimits& f) { f.i64_signs = false; }},
    {"integer division", [](FieldLimits& f) { f.exact_division = false; }},
    {"fused attention", [](FieldLimits& f) { f.sound_attention = false; }, {15, 0}},
    {"convolution extents", [](FieldLimits& f) { f.convolution_extent = 65536; }, {0, 0}, {15, 1}},
    {"top k"},
    {"softmax of nothing"},
    {"NaN in extremes"},
    {"padding of bool"},
    {"averages at the edge"},
    {"root command buffer"},
    {"loop scalars", [](FieldLimits& f) { f.loops_take_one_element = false; }},
    {"order of results", [](FieldLimits& f) { f.results_in_order = false; }},
    {"refusals"},
};

bool before(const int32_t (&version)[2], const FieldMac& mac) {
  return version[0] != mac.major ? version[0] < mac.major : version[1] <= mac.minor;
}

bool applies(const Limit& limit, const FieldMac& mac) {
  return before(limit.since, mac) && !before(limit.mended, mac) && mac.chip <= limit.last;
}

}  // namespace

FieldLimits field_limits_of(const FieldMac& mac) {
  FieldLimits limits;
  for (const Limit& limit : kLimits) {
    if (limit.set != nullptr && applies(limit, mac)) limit.set(limits);
  }
  return limits;
}

std::vector<FieldRow> field_rows(const FieldMac& mac) {
  std::vector<FieldRow> rows;
  for (const Limit& limit : kLimits) rows.push_back({limit.name, applies(limit, mac)});
  return rows;
}

}  // namespace heddle::metal_double
