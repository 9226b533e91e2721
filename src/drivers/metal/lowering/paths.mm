// The path table: every operator of ir, gathered from the families.
#include <algorithm>

#include "base/made_once.h"
#include "drivers/metal/lowering/lowering.h"

namespace heddle::metal {
namespace {

std::vector<const PathEntry*> gather() {
  std::vector<const PathEntry*> all;
  for (const std::span<const PathEntry> family :
       {elementwise_paths(), binary_paths(), product_paths(), convolution_paths(), pooling_paths(),
        normalization_paths(), attention_paths(), reduction_paths(), order_paths(), movement_paths(),
        index_paths(), resize_paths(), sampling_paths(), recurrent_paths(), control_paths()}) {
    for (const PathEntry& entry : family) all.push_back(&entry);
  }
  std::sort(all.begin(), all.end(), [](const PathEntry* a, const PathEntry* b) { return a->op < b->op; });
  return all;
}

}  // namespace

std::span<const PathEntry* const> all_paths() {
  static constinit MadeOnce<const std::vector<const PathEntry*>> all;
  return all.get(gather);
}

const PathEntry* find_path(std::string_view op) {
  const auto all = all_paths();
  const auto found =
      std::lower_bound(all.begin(), all.end(), op,
                       [](const PathEntry* entry, std::string_view name) { return entry->op < name; });
  return found != all.end() && (*found)->op == op ? *found : nullptr;
}

}  // namespace heddle::metal
