#include "drivers/host/onednn/weight_store.h"

#include <algorithm>

namespace heddle::host {

WeightStore::WeightStore(Ref<const Engine> engine, const ir::Graph& graph) : engine_(std::move(engine)) {
  ir::each_constant(graph, [&](const ir::Tensor& weight) {
    if (weight.elements() > 0) own_.push_back(weight.data());
  });
  std::sort(own_.begin(), own_.end());
}

bool WeightStore::owns(const void* weights) const {
  return std::binary_search(own_.begin(), own_.end(), weights);
}

}  // namespace heddle::host
