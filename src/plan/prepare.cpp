#include "plan/prepare.h"

#include <set>

#include "plan/rows/batchable.h"

namespace heddle::plan {
namespace {

std::vector<Signature> signatures_of(const ir::Graph& graph, const std::vector<ir::ValueId>& ids) {
  std::vector<Signature> signatures;
  for (const ir::ValueId id : ids) signatures.push_back({graph.values[id].name, graph.type(id)});
  return signatures;
}

uint64_t bytes_of_constants(const ir::Graph& graph) {
  uint64_t bytes = 0;
  std::set<const void*> counted;
  ir::each_constant(graph, [&](const ir::Tensor& constant) {
    if (counted.insert(constant.data()).second) bytes += static_cast<uint64_t>(constant.bytes());
  });
  return bytes;
}

}  // namespace

Result<Prepared> prepare(ir::Graph graph, const Fusions& fusions) {
  HEDDLE_TRY_ASSIGN(ir::Graph optimised, optimize(std::move(graph), fusions));
  const auto kept = std::make_shared<const ir::Graph>(mark_rows(std::move(optimised)));
  return Prepared{kept, signatures_of(*kept, kept->inputs), signatures_of(*kept, kept->outputs),
                  bytes_of_constants(*kept)};
}

}  // namespace heddle::plan
