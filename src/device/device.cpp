#include "device/device.h"

#include <algorithm>

namespace heddle::device {

Result<Point> Device::import_event(const ForeignEvent&, NoLocksHeld) {
  return Status::unsupported("device '", traits().name,
                             "' has no events that others could share with it; wait for theirs on the host");
}

Result<std::unique_ptr<Memory>> Device::import_memory(const ForeignMemory&, NoLocksHeld) {
  return Status::unsupported("device '", traits().name, "' takes no memory of other libraries; copy it");
}

Result<Point> Device::import_stream(void*, NoLocksHeld) {
  return Status::unsupported("device '", traits().name, "' waits for no streams of other libraries");
}

Status Device::hold_stream(void*, const Point&, NoLocksHeld) {
  return Status::unsupported("device '", traits().name, "' holds no streams of other libraries");
}

Result<Ref<const Module>> Device::load(ir::Graph graph, const LoadOptions& options, Ref<Source> source,
                                       NoLocksHeld none) {
  const std::vector<std::string>& known = traits().precisions;
  if (std::find(known.begin(), known.end(), options.precision) == known.end()) {
    std::string all;
    for (const std::string& each : known) all += text(all.empty() ? "" : " or ", each);
    return Status::unsupported("device '", traits().name, "' computes in precision ", all, ", not '",
                               options.precision, "'");
  }
  plan::Fusions fusions;
  fusions.groups = traits().grouped_products;
  HEDDLE_TRY_ASSIGN(plan::Prepared prepared, plan::prepare(std::move(graph), fusions));
  return make_module(std::move(prepared), options, std::move(source), none);
}

}  // namespace heddle::device
