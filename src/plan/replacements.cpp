#include "plan/replacements.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>

namespace heddle::plan {

using ir::Graph;
using ir::kNoValue;
using ir::Node;
using ir::ValueId;

namespace {

class Comparison {
 public:
  Comparison(const Graph& source, const Graph& optimised)
      : source_(source),
        optimised_(optimised),
        makers_(source.producers()),
        taken_(source.nodes.size(), 0),
        group_(optimised.nodes.size()) {
    for (ValueId id = 0; id < source.values.size(); ++id) {
      if (!source.values[id].name.empty()) by_name_.emplace(source.values[id].name, id);
    }
    for (ValueId id : optimised.inputs) stays(id);
    for (const Node& node : optimised.nodes) {
      for (ValueId id : node.outputs) stays(id);
    }
  }

  std::vector<Replacement> run() {
    join_unknown();
    std::map<int, Replacement> groups;  // by the last of their nodes
    for (int i = 0; i < static_cast<int>(group_.size()); ++i) groups[group_[at(i)]].nodes.push_back(i);
    std::vector<Replacement> all;
    for (auto& [last, group] : groups) {
      for (int node : group.nodes) {
        for (ValueId id : optimised_.nodes[at(node)].outputs) collect(id, group.sources);
      }
      std::sort(group.sources.begin(), group.sources.end());
      all.push_back(std::move(group));
    }
    return all;
  }

 private:
  static size_t at(int index) { return static_cast<size_t>(index); }

  void stays(ValueId id) {
    if (id != kNoValue && known(id)) stays_.insert(by_name_.find(optimised_.values[id].name)->second);
  }

  bool known(ValueId id) const { return by_name_.count(optimised_.values[id].name) != 0; }

  // From the last node to the first: a node none of whose values the source has goes to its first reader.
  void join_unknown() {
    const auto readers = optimised_.consumers();
    for (int i = static_cast<int>(group_.size()) - 1; i >= 0; --i) {
      group_[at(i)] = i;
      int reader = -1;
      bool own = false;
      for (ValueId id : optimised_.nodes[at(i)].outputs) {
        if (id == kNoValue) continue;
        own = own || known(id);
        for (int r : readers[id]) reader = reader < 0 ? r : reader;
      }
      if (!own && reader >= 0) group_[at(i)] = group_[at(reader)];
    }
  }

  void collect(ValueId id, std::vector<int>& sources) {
    if (id == kNoValue || !known(id)) return;
    std::vector<ValueId> open = {by_name_.find(optimised_.values[id].name)->second};
    const ValueId root = open.front();
    while (!open.empty()) {
      const ValueId value = open.back();
      open.pop_back();
      const int maker = makers_[value];
      if (maker < 0 || taken_[at(maker)] != 0 || (value != root && stays_.count(value) != 0)) continue;
      taken_[at(maker)] = 1;
      sources.push_back(maker);
      for (ValueId input : source_.nodes[at(maker)].inputs) {
        if (input != kNoValue) open.push_back(input);
      }
    }
  }

  const Graph& source_;
  const Graph& optimised_;
  std::map<std::string_view, ValueId> by_name_;  // of the source
  std::vector<int> makers_;
  std::set<ValueId> stays_;  // values of the source that the optimised graph has
  std::vector<char> taken_;  // by source node
  std::vector<int> group_;   // by optimised node
};

}  // namespace

void name_values(Graph& graph) {
  std::set<std::string> names;
  std::set<ValueId> fixed(graph.inputs.begin(), graph.inputs.end());
  fixed.insert(graph.outputs.begin(), graph.outputs.end());
  for (ValueId id : fixed) names.insert(graph.values[id].name);
  for (const Node& node : graph.nodes) {
    for (ValueId id : node.outputs) {
      if (id == kNoValue || fixed.count(id) != 0) continue;
      std::string& name = graph.values[id].name;
      if (name.empty()) name = text("value", id);
      if (!names.insert(name).second) name = text(name, '#', id);
      names.insert(name);
    }
  }
}

std::vector<Replacement> replacements(const Graph& source, const Graph& optimised) {
  return Comparison(source, optimised).run();
}

}  // namespace heddle::plan
