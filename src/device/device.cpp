#include "device/device.h"

#include <algorithm>

namespace heddle::device {

Result<Point> Device::import_event(const ForeignEvent&, NoLocksHeld) {
  return Status::unsupported("device '", traits().name,
                             "' has no events that others could share with it; wait for theirs on the host");
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
  HEDDLE_TRY_ASSIGN(plan::Prepared prepared, plan::prepare(std::move(graph)));
  return make_module(std::move(prepared), options, std::move(source), none);
}

}  // namespace heddle::device
