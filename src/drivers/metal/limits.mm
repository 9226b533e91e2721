#include "drivers/metal/limits.h"

#include <algorithm>
#include <compare>

#include "base/status.h"

namespace heddle::metal {
namespace {

struct Version {
  int64_t major, minor;
  auto operator<=>(const Version&) const = default;
};
constexpr Version kFirst{0, 0};
constexpr Version kUnmended{Limits::kNone, 0};  // as far as is known
constexpr int64_t kM2 = 8, kAnyFamily = Limits::kNone;

struct LimitRow {
  const char* name;
  const char* limit;
  const char* driver;
  Version since = kFirst, mended = kUnmended;
  int64_t last_family = kAnyFamily;
  void (*set)(Limits&) = [](Limits&) {};  // nothing: the driver does the same on every Mac
};

constexpr LimitRow kLimitRows[] = {
    {"product terms", "M1 and M2: products of 32767 terms and more are wrong from 16 rows and columns on",
     "the sum is cut into products of fewer terms", kFirst, kUnmended, kM2,
     [](Limits& l) { l.product_terms = 32766; }},
    {"product extents", "before 14.4: products with an extent above 32768 are wrong",
     "rows, columns and terms are cut", kFirst, Version{14, 4}, kAnyFamily,
     [](Limits& l) { l.product_extent = 1 << 15; }},
    {"product axes", "products of five and more axes abort", "the leading axes become one", kFirst, kUnmended,
     kAnyFamily, [](Limits& l) { l.product_axes = 4; }},
    {"array size", "arrays of 2^31 elements, or above 2^32 bytes, abort; intermediates as well",
     "unsupported, before anything is built of them", kFirst, kUnmended, kAnyFamily,
     [](Limits& l) {
       l.array_elements = (int64_t{1} << 31) - 1;
       l.array_bytes = int64_t{1} << 32;
     }},
    {"array axes", "arrays have at most 16 axes", "unsupported, before anything is built of them", kFirst,
     kUnmended, kAnyFamily, [](Limits& l) { l.array_axes = 16; }},
    {"blit size", "a copy of 4 GB and more fails silently", "copies are cut into pieces of 2 GB", kFirst,
     kUnmended, kAnyFamily, [](Limits& l) { l.blit_bytes = int64_t{1} << 31; }},
    {"reduced axes", "reductions over an axis before the last four abort",
     "axes are merged and brought to the end", kFirst, kUnmended, kAnyFamily,
     [](Limits& l) { l.reduced_axes = 4; }},
    {"narrow reductions", "reductions of i8, u8 and i16 are not to be relied on", "they are made in i32",
     kFirst, kUnmended, kAnyFamily, [](Limits& l) { l.narrow_reductions = false; }},
    {"scatter extremes", "before 15: scatters of integer extremes abort; those of i64 in every version",
     "digit by digit in f32, where they are exact", kFirst, Version{15, 0}, kAnyFamily,
     [](Limits& l) { l.scatter_extreme_bits = 0; }},
    {"scatter extremes of i64", "scatters of i64 extremes abort", "digit by digit in f32", kFirst, kUnmended,
     kAnyFamily, [](Limits& l) { l.scatter_extreme_bits = std::min<int64_t>(l.scatter_extreme_bits, 32); }},
    {"sort types", "sorts take i32, f32 and f16", "sorts are of i32 keys, digit by digit", kFirst, kUnmended,
     kAnyFamily, [](Limits& l) { l.all_sorts = false; }},
    {"long sorts of i64", "from 15.4 on: sorts of i64 are wrong beyond 256 elements",
     "i32 keys, digit by digit", Version{15, 4}, kUnmended, kAnyFamily,
     [](Limits& l) { l.all_sorts = false; }},
    {"sort rows", "sorts of 2^22 rows and more are wrong", "rows are sorted in parts", kFirst, kUnmended,
     kAnyFamily, [](Limits& l) { l.sort_rows = (1 << 22) - 1; }},
    {"sort ties", "the order of equals is not promised", "keys hold their place, so none are equal", kFirst,
     kUnmended, kAnyFamily, [](Limits& l) { l.stable_sorts = false; }},
    {"ordered axes", "scans and sorts along an axis before the last four abort", "axes are merged", kFirst,
     kUnmended, kAnyFamily, [](Limits& l) { l.ordered_axes = 4; }},
    {"lone gathers", "before 15.2: gathers along an axis abort where no other axis is above 1",
     "a gather of whole rows instead", kFirst, Version{15, 2}, kAnyFamily,
     [](Limits& l) { l.lone_gathers = false; }},
    {"bool concatenation", "bool cannot be concatenated", "through i8", kFirst, kUnmended, kAnyFamily,
     [](Limits& l) { l.bool_concats = false; }},
    {"sign of i64", "there is no sign of i64", "by comparison", kFirst, kUnmended, kAnyFamily,
     [](Limits& l) { l.i64_signs = false; }},
    {"integer division", "integers may be divided in f32, which is not exact",
     "an estimate in f32, then corrected by the remainder", kFirst, kUnmended, kAnyFamily,
     [](Limits& l) { l.exact_division = false; }},
    {"fused attention", "from 15 on: attention in f32 is replaced by a kernel that gives NaN",
     "an identity between product and softmax", Version{15, 0}, kUnmended, kAnyFamily,
     [](Limits& l) { l.sound_attention = false; }},
    {"convolution extents", "before 15.1: convolutions with an extent above 65536 are wrong",
     "they are cut along batch, channels and space; transposed ones are unsupported", kFirst, Version{15, 1},
     kAnyFamily, [](Limits& l) { l.convolution_extent = 1 << 16; }},
    {"top k", "top-k takes k up to 16", "by an order of all"},
    {"softmax of nothing", "the softmax of a row of -infinity is NaN", "attention makes such rows zero"},
    {"NaN in extremes", "plain maxima and minima drop NaN", "the operators that keep NaN"},
    {"padding of bool", "bool cannot be padded", "by a mask"},
    {"averages at the edge",
     "average pools count what lies beyond the input where the last window reaches out",
     "sums, divided by a constant of each place"},
    {"root command buffer", "what is committed is the root, not the buffer that the wrapper was made with",
     "the root is encoded, watched and committed"},
    {"loop scalars", "the number of iterations is a tensor without axes", "it has none"},
    {"order of results", "an executable gives its results in the order of its own list", "that list is read"},
    {"refusals", "what MPSGraph refuses ends the process", "types and sizes are checked before it sees them"},
};

bool applies(const LimitRow& row, const Mac& mac) {
  const Version version{mac.macos_major, mac.macos_minor};
  return row.since <= version && version < row.mended && mac.family <= row.last_family;
}

std::string where(const LimitRow& row) {
  if (row.mended != kUnmended) return text("before ", row.mended.major, ".", row.mended.minor);
  if (row.since != kFirst) return text("from ", row.since.major, ".", row.since.minor);
  return row.last_family == kM2 ? "M1 and M2" : "all";
}

}  // namespace

Limits Limits::of(const Mac& mac) {
  Limits limits;
  for (const LimitRow& row : kLimitRows) {
    if (applies(row, mac)) row.set(limits);
  }
  return limits;
}

std::vector<LimitReport> limits_of(const Mac& mac) {
  std::vector<LimitReport> reports;
  for (const LimitRow& row : kLimitRows)
    reports.push_back({row.name, applies(row, mac), where(row), row.limit, row.driver});
  return reports;
}

}  // namespace heddle::metal
