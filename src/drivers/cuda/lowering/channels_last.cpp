#include "drivers/cuda/lowering/channels_last.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <string_view>
#include <utility>

#include "base/made_once.h"
#include "drivers/cuda/lowering/scalar_steps.h"
#include "plan/placement.h"

namespace heddle::cuda {
namespace {

using ir::ValueId;

bool is_one_of(const ir::Node& node, std::span<const std::string_view> names) {
  return std::ranges::any_of(names, [&](std::string_view name) { return node.is(name); });
}

bool is_elementwise(const ir::Node& node) {
  static constinit MadeOnce<const std::vector<std::string_view>> operators;
  return node.is("Elementwise") || is_one_of(node, operators.get(scalar_operators));
}

bool is_pool(const ir::Node& node) {
  constexpr std::array<std::string_view, 3> kPools = {"MaxPool", "AveragePool", "LpPool"};
  const bool says_places = node.outputs.size() > 1 && node.outputs[1] != ir::kNoValue;
  return is_one_of(node, kPools) && !says_places;
}

class Regions {
 public:
  Regions(const ir::Graph& graph, std::span<const char> convolves)
      : graph_(graph),
        convolves_(convolves),
        makers_(graph.producers()),
        readers_(graph.consumers()),
        chosen_{std::vector<char>(graph.values.size(), 0), std::vector<char>(graph.nodes.size(), 0)},
        above_(graph.nodes.size()) {}

  ChannelsLast choose() {
    if (std::ranges::none_of(convolves_, [](char each) { return each != 0; })) return std::move(chosen_);
    for (ValueId id = 0; id < graph_.values.size(); ++id) chosen_.values[id] = may_lie_so(id) ? 1 : 0;
    while (settle()) {
    }
    choose_nodes();
    drop_what_does_not_pay();
    choose_nodes();
    return std::move(chosen_);
  }

 private:
  const ir::Node& node_at(int at) const { return graph_.nodes[static_cast<size_t>(at)]; }
  bool convolves(int at) const { return convolves_[static_cast<size_t>(at)] != 0; }
  bool computes_so(int at) const { return chosen_.nodes[static_cast<size_t>(at)] != 0; }
  bool lies_so(ValueId id) const { return id != ir::kNoValue && chosen_.values[id] != 0; }
  int64_t elements(ValueId id) const { return graph_.type(id).extents()->elements(); }
  bool has_order(ValueId id) const {
    return id != ir::kNoValue && !same_in_both_orders(*graph_.type(id).extents());
  }

  bool is_plane(const ir::Node& node, ValueId id) const {
    return std::ranges::any_of(planes_of(node),
                               [&](size_t i) { return node.has_input(i) && node.inputs[i] == id; });
  }
  bool may_read(int at, ValueId id) const {
    const ir::Node& node = node_at(at);
    if (any_order(node).reads) return true;
    return (convolves(at) || is_pool(node)) && is_plane(node, id);
  }
  bool may_write(int at) const {
    return any_order(node_at(at)).writes || convolves(at) || is_pool(node_at(at));
  }
  bool may_lie_so(ValueId id) const {
    const ir::TensorType& type = graph_.type(id);
    if (type.dtype != ir::DType::kBF16 && type.dtype != ir::DType::kF16) return false;
    if (type.rank() < 3 || type.rank() > 4 || !has_order(id)) return false;
    if (makers_[id] < 0 || plan::renames(node_at(makers_[id])) || !may_write(makers_[id])) return false;
    const std::vector<int>& readers = readers_[id];
    const bool stays = std::ranges::none_of(readers, [&](int at) {
      return at < 0 || plan::renames(node_at(at));
    });  // in the arena, under one name
    return stays && std::ranges::any_of(readers, [&](int at) { return may_read(at, id); });
  }

  // A pool's output lies as its input, and all outputs of an element-wise node alike. True: one changed.
  bool settle() {
    bool changed = false;
    for (const ir::Node& node : graph_.nodes) {
      const bool alike =
          is_pool(node) ? lies_so(node.inputs[0])
          : is_elementwise(node)
              ? std::ranges::all_of(node.outputs, [&](ValueId id) { return !has_order(id) || lies_so(id); })
              : true;
      if (alike) continue;
      for (const ValueId id : node.outputs) {
        if (id != ir::kNoValue) changed = std::exchange(chosen_.values[id], char{0}) != 0 || changed;
      }
    }
    return changed;
  }

  void choose_nodes() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      const ir::Node& node = graph_.nodes[i];
      bool so = false;
      if (is_pool(node)) so = lies_so(node.inputs[0]);
      if (convolves_[i] != 0) {
        so = lies_so(node.outputs[0]);
        for (const size_t input : planes_of(node))
          so = so || (node.has_input(input) && lies_so(node.inputs[input]));
      }
      chosen_.nodes[i] = so ? 1 : 0;
    }
  }

  size_t region_of(size_t node) {
    while (above_[node] != node) node = above_[node] = above_[above_[node]];
    return node;
  }

  // Elements that node `at` turns, or has turned for it, where it touches what lies channels last: all that
  // it takes and makes in another order than that in which it computes.
  int64_t turned_by(int at) const {
    const ir::Node& node = node_at(at);
    const bool any = any_order(node).writes;
    const bool order = any ? lies_so(node.outputs[0]) : computes_so(at);
    int64_t turned = 0;
    const auto add = [&](ValueId id) {
      if (has_order(id) && lies_so(id) != order) turned += elements(id);
    };
    if (!any && !order) return 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (any || (node.has_input(i) && is_plane(node, node.inputs[i]))) add(node.inputs[i]);
    }
    std::ranges::for_each(node.outputs, add);
    return turned;
  }

  void drop_what_does_not_pay() {
    std::iota(above_.begin(), above_.end(), size_t{0});
    // By node, which stands for its region.
    std::vector<int64_t> saved(above_.size(), 0), turned(above_.size(), 0);
    for (ValueId id = 0; id < graph_.values.size(); ++id) {
      if (!lies_so(id)) continue;
      const auto maker = static_cast<size_t>(makers_[id]);
      for (const int at : readers_[id]) {
        const bool takes = any_order(node_at(at)).reads || (computes_so(at) && is_plane(node_at(at), id));
        if (takes) {
          above_[region_of(static_cast<size_t>(at))] = region_of(maker);
        } else {
          turned[maker] += elements(id);
        }
      }
    }
    for (size_t i = 0; i < above_.size(); ++i) {
      const int at = static_cast<int>(i);
      turned[i] += turned_by(at);
      if (convolves(at) && computes_so(at)) saved[i] = planes_in(node_at(at));
    }
    for (size_t i = 0; i < above_.size(); ++i) {
      if (const size_t region = region_of(i); region != i) {
        saved[region] += saved[i];
        turned[region] += turned[i];
      }
    }
    for (ValueId id = 0; id < graph_.values.size(); ++id) {
      if (!lies_so(id)) continue;
      const size_t region = region_of(static_cast<size_t>(makers_[id]));
      if (turned[region] >= saved[region]) chosen_.values[id] = 0;
    }
  }

  // What cuDNN turns, given [N, C, plane..].
  int64_t planes_in(const ir::Node& node) const {
    int64_t all = has_order(node.outputs[0]) ? elements(node.outputs[0]) : 0;
    for (const size_t i : planes_of(node)) {
      if (node.has_input(i) && has_order(node.inputs[i])) all += elements(node.inputs[i]);
    }
    return all;
  }

  const ir::Graph& graph_;
  const std::span<const char> convolves_;
  const std::vector<int> makers_;
  const std::vector<std::vector<int>> readers_;
  ChannelsLast chosen_;
  std::vector<size_t> above_;  // by node: another of its region, itself for one
};

}  // namespace

AnyOrder any_order(const ir::Node& node) {
  constexpr std::array<std::string_view, 2> kMoving = {"Concat", "Split"};
  constexpr std::array<std::string_view, 10> kReading = {
      "ReduceSum", "ReduceProd",      "ReduceMean",        "ReduceMax",     "ReduceMin",
      "ReduceL2",  "ReduceSumSquare", "GlobalAveragePool", "GlobalMaxPool", "Transpose"};
  if (is_elementwise(node) || is_one_of(node, kMoving)) return {true, true};
  return {is_one_of(node, kReading), false};
}

std::span<const size_t> planes_of(const ir::Node& node) {
  static constexpr std::array<size_t, 1> kInput = {0};
  static constexpr std::array<size_t, 2> kInputAndResidual = {0, 3};
  if (node.is("Conv")) return kInputAndResidual;
  return is_pool(node) ? std::span<const size_t>(kInput) : std::span<const size_t>();
}

bool same_in_both_orders(const ir::Extents& extents) {
  if (extents.rank() < 3 || extents[1] == 1) return true;
  const int64_t whole = extents.elements();
  return whole == 0 || whole == extents[0] * extents[1];
}

ChannelsLast choose_channels_last(const ir::Graph& graph, std::span<const char> convolves) {
  return Regions(graph, convolves).choose();
}

}  // namespace heddle::cuda
