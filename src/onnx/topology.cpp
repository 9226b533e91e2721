#include "onnx/topology.h"

#include <functional>
#include <queue>
#include <unordered_map>

#include "onnx/names.h"

namespace heddle::onnx {
namespace {

using Makers = std::unordered_map<std::string_view, int>;

Result<Makers> find_makers(const Nodes& nodes, const std::set<std::string_view>& given) {
  Makers makers;
  for (int i = 0; i < nodes.size(); ++i) {
    for (const std::string& output : nodes[i].output()) {
      if (output.empty()) continue;
      if (given.contains(output)) {
        return Status::invalid(describe(nodes[i]), ": output ", in_quotes(output),
                               " is already the name of an input or initializer; every value is made once");
      }
      const auto [found, is_new] = makers.emplace(output, i);
      if (!is_new) {
        return Status::invalid(describe(nodes[i]), ": output ", in_quotes(output), " is also made by ",
                               describe(nodes[found->second]), "; every value is made once");
      }
    }
  }
  return makers;
}

// Names that the graphs in a node's attributes read and do not make.
void add_captured(const proto::NodeProto& node, std::set<std::string_view>& names) {
  for (const proto::AttributeProto& attribute : node.attribute()) {
    if (attribute.type() != proto::AttributeProto::GRAPH) continue;
    const proto::GraphProto& graph = attribute.g();
    std::set<std::string_view> read, made;
    for (const auto& input : graph.input()) made.insert(input.name());
    for (const auto& weight : graph.initializer()) made.insert(weight.name());
    for (const auto& output : graph.output()) read.insert(output.name());
    for (const proto::NodeProto& inner : graph.node()) {
      read.insert(inner.input().begin(), inner.input().end());
      made.insert(inner.output().begin(), inner.output().end());
      add_captured(inner, read);
    }
    for (std::string_view name : read) {
      if (!made.contains(name)) names.insert(name);
    }
  }
}

// Node i waits for `waiting[i]` values that are never made: each of those comes from another such node.
Status name_cycle(const Nodes& nodes, const Makers& makers, const std::vector<int>& waiting) {
  int at = 0;
  while (waiting[static_cast<size_t>(at)] == 0) ++at;
  // After as many steps as there are nodes, the walk against the arrows is on a cycle.
  for (int step = 0; step < nodes.size(); ++step) {
    std::set<std::string_view> inputs(nodes[at].input().begin(), nodes[at].input().end());
    add_captured(nodes[at], inputs);
    for (std::string_view input : inputs) {
      const auto maker = makers.find(input);
      if (maker == makers.end() || waiting[static_cast<size_t>(maker->second)] == 0) continue;
      at = maker->second;
      break;
    }
  }
  return Status::invalid(describe(nodes[at]), " is on a cycle: its input depends on its own output");
}

}  // namespace

std::string node_name(const proto::NodeProto& node) {
  if (!node.name().empty()) return printable(node.name());
  return node.output_size() > 0 ? printable(node.output(0)) : std::string();
}

std::string describe(const proto::NodeProto& node) {
  return "node '" + node_name(node) + "' (" + printable(node.op_type()) + ")";
}

Result<std::vector<int>> topological_order(const Nodes& nodes, const std::set<std::string_view>& given,
                                           const std::function<bool(std::string_view)>& visible) {
  HEDDLE_TRY_ASSIGN(const Makers makers, find_makers(nodes, given));
  const auto count = static_cast<size_t>(nodes.size());
  std::vector<int> waiting(count, 0);
  std::vector<std::vector<int>> readers(count);
  for (int i = 0; i < nodes.size(); ++i) {
    for (int k = 0; k < nodes[i].input_size(); ++k) {
      const std::string& input = nodes[i].input(k);
      if (input.empty()) continue;
      const auto maker = makers.find(input);
      if (maker == makers.end()) {
        if (visible(input)) continue;
        return Status::invalid(describe(nodes[i]), ": input ", k, ", ", in_quotes(input),
                               ", is made by no node, and is no input or initializer of the graph");
      }
      ++waiting[static_cast<size_t>(i)];
      readers[static_cast<size_t>(maker->second)].push_back(i);
    }
    std::set<std::string_view> captured;
    add_captured(nodes[i], captured);
    for (std::string_view name : captured) {
      const auto maker = makers.find(name);
      if (maker == makers.end()) continue;  // of a graph around this one, or missed when it is read
      ++waiting[static_cast<size_t>(i)];
      readers[static_cast<size_t>(maker->second)].push_back(i);
    }
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < nodes.size(); ++i) {
    if (waiting[static_cast<size_t>(i)] == 0) ready.push(i);
  }
  std::vector<int> order;
  order.reserve(count);
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const int reader : readers[static_cast<size_t>(next)]) {
      if (--waiting[static_cast<size_t>(reader)] == 0) ready.push(reader);
    }
  }
  if (order.size() != count) return name_cycle(nodes, makers, waiting);
  return order;
}

}  // namespace heddle::onnx
