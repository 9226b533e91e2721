#include <cstring>
#include <map>
#include <string>
#include <utility>

#include "plan/passes/passes.h"
#include "plan/passes/rewrite.h"

namespace heddle::plan {

using ir::kNoValue;
using ir::Node;
using ir::Tensor;
using ir::ValueId;

namespace {

constexpr int64_t kMaxConstantBytes = 256;

std::string bytes_of(const Tensor& t) {
  std::string out = text(ir::name(t.dtype()), t.extents());
  out.append(t.as<char>(), static_cast<size_t>(t.bytes()));
  return out;
}

template <class T>
void append_raw(std::string& out, const T& value) {
  char raw[sizeof(T)];
  std::memcpy(raw, &value, sizeof(T));
  out.append(raw, sizeof(T));
}

struct Append {
  std::string& out;
  bool operator()(int64_t v) const { return append_raw(out, v), true; }
  bool operator()(double v) const { return append_raw(out, v), true; }
  bool operator()(const std::string& v) const { return out += v, true; }
  template <class T>
  bool operator()(const std::vector<T>& v) const {
    append_raw(out, v.size());
    for (const T& x : v) append_raw(out, x);
    return true;
  }
  bool operator()(const Tensor& t) const {
    if (t.bytes() > kMaxConstantBytes) return false;
    out += bytes_of(t);
    return true;
  }
  bool operator()(const std::shared_ptr<const ir::Graph>&) const { return false; }
};

// Equal keys mean equal results. Nothing when the node has an attribute that is too large to compare.
std::optional<std::string> key_of(const Node& node, std::map<std::string, ValueId>& constants,
                                  const Rewriter& rw) {
  std::string key(node.op->name);
  for (ValueId id : node.inputs) {
    if (id != kNoValue && rw.value(id).is_constant() && rw.value(id).constant->bytes() <= kMaxConstantBytes) {
      id = constants.try_emplace(bytes_of(*rw.value(id).constant), id).first->second;
    }
    key += '|';
    append_raw(key, id);
  }
  for (const auto& [name, attribute] : node.attributes) {
    key += text('|', name, '=');
    if (!std::visit(Append{key}, attribute)) return std::nullopt;
  }
  return key;
}

}  // namespace

Result<ir::Graph> merge_equal(ir::Graph graph) {
  std::map<std::string, ValueId> constants;
  std::map<std::string, ValueId> made;
  Rewriter rewriter(std::move(graph));
  return rewriter.run([&](Rewriter& rw, const Node& node) -> Status {
    if (node.outputs.size() != 1 || node.is("Identity")) return {};
    const auto key = key_of(node, constants, rw);
    if (!key) return {};
    const auto [found, fresh] = made.try_emplace(*key, node.outputs[0]);
    if (fresh) return {};
    return rw.maker(found->second) == nullptr ? Status() : rw.forward(node, found->second);
  });
}

}  // namespace heddle::plan
