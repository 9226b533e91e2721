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

// Node i waits for `waiting[i]` values that are never made: each of those comes from another such node.
Status name_cycle(const Nodes& nodes, const Makers& makers, const std::vector<int>& waiting) {
  int at = 0;
  while (waiting[static_cast<size_t>(at)] == 0) ++at;
  // After as many steps as there are nodes, the walk against the arrows is on a cycle.
  for (int step = 0; step < nodes.size(); ++step) {
    for (const std::string& input : nodes[at].input()) {
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

Result<std::vector<int>> topological_order(const Nodes& nodes, const std::set<std::string_view>& given) {
  HEDDLE_TRY_ASSIGN(const Makers makers, find_makers(nodes, given));
  const auto count = static_cast<size_t>(nodes.size());
  std::vector<int> waiting(count, 0);
  std::vector<std::vector<int>> readers(count);
  for (int i = 0; i < nodes.size(); ++i) {
    for (int k = 0; k < nodes[i].input_size(); ++k) {
      const std::string& input = nodes[i].input(k);
      if (input.empty() || given.contains(input)) continue;
      const auto maker = makers.find(input);
      if (maker == makers.end()) {
        return Status::invalid(describe(nodes[i]), ": input ", k, ", ", in_quotes(input),
                               ", is made by no node, and is no input or initializer of the graph");
      }
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
