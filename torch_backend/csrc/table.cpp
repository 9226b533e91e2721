// table.cpp: the lists of ops/ as one.
#include "table.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace heddle::torch_backend {

std::span<const Entry> table() {
  static const std::vector<Entry> all = [] {
    std::vector<Entry> entries;
    for (const std::span<const Entry> list :
         {unary_entries(),     activation_entries(), arithmetic_entries(),    pair_entries(),
          logic_entries(),     selection_entries(),  comparison_entries(),    creation_entries(),
          reduction_entries(), order_entries(),      shape_entries(),         rearrangement_entries(),
          indexing_entries(),  scatter_entries(),    matrix_entries(),        window_entries(),
          pooling_entries(),   resampling_entries(), normalization_entries(), attention_entries(),
          recurrent_entries(), loss_entries()})
      entries.insert(entries.end(), list.begin(), list.end());
    return entries;
  }();
  return all;
}

const Entry* find_entry(std::string_view op) {
  static const std::unordered_map<std::string_view, const Entry*> by_name = [] {
    std::unordered_map<std::string_view, const Entry*> map;
    for (const Entry& entry : table()) map.emplace(entry.op, &entry);
    return map;
  }();
  const auto found = by_name.find(op);
  return found == by_name.end() ? nullptr : found->second;
}

}  // namespace heddle::torch_backend
