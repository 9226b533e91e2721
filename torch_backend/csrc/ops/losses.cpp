// losses.cpp: distances of results from what they should be.
#include "lanes.h"

namespace heddle::torch_backend {
namespace {

enum Reduction : int64_t { kNone, kMean, kSum };  // as PyTorch numbers them

Results loss(Call& call, const Term& each, int reduction = 2) {
  const int64_t kind = call.integer(reduction);
  if (kind == kNone) return Value(each);
  return Value(Lanes(each, {}, false).reduce(kind == kMean ? "ReduceMean" : "ReduceSum"));
}

Results squared_loss(Call& call) {
  const Term away = rounded(operand(call, 0) - operand(call, 1));
  return loss(call, away * away);
}

Results smooth_loss(Call& call) {  // beta
  const Term away = abs(operand(call, 0) - operand(call, 1));
  const double beta = call.real(3);
  if (beta == 0) return loss(call, away);
  return loss(call, select(away < beta, away * away * (0.5 / beta), away - 0.5 * beta));
}

Results huber_loss(Call& call) {  // delta
  const Term away = abs(operand(call, 0) - operand(call, 1));
  const double delta = call.real(3);
  return loss(call, select(away <= delta, away * away * 0.5, (away - 0.5 * delta) * delta));
}

// self, target, weight, reduction. A logarithm is -100 at least, and NaN outside 0 .. 1.
Results binary_cross_entropy(Call& call) {
  const Term x = operand(call, 0);
  const Term target = operand(call, 1);
  const Term yes = greater(log(x), x.like(-100));
  const Term no = greater(log1p(-x), x.like(-100));
  const Term each = (target - 1) * no - target * yes;
  return loss(call, call.has(2) ? each * operand(call, 2) : each, 3);
}

// self [C], [N, C] or [N, C, planes..], target, weight of each class, reduction, ignore_index
Results nll_loss(Call& call) {
  const Term x = operand(call, 0);
  const int64_t axis = x.rank() == 1 ? 0 : 1;
  const Term target = given(call, 1).cast(DType::i64);
  const Term ignored = {
      call, call.node("Equal", {target, call.rank0(Int(call.integer(4)))})};  // may be no float's value
  const Term place = without_negatives(select(ignored, 0, target));
  const std::vector<int64_t> axes = {axis};
  const Term column = {call, call.unsqueeze(place, axes)};
  const Term picked = {call, call.squeeze(x.with("GatherElements", column, {{"axis", axis}}), axes)};
  const Term weight = call.has(2) ? operand(call, 2).with("Gather", place) : picked.like(1);
  const Term counted = select(ignored, 0, weight);
  const Term each = select(ignored, 0, -picked * weight);
  if (call.integer(3) == kNone) return {each, each.like(0)};
  const Term sum = {call, Lanes(each, {}, false).reduce("ReduceSum")};
  const Term weights = {call, Lanes(counted, {}, false).reduce("ReduceSum")};
  return {call.integer(3) == kMean ? sum / weights : sum, weights};
}

}  // namespace

std::span<const Entry> loss_entries() {
  static constexpr Entry kEntries[] = {
      {"aten::mse_loss", squared_loss},     {"aten::smooth_l1_loss", smooth_loss},
      {"aten::huber_loss", huber_loss},     {"aten::binary_cross_entropy", binary_cross_entropy},
      {"aten::nll_loss_forward", nll_loss}, {"aten::nll_loss2d_forward", nll_loss},
  };
  return kEntries;
}

}  // namespace heddle::torch_backend
