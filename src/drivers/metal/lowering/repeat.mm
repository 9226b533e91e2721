#include "drivers/metal/lowering/repeat.h"

namespace heddle::metal {
namespace {

constexpr int64_t kUnrolled = 64;  // as ir's loops: fewer iterations are emitted one by one

ir::Extents in_front(int64_t extent, const ir::Extents& rest) {
  ir::Extents extents{extent};
  for (const int64_t e : rest) extents.push_back(e);
  return extents;
}

Tensor with_turn(const Emit& e, Tensor x) { return e.reshape(x, in_front(1, extents_of(x))); }

Result<Iteration> unrolled(const Emit& e, int64_t count, Iteration iteration, const IterationBody& body) {
  std::vector<std::vector<Tensor>> parts(iteration.stacked.size());
  for (int64_t i = 0;; ++i) {
    for (size_t k = 0; k < parts.size(); ++k) {
      if (iteration.stacked[k] != nil) parts[k].push_back(with_turn(e, iteration.stacked[k]));
    }
    if (i + 1 == count) break;
    HEDDLE_TRY_ASSIGN(iteration, body(e.whole(i + 1, ir::DType::kI32), iteration.carried));
  }
  for (size_t k = 0; k < parts.size(); ++k)
    iteration.stacked[k] = parts[k].empty() ? nil : e.concat(parts[k], 0);
  return iteration;
}

// What goes round in MPSGraph's loop: carried tensors, buffers of what is stacked, and flags.
class ForLoop {
 public:
  ForLoop(GraphWork& work, const Emit& emit, int64_t count, const IterationBody& body)
      : work_(work), e_(emit), count_(count), body_(body) {}

  Result<Iteration> run(const std::vector<Tensor>& carried, const Iteration& trial,
                        const std::vector<Flags>& flags) {
    carried_ = carried;
    stacked_ = trial.stacked;
    NSMutableArray<MPSGraphTensor*>* initial = [NSMutableArray array];
    const auto add = [&](Tensor tensor) {
      if (tensor != nil) [initial addObject:tensor];
    };
    for (Tensor tensor : carried) add(tensor);
    for (Tensor tensor : trial.stacked) {
      if (tensor != nil) add(e_.filled(0, dtype_of(tensor), in_front(count_, extents_of(tensor))));
    }
    for (const Flags& flag : flags) add(e_.filled(0, ir::DType::kI32, {flag.count}));
    Status* status = &status_;
    ForLoop* self = this;
    NSArray<MPSGraphTensor*>* made = [e_.graph()
        forLoopWithNumberOfIterations:e_.count_of_turns(count_)
                 initialBodyArguments:initial
                                 body:^NSArray<MPSGraphTensor*>*(MPSGraphTensor* number,
                                                                 NSArray<MPSGraphTensor*>* arguments) {
                                   Result<NSArray<MPSGraphTensor*>*> next =
                                       self->iteration(number, arguments);
                                   if (next.ok()) return *next;
                                   *status = next.status();
                                   return arguments;
                                 }
                                 name:nil];
    HEDDLE_TRY(status_);
    Iteration out = unpack(made);
    NSUInteger at = static_cast<NSUInteger>([made count] - flags.size());
    for (Flags flag : flags) {
      flag.tensor = [made objectAtIndex:at++];
      work_.flags().push_back(flag);
    }
    return out;
  }

 private:
  Iteration unpack(NSArray<MPSGraphTensor*>* arguments) const {
    NSUInteger at = 0;
    const auto next = [&](Tensor like) { return like == nil ? nil : [arguments objectAtIndex:at++]; };
    Iteration out;
    for (Tensor tensor : carried_) out.carried.push_back(next(tensor));
    for (Tensor tensor : stacked_) out.stacked.push_back(next(tensor));
    return out;
  }

  Result<NSArray<MPSGraphTensor*>*> iteration(Tensor number, NSArray<MPSGraphTensor*>* arguments) {
    number = e_.reshape(e_.cast(number, ir::DType::kI32), {1});
    const Iteration before = unpack(arguments);
    const std::vector<Flags> outside = std::exchange(work_.flags(), {});
    Result<Iteration> made = body_(number, before.carried);
    const std::vector<Flags> flags = std::exchange(work_.flags(), outside);
    if (!made.ok()) return made.status();
    NSMutableArray<MPSGraphTensor*>* next = [NSMutableArray array];
    for (Tensor tensor : made->carried) {
      if (tensor != nil) [next addObject:tensor];
    }
    for (size_t i = 0; i < before.stacked.size(); ++i) {
      if (before.stacked[i] == nil) continue;
      [next addObject:e_.scatter_nd(before.stacked[i], with_turn(e_, made->stacked[i]),
                                    e_.reshape(number, {1, 1}), MPSGraphScatterModeSet)];
    }
    NSUInteger at = [arguments count] - flags.size();
    for (const Flags& flag : flags) [next addObject:e_.max([arguments objectAtIndex:at++], flag.tensor)];
    return static_cast<NSArray<MPSGraphTensor*>*>(next);
  }

  GraphWork& work_;
  const Emit& e_;
  int64_t count_;
  const IterationBody& body_;
  std::vector<Tensor> carried_, stacked_;
  Status status_;
};

}  // namespace

// The first iteration is emitted in any case: it shows what is stacked and reported, and makes the constants
// that a block may only read. Where the loop stays, nothing reads that iteration and the compiler drops it.
Result<Iteration> repeat(GraphWork& work, const Emit& emit, int64_t count, const std::vector<Tensor>& carried,
                         const IterationBody& body) {
  const size_t reported = work.flags().size();
  HEDDLE_TRY_ASSIGN(Iteration first, body(emit.whole(0, ir::DType::kI32), carried));
  if (count <= kUnrolled) return unrolled(emit, count, std::move(first), body);
  const auto begin = work.flags().begin() + static_cast<std::ptrdiff_t>(reported);
  const std::vector<Flags> flags(begin, work.flags().end());
  work.flags().erase(begin, work.flags().end());
  return ForLoop(work, emit, count, body).run(carried, first, flags);
}

}  // namespace heddle::metal
