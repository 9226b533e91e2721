#include "drivers/metal/program.h"

#include "base/trace.h"
#include "drivers/metal/failure.h"
#include "drivers/metal/lowering/emit.h"

namespace heddle::metal {
namespace {

constexpr NSInteger kExecutablesAreSendable = 26;  // macOS

}  // namespace

Result<Ref<const device::Program>> MetalProgram::make(const ir::Graph& graph, Ref<const Weights> weights,
                                                      Ref<const OpenDevice> open, bool half) {
  const trace::Span span("metal", "compile");
  auto program = std::make_shared<MetalProgram>();
  program->take_operands(graph);
  @autoreleasepool {
    Result<Lowered> lowered =
        lower(graph, *weights, {open->device.get(), half, open->options.defences, open->limits});
    if (!lowered.ok()) return lowered.status();
    program->lowered_ = std::move(lowered).value();
    for (const Feed& feed : program->lowered_.feeds) {
      const bool input = feed.kind == Feed::Kind::input;
      const ir::ConcreteType type = input ? program->inputs_[feed.index]
                                          : ir::ConcreteType{weights->tensor(feed.index).dtype(),
                                                             weights->tensor(feed.index).extents()};
      program->input_shapes_.push_back(shaped(type.dtype, type.extents));
    }
    for (const size_t output : program->lowered_.outputs) {
      const ir::ConcreteType& type = program->outputs_[output];
      program->output_shapes_.push_back(shaped(type.dtype, type.extents));
    }
    for (const Check& each : program->lowered_.checks) {
      program->word_shapes_.push_back(shaped(ir::DType::kI32, {each.flags}));
    }
  }
  program->in_turn_ =
      open->options.defences.encodes_in_turn &&
      [[NSProcessInfo processInfo] operatingSystemVersion].majorVersion < kExecutablesAreSendable;
  program->resident_bytes_ = 64 * 1024;  // MPSGraph does not say; the weights are the module's
  program->weights_ = std::move(weights);
  program->open_ = std::move(open);
  return Ref<const device::Program>(std::move(program));
}

MetalProgram::Shaped MetalProgram::shaped(ir::DType dtype, const ir::Extents& extents) {
  const ir::Extents axes = at_least_one_axis(extents);
  return {Owned<NSArray<NSNumber*>*>::retain(numbers(axes.span())), type_of(dtype)};
}

MetalProgram::Data MetalProgram::Shaped::data(id<MTLBuffer> buffer) const {
  return Data::adopt([[MPSGraphTensorData alloc] initWithMTLBuffer:buffer shape:shape.get() dataType:type]);
}

std::vector<MetalProgram::Data> MetalProgram::borrow_weights() const {
  {
    auto encoders = encoders_.lock();
    if (in_turn_) {
      encoders.wait([&] { return !encoders->busy; });
      encoders->busy = true;
    }
    if (!encoders->idle.empty()) {
      std::vector<Data> weights = std::move(encoders->idle.back());
      encoders->idle.pop_back();
      return weights;
    }
  }
  std::vector<Data> weights;
  for (size_t i = 0; i < lowered_.feeds.size(); ++i) {
    const Feed& feed = lowered_.feeds[i];
    if (feed.kind == Feed::Kind::weight)
      weights.push_back(input_shapes_[i].data(weights_->buffer(feed.index)));
  }
  return weights;
}

void MetalProgram::give_back(std::vector<Data> weights) const {
  auto encoders = encoders_.lock();
  encoders->idle.push_back(std::move(weights));
  encoders->busy = false;
  encoders.notify_one();
}

Status MetalProgram::encode(MPSCommandBuffer* commands, std::span<const id<MTLBuffer>> inputs,
                            std::span<const id<MTLBuffer>> outputs,
                            std::span<const id<MTLBuffer>> words) const {
  std::vector<Data> made;
  std::vector<MPSGraphTensorData*> feeds, results;
  const auto add = [&](std::vector<MPSGraphTensorData*>& to, const Shaped& shaped, id<MTLBuffer> buffer) {
    made.push_back(shaped.data(buffer));
    to.push_back(made.back().get());
  };
  for (size_t i = 0; i < lowered_.feeds.size(); ++i) {
    const Feed& feed = lowered_.feeds[i];
    if (feed.kind == Feed::Kind::weight) {
      feeds.push_back(nil);
    } else {
      add(feeds, input_shapes_[i], inputs[feed.index]);
    }
  }
  for (const size_t place : lowered_.results) {
    const bool output = place < outputs.size();
    const size_t i = output ? place : place - outputs.size();
    add(results, output ? output_shapes_[i] : word_shapes_[i], output ? outputs[i] : words[i]);
  }
  // Its turn is as short as it can be: all else was made before.
  std::vector<Data> weights = borrow_weights();
  auto weight = weights.begin();
  for (MPSGraphTensorData*& feed : feeds) {
    if (feed == nil) feed = (weight++)->get();
  }
  Status status;
  @try {
    [lowered_.executable.get()
        encodeToCommandBuffer:commands
                  inputsArray:[NSArray arrayWithObjects:feeds.data() count:feeds.size()]
                 resultsArray:[NSArray arrayWithObjects:results.data() count:results.size()]
          executionDescriptor:nil];
  } @catch (NSException* exception) {
    status = exception_failure("MPSGraph cannot encode the program", exception);
  }
  give_back(std::move(weights));
  return status;
}

}  // namespace heddle::metal
