// lower(): a specialised graph to an executable.
#include <set>

#include "drivers/metal/lowering/graph_work.h"

namespace heddle::metal {
namespace {

struct Targets {
  NSMutableArray<MPSGraphTensor*>* tensors;
  std::vector<size_t> outputs;
  std::vector<Check> checks;
};

std::set<ir::ValueId> ids_read(const ir::Graph& graph) {
  std::set<ir::ValueId> read(graph.outputs.begin(), graph.outputs.end());
  for (const ir::Node& node : graph.nodes) read.insert(node.inputs.begin(), node.inputs.end());
  return read;
}

Status check_interface(const ir::Graph& graph) {
  for (const auto* ids : {&graph.inputs, &graph.outputs}) {
    for (const ir::ValueId which : *ids) {
      const ir::TensorType& type = graph.type(which);
      if (!has_type(type.dtype))
        return Status::unsupported("'", graph.values[which].name, "' is ", type, "; Metal has no ",
                                   type.dtype);
      if (!type.is_static())
        return Status::internal("'", graph.values[which].name, "' is ", type, " after specialising");
    }
  }
  return {};
}

class GraphLowering {
 public:
  GraphLowering(const ir::Graph& graph, const Weights& weights, const LoweringOptions& options)
      : graph_(graph),
        options_(options),
        mps_(Owned<MPSGraph*>::adopt([[MPSGraph alloc] init])),
        emit_(mps_.get(), options.limits),
        work_(emit_, weights, options) {}

  Result<Lowered> run() {
    HEDDLE_TRY(check_interface(graph_));
    make_inputs();
    HEDDLE_TRY_ASSIGN(const std::vector<Tensor> outputs, work_.emit_graph(graph_, inputs_));
    return compile(targets_of(outputs));
  }

 private:
  // Inputs that nothing reads, or that are empty, are not fed.
  void make_inputs() {
    const std::set<ir::ValueId> read = ids_read(graph_);
    for (const ir::ValueId which : graph_.inputs) {
      const ir::Extents extents = *graph_.type(which).extents();
      const bool fed = read.contains(which) && extents.elements() > 0;
      inputs_.push_back(fed ? emit_.placeholder(graph_.type(which).dtype, extents) : nil);
    }
  }

  // Each output has a target of its own, whatever it is: an input, a constant, one that is given twice.
  Targets targets_of(const std::vector<Tensor>& outputs) {
    Targets targets{[NSMutableArray array], {}, {}};
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i] == nil) continue;
      [targets.tensors addObject:emit_.identity(outputs[i])];
      targets.outputs.push_back(i);
    }
    for (const Flags& flags : work_.flags()) {
      [targets.tensors addObject:emit_.identity(flags.tensor)];
      targets.checks.push_back({flags.mistake, flags.count, flags.per_row});
    }
    return targets;
  }

  Result<Lowered> compile(Targets targets) {
    Lowered lowered;
    lowered.outputs = std::move(targets.outputs);
    lowered.checks = std::move(targets.checks);
    if ([targets.tensors count] == 0) return lowered;
    NSMutableDictionary<MPSGraphTensor*, MPSGraphShapedType*>* feeds = [NSMutableDictionary dictionary];
    const auto feed = [&](Tensor tensor) {
      if (tensor == nil) return;
      MPSGraphShapedType* type = [[MPSGraphShapedType alloc] initWithShape:[tensor shape]
                                                                  dataType:[tensor dataType]];
      [feeds setObject:type forKey:tensor];
      [type release];
    };
    for (Tensor input : inputs_) feed(input);
    for (const GraphWork::WeightFeed& weight : work_.weight_feeds()) feed(weight.placeholder);

    const auto settings =
        Owned<MPSGraphCompilationDescriptor*>::adopt([[MPSGraphCompilationDescriptor alloc] init]);
    // Level 1 may place parts on other processors, whose order with our queues nothing promises.
    [settings.get() setOptimizationLevel:MPSGraphOptimizationLevel0];
    [settings.get() setWaitForCompilationCompletion:YES];
    MPSGraphExecutable* executable =
        [mps_.get() compileWithDevice:[MPSGraphDevice deviceWithMTLDevice:options_.device]
                                feeds:feeds
                        targetTensors:targets.tensors
                     targetOperations:nil
                compilationDescriptor:settings.get()];
    if (executable == nil && options_.defences.notices_nil)
      return Status::internal("MPSGraph did not compile the graph, and gave no reason");
    [executable setOptions:MPSGraphOptionsNone];  // the driver synchronises, by its own events
    lowered.executable = Owned<MPSGraphExecutable*>::retain(executable);
    HEDDLE_TRY(order_feeds(executable, lowered));
    HEDDLE_TRY(order_results(executable, targets.tensors, lowered));
    return lowered;
  }

  // MPSGraph chooses the order: the dictionary has none.
  Status order_feeds(MPSGraphExecutable* executable, Lowered& lowered) const {
    for (MPSGraphTensor* tensor in [executable feedTensors]) {
      bool known = false;
      for (size_t i = 0; i < inputs_.size() && !known; ++i) {
        known = inputs_[i] == tensor;
        if (known) lowered.feeds.push_back({Feed::Kind::input, i});
      }
      for (const GraphWork::WeightFeed& weight : work_.weight_feeds()) {
        if (known || weight.placeholder != tensor) continue;
        known = true;
        lowered.feeds.push_back({Feed::Kind::weight, weight.weight});
      }
      if (!known) return Status::internal("the executable asks for a tensor that was not fed");
    }
    return {};
  }

  // That of the results is the executable's, too.
  Status order_results(MPSGraphExecutable* executable, NSArray<MPSGraphTensor*>* targets,
                       Lowered& lowered) const {
    const NSUInteger count = [targets count];
    for (MPSGraphTensor* tensor in options_.defences.orders_results ? [executable targetTensors] : targets) {
      NSUInteger place = 0;
      while (place < count && [targets objectAtIndex:place] != tensor) ++place;
      if (place == count) return Status::internal("the executable gives a tensor that was no target");
      lowered.results.push_back(place);
    }
    return {};
  }

  const ir::Graph& graph_;
  const LoweringOptions& options_;
  Owned<MPSGraph*> mps_;
  Emit emit_;
  GraphWork work_;
  std::vector<Tensor> inputs_;
};

}  // namespace

Result<Lowered> lower(const ir::Graph& specialised, const Weights& weights, const LoweringOptions& options) {
  @autoreleasepool {
    @try {
      return GraphLowering(specialised, weights, options).run();
    } @catch (NSException* exception) {
      return refusal_of(exception);
    }
  }
}

}  // namespace heddle::metal
