// model.cpp: Model: load, call, compile, close.
#include <algorithm>
#include <array>

#include "api/coalescing.h"
#include "api/internals.h"
#include "api/log.h"
#include "api/model_making.h"
#include "api/replicas.h"
#include "base/trace.h"
#include "ir/op.h"
#include "onnx/reader.h"
#include "plan/replacements.h"
#include "plan/rows/batchable.h"
#include "runtime/memory/pressure.h"
#include "runtime/thread_number.h"

namespace heddle {
namespace {

std::vector<Port> ports_of(const std::vector<device::Signature>& signatures) {
  std::vector<Port> ports;
  for (const device::Signature& s : signatures) {
    Port port{s.name, to_public(s.type.dtype), {}};
    for (const ir::Dim& dim : s.type.shape) port.shape.push_back(to_string(dim));
    ports.push_back(std::move(port));
  }
  return ports;
}

// Tensors of an asynchronous device are ordered by its streams, and a call on them does not block.
bool coalesces(const Internals::ModelRep& model, std::span<const device::View> inputs) {
  // A call in a memory-pressure callback waits for no batch: it may be made while one is run.
  if (!model.joins || runtime::Pressure::inside_callback()) return false;
  const device::Device& device = Internals::runtime(model.device).device();
  return std::all_of(inputs.begin(), inputs.end(), [&device](const device::View& v) {
    if (v.buffer == nullptr) return true;
    // Another device's may still be written.
    return device.traits().synchronous && v.buffer->memory().maker() == device.maker();
  });
}

std::vector<device::View> views_of(std::span<const Tensor> inputs) {
  std::vector<device::View> views;
  views.reserve(inputs.size());
  for (const Tensor& input : inputs) views.push_back(Internals::view(input));
  return views;
}

std::vector<device::View> views_to_write(std::span<const Tensor> outputs) {
  for (const Tensor& output : outputs) {
    Internals::view(output);  // invalid for a Tensor that is none
    if (!Internals::writable(output))
      throw Error(ErrorCode::invalid, "an output is given memory to write to that was borrowed to be read");
  }
  return views_of(outputs);
}

// Of a few tensors, without a copy.
struct FewViews {
  static constexpr size_t kMost = 8;
  explicit FewViews(std::span<const Tensor> tensors) : count(tensors.size()) {
    for (size_t i = 0; i < count; ++i) views[i] = &Internals::view(tensors[i]);
  }
  std::span<const device::View* const> span() const { return {views.data(), count}; }

  std::array<const device::View*, kMost> views;
  const size_t count;  // at most kMost
};

// What would run alone anyway.
std::optional<std::vector<Tensor>> call_at_once(const Internals::ModelRep& model,
                                                std::span<const Tensor> inputs,
                                                Duration at_most = Duration::max()) {
  if (inputs.size() > FewViews::kMost) return std::nullopt;
  const FewViews views(inputs);
  return within_memory([&]() -> std::optional<std::vector<Tensor>> {
    const std::span<const device::View* const> given = views.span();
    auto ran = model.door == nullptr
                   ? model.calls->try_call(given, at_most)
                   : Internals::runtime(model.device).try_run(*model.model, given, *model.door, at_most);
    if (!ran.has_value()) return std::nullopt;
    return Internals::make_tensors(take(*std::move(ran)));
  });
}

// The same on a stream.
std::optional<std::vector<Tensor>> call_on_stream(const Internals::ModelRep& model, const Stream& stream,
                                                  std::span<const device::View* const> inputs,
                                                  const CallOptions& options, Deadline deadline) {
  if (options.outputs.size() > FewViews::kMost) return std::nullopt;
  if (!std::ranges::all_of(options.outputs, &Internals::writable)) return std::nullopt;
  const FewViews outputs(options.outputs);
  return within_memory([&]() -> std::optional<std::vector<Tensor>> {
    auto ran = Internals::runtime(model.device)
                   .try_run_on(*model.model, {Internals::stream(stream), inputs, outputs.span(),
                                              options.in_slices, deadline});
    if (!ran.has_value()) return std::nullopt;
    std::vector<device::View> views = take(*std::move(ran));
    return options.outputs.empty() ? Internals::make_tensors(std::move(views)) : options.outputs;
  });
}

// On a thread of the model's own, which serves others: what the answer throws ends here.
void give(const Model::Answer& then, Result<std::vector<device::View>> result) {
  std::vector<Tensor> outputs;
  std::exception_ptr error;
  try {
    outputs = Internals::make_tensors(take(std::move(result)));
  } catch (...) {  // the caller's answer
    error = std::current_exception();
  }
  try {
    then(std::move(outputs), error);
  } catch (const std::exception& thrown) {
    log(LogLevel::error, text("an answer to Model::submit threw, which was dropped: ", thrown.what()));
  } catch (...) {  // no std::exception
    log(LogLevel::error, "an answer to Model::submit threw, which was dropped");
  }
}

// Some of these, in the memory of whoever has them where they are few.
template <class T>
class Some {
 public:
  explicit Some(size_t count) : count_(count), many_(count > kFew ? count : 0) {}
  std::span<T> span() { return {count_ > kFew ? many_.data() : few_.data(), count_}; }
  std::span<const T> span() const { return {count_ > kFew ? many_.data() : few_.data(), count_}; }

 private:
  static constexpr size_t kFew = 2;
  const size_t count_;
  std::array<T, kFew> few_ = {};
  std::vector<T> many_;
};

// A submission, in one piece of memory: the thread that answers it is seldom the one that made it.
class Submitted final : public batch::Absent {
 public:
  Submitted(const Device& device, std::span<const Tensor> inputs, Model::Answer then)
      : views_(inputs.size()), owners_(inputs.size()), then_(std::move(then)) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      views_.span()[i] = Internals::view(inputs[i]);
      owners_.span()[i] = Internals::keep(inputs[i]);
    }
    may_be_left_ = Internals::keeps_all(device, inputs);
  }
  std::span<const device::View> inputs() const override { return views_.span(); }
  Ref<const void> keep() const override {
    if (!may_be_left_) return nullptr;
    const auto owners = owners_.span();
    return std::make_shared<const std::vector<Owner>>(owners.begin(), owners.end());
  }
  void answer(Result<Views> result) override {
    const Model::Answer then = std::move(then_);  // what it holds goes with it, also where this stays
    give(then, std::move(result));
  }

 private:
  using Owner = std::shared_ptr<const void>;
  Some<device::View> views_;
  Some<Owner> owners_;  // of memory that is in no buffer
  bool may_be_left_ = false;
  Model::Answer then_;
};

std::vector<ir::Extents> extents_of(std::span<const Shape> shapes, const std::vector<Port>& inputs) {
  if (shapes.size() != inputs.size()) {
    throw Error(ErrorCode::invalid, text(shapes.size(), " shapes for a model of ", inputs.size(), " inputs"));
  }
  std::vector<ir::Extents> extents;
  for (size_t i = 0; i < shapes.size(); ++i) extents.push_back(to_extents(shapes[i], inputs[i].dtype));
  return extents;
}

PlannedNode described(const plan::PlannedNode& node, const Rates& rates) {
  PlannedNode described{node.op, node.name, {}, node.step, {}, {}, {}, node.path};
  for (const ir::ConcreteType& type : node.outputs) {
    described.outputs.push_back(text(type.dtype, type.extents));
  }
  if (!node.cost) return described;
  described.flops = node.cost->flops;
  described.bytes = node.cost->bytes;
  described.estimated_s =
      plan::seconds(*node.cost, {rates.flops_per_s, rates.cached_bytes_per_s, rates.memory_bytes_per_s,
                                 rates.cached_bytes, rates.step_s});
  return described;
}

const ir::Graph& kept(const std::shared_ptr<const ir::Graph>& source) {
  if (source != nullptr) return *source;
  throw Error(ErrorCode::invalid,
              "the graph as it was given was not kept; load the model with keep_source to look at it");
}

std::string first_name(const ir::Graph& graph, const ir::Node& node) {
  for (ir::ValueId id : node.outputs) {
    if (id != ir::kNoValue) return graph.values[id].name;
  }
  return node.name;
}

std::vector<std::string> operators(const ir::Graph& graph, const std::vector<int>& nodes) {
  std::vector<std::string> names;
  for (int node : nodes) names.emplace_back(graph.nodes[static_cast<size_t>(node)].op->name);
  return names;
}

CoalescingStats& operator+=(CoalescingStats& all, const CoalescingStats& more) {
  all.calls += more.calls;
  all.batches += more.batches;
  all.rows.resize(std::max(all.rows.size(), more.rows.size()));
  for (size_t rows = 0; rows < more.rows.size(); ++rows) all.rows[rows] += more.rows[rows];
  all.exhausted += more.exhausted;
  all.left += more.left;
  all.waiting += more.waiting;
  all.max_batch = std::max(all.max_batch, more.max_batch);
  all.lanes += more.lanes;
  return all;
}

// What was submitted gets its answers, on whichever device it is.
void end_submissions(const Internals::ModelRep& model) {
  if (model.replicas != nullptr) {
    for (const Model& other : model.replicas->others()) end_submissions(*Internals::rep(other));
  }
  if (model.calls != nullptr) model.calls->close();
}

Model make_model_on(const Device& device, ir::Graph graph, const ModelOptions& options) {
  runtime::Runtime& runtime = Internals::runtime(device);
  check(runtime.usable());
  std::shared_ptr<const ir::Graph> source;
  if (options.keep_source) {
    plan::name_values(graph);
    source = std::make_shared<const ir::Graph>(graph);
  }
  device::LoadOptions load;
  load.precision = options.precision;
  load.exact = options.exact;
  Ref<runtime::Model> model = take(runtime.load(std::move(graph), load));
  const plan::Batchable batchable = plan::batchable(model->module().graph());
  log(LogLevel::info, text("loaded model '", model->name(), "': ", model->module().graph().nodes.size(),
                           " nodes, ", model->module().weight_bytes(), " bytes of weights, ",
                           batchable.yes ? std::string("batchable") : "not batchable: " + batchable.reason));
  auto inputs = ports_of(model->inputs()), outputs = ports_of(model->outputs());
  const std::shared_ptr<Internals::ModelRep> rep(new Internals::ModelRep{device,
                                                                         std::move(model),
                                                                         std::move(inputs),
                                                                         std::move(outputs),
                                                                         batchable.yes,
                                                                         batchable.reason,
                                                                         nullptr,
                                                                         false,
                                                                         nullptr,
                                                                         {},
                                                                         std::move(source)},
                                                 [](Internals::ModelRep* made) {
                                                   end_submissions(*made);  // each gets its answer
                                                   delete made;
                                                 });
  set_up_coalescing(*rep, options);
  return Internals::make_model(rep);
}

}  // namespace

Model make_model(ir::Graph graph, const ModelOptions& options) {
  if (options.devices.empty())
    return make_model_on(options.device ? *options.device : Device(), std::move(graph), options);
  if (options.device)
    throw Error(ErrorCode::invalid, "a model is loaded on `device` or on `devices`, not on both");
  check_devices(options.devices);
  std::vector<Model> others;
  for (size_t i = 1; i < options.devices.size(); ++i)
    others.push_back(make_model_on(options.devices[i], graph, options));
  Model first = make_model_on(options.devices[0], std::move(graph), options);
  if (!others.empty())
    Internals::set_replicas(first, std::make_shared<const Replicas>(options.devices[0], std::move(others)));
  return first;
}

Model Model::load(const std::string& path, const ModelOptions& options) {
  return within_memory([&] { return make_model(take(onnx::read_file(path)), options); });
}

Model Model::load_bytes(std::span<const std::byte> onnx, const ModelOptions& options) {
  return within_memory([&] { return make_model(take(onnx::read_bytes(onnx)), options); });
}

const std::vector<Port>& Model::inputs() const { return rep_->inputs; }
const std::vector<Port>& Model::outputs() const { return rep_->outputs; }
bool Model::batchable() const { return rep_->batchable; }
const std::string& Model::why_not_batchable() const { return rep_->why_not; }
Device Model::device() const { return rep_->device; }
std::vector<Device> Model::devices() const {
  return rep_->replicas == nullptr ? std::vector<Device>{rep_->device} : rep_->replicas->devices();
}
Device Model::device_of(std::span<const Tensor> inputs) const {
  if (rep_->replicas == nullptr) return rep_->device;
  return rep_->replicas->devices()[rep_->replicas->device_of(inputs).value_or(0)];
}
uint64_t Model::weight_bytes() const { return rep_->model->module().weight_bytes(); }
std::string Model::graph() const { return to_string(rep_->model->module().graph()); }
bool Model::closed() const { return rep_->model->closed(); }
void Model::close() const {
  if (rep_->replicas != nullptr) {
    for (const Model& other : rep_->replicas->others()) other.close();
  }
  rep_->calls->close();
  check(rep_->model->close(Deadline::never()));
}
std::string Model::explain_coalescing() const {
  std::string said = rep_->joins ? rep_->coalescing + rep_->calls->describe() : rep_->coalescing;
  if (rep_->replicas != nullptr)
    said +=
        text("; on each of ", rep_->replicas->others().size() + 1, " devices, a call on the least occupied");
  return said;
}

std::optional<CoalescingStats> Model::coalescing_stats() const {
  if (!rep_->joins) return std::nullopt;
  const batch::Coalescer::Stats stats = rep_->calls->stats();
  CoalescingStats all{stats.calls, stats.batches, stats.rows,     stats.refused,
                      stats.left,  stats.parked,  stats.rows_max, stats.lanes};
  if (rep_->replicas != nullptr) {
    for (const Model& other : rep_->replicas->others()) all += *other.coalescing_stats();
  }
  return all;
}

std::vector<Tensor> Model::operator()(std::span<const Tensor> inputs, const CallOptions& options) const {
  const trace::Span span("api", "call");
  std::optional<Replicas::Taken> taken;
  if (rep_->replicas != nullptr) {
    taken.emplace(rep_->replicas->take(inputs, options.stream ? &*options.stream : nullptr));
    if (const Model* const other = taken->other()) return (*other)(inputs, options);
  }
  const std::optional<Stream> guarded = options.stream ? std::nullopt : guarded_stream(rep_->device);
  const bool is_free = !options.keep_on_device && options.outputs.empty();
  if (!options.stream && !guarded && is_free) {
    if (auto outputs = call_at_once(*rep_, inputs)) return *std::move(outputs);
  }
  const Stream* stream = options.stream ? &*options.stream : guarded ? &*guarded : nullptr;
  if (stream != nullptr && !Internals::is_on(*stream, rep_->device)) {
    throw Error(ErrorCode::invalid, "the call's stream belongs to another device than the model");
  }
  const Deadline deadline = to_deadline(options.timeout);
  if (stream != nullptr && inputs.size() <= FewViews::kMost) {
    if (auto made = call_on_stream(*rep_, *stream, FewViews(inputs).span(), options, deadline))
      return *std::move(made);
  }
  const std::vector<device::View> views = views_of(inputs);
  if (stream == nullptr && is_free && coalesces(*rep_, views)) {
    return within_memory([&] {
      const auto keep = [&] { return Internals::keep_all(rep_->device, inputs); };
      return Internals::make_tensors(take(rep_->calls->join(views, deadline, options.cancel, keep)));
    });
  }
  runtime::Call call;
  call.inputs = views;
  call.stream = stream == nullptr ? nullptr : &Internals::stream(*stream);
  call.deadline = deadline;
  call.wait = stream == nullptr;
  call.results_on_device = options.keep_on_device;
  call.in_slices = options.in_slices;
  const std::vector<device::View> outputs = views_to_write(options.outputs);
  call.outputs = outputs;
  if (outputs.empty()) {
    call.keep = Internals::keep_all(rep_->device, inputs);
  } else {
    std::vector<Tensor> named(inputs.begin(), inputs.end());
    named.insert(named.end(), options.outputs.begin(), options.outputs.end());
    call.keep = Internals::keep_all(rep_->device, named);
  }
  return within_memory([&] {
    std::vector<device::View> made = take(Internals::runtime(rep_->device).run(*rep_->model, call));
    return outputs.empty() ? Internals::make_tensors(std::move(made)) : options.outputs;
  });
}

std::vector<Tensor> Model::call_windows(std::span<const Window> inputs, const CallOptions& options) const {
  const bool at_once = options.stream && rep_->replicas == nullptr && inputs.size() <= FewViews::kMost &&
                       Internals::runtime(rep_->device).device().traits().synchronous &&
                       Internals::is_on(*options.stream, rep_->device);
  if (at_once) {
    // They own nothing: each copy of a reference to memory that threads share would write its count.
    std::array<device::View, FewViews::kMost> views;
    std::array<const device::View*, FewViews::kMost> places;
    for (size_t i = 0; i < inputs.size(); ++i) {
      Internals::set_window(views[i], inputs[i]);
      views[i].buffer = {Ref<void>(), Internals::view(inputs[i].memory).buffer.get()};
      places[i] = &views[i];
    }
    trace::Span span("api", "call");
    if (auto made = call_on_stream(*rep_, *options.stream, {places.data(), inputs.size()}, options,
                                   to_deadline(options.timeout)))
      return *std::move(made);
    span.drop();
  }
  std::vector<Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const Window& each : inputs) tensors.push_back(Internals::make_view(each));
  return (*this)(tensors, options);
}

std::optional<std::vector<Tensor>> Model::try_brief(std::span<const Tensor> inputs,
                                                    std::chrono::nanoseconds at_most) const {
  std::optional<Replicas::Taken> taken;
  if (rep_->replicas != nullptr) {
    taken.emplace(rep_->replicas->take(inputs));
    if (const Model* const other = taken->other()) return other->try_brief(inputs, at_most);
  }
  if (guarded_stream(rep_->device)) return std::nullopt;
  trace::Span span("api", "call");
  auto outputs = call_at_once(*rep_, inputs, at_most);
  if (!outputs) span.drop();
  return outputs;
}

void Model::submit(std::span<const Tensor> inputs, const CallOptions& options, Answer then) const {
  if (!then) throw Error(ErrorCode::invalid, "submit needs a function to give the answer to");
  if (options.stream || options.keep_on_device) {
    throw Error(ErrorCode::invalid,
                options.stream
                    ? "submit takes no stream: what is submitted runs in no order; call the model for that"
                    : "submit gives results to the host; call the model for results on its device");
  }
  if (!options.outputs.empty())
    throw Error(ErrorCode::invalid, "submit writes to no memory of the caller's; call the model for that");
  if (rep_->replicas != nullptr) {
    // Until the answer was given. The other models, too: that may let the last handle go.
    struct Held {
      std::shared_ptr<const Replicas> replicas;
      Replicas::Taken taken;
    };
    const auto held = std::make_shared<const Held>(Held{rep_->replicas, rep_->replicas->take(inputs)});
    then = [held, then = std::move(then)](std::vector<Tensor> results, std::exception_ptr error) {
      then(std::move(results), std::move(error));
    };
    if (const Model* const other = held->taken.other())
      return other->submit(inputs, options, std::move(then));
  }
  // The answer may come, and end this handle, before submit returns.
  const Ref<batch::Coalescer> calls = rep_->calls_apart[runtime::this_thread_stripe(Rep::kApart)];
  within_memory([&] {
    batch::Coalescer::Submission call;
    call.absent = std::make_unique<Submitted>(rep_->device, inputs, std::move(then));
    call.deadline = to_deadline(options.timeout);
    call.cancel = options.cancel;
    call.alone = !coalesces(*rep_, call.absent->inputs());
    check(calls->submit(std::move(call)));
  });
}

void Model::compile(std::span<const Shape> shapes) const {
  if (rep_->replicas != nullptr) {
    for (const Model& other : rep_->replicas->others()) other.compile(shapes);
  }
  const std::vector<ir::Extents> extents = extents_of(shapes, rep_->inputs);
  within_memory([&] { check(Internals::runtime(rep_->device).compile(*rep_->model, extents)); });
}

Plan Model::plan(std::span<const Shape> shapes, const Rates& rates) const {
  const std::vector<ir::Extents> extents = extents_of(shapes, rep_->inputs);
  const plan::ProgramPlan planned =
      within_memory([&] { return take(Internals::runtime(rep_->device).plan(*rep_->model, extents)); });
  Plan plan{{},
            planned.arena_bytes,
            planned.arena_bytes_apart,
            planned.slot_bytes,
            planned.weights,
            planned.launches};
  for (const plan::PlannedNode& node : planned.nodes) plan.nodes.push_back(described(node, rates));
  return plan;
}

std::string Model::source_graph() const { return to_string(kept(rep_->source)); }

std::vector<Replacement> Model::replacements() const {
  const ir::Graph& source = kept(rep_->source);
  const ir::Graph& optimised = rep_->model->module().graph();
  std::vector<Replacement> all;
  for (const plan::Replacement& each : plan::replacements(source, optimised)) {
    const ir::Node& last = optimised.nodes[static_cast<size_t>(each.nodes.back())];
    all.push_back(
        {first_name(optimised, last), operators(optimised, each.nodes), operators(source, each.sources)});
  }
  return all;
}

}  // namespace heddle
