#include "drivers/cuda/lowering/lowering.h"

#include <algorithm>
#include <utility>

#include "drivers/cuda/kernels/held_rows.h"
#include "drivers/cuda/kernels/turn.h"
#include "ir/op.h"

namespace heddle::cuda {
namespace {

constexpr std::span<const LoweringEntry> (*kFamilies[])() = {
    elementwise_lowerings, movement_lowerings, reduction_lowerings, row_lowerings,
    product_lowerings,     index_lowerings,    control_lowerings,   order_lowerings,
    scatter_lowerings,     matrix_lowerings,   attention_lowerings, recurrent_lowerings,
    convolution_lowerings, pool_lowerings,     sampling_lowerings,  chain_lowerings,
};

}  // namespace

Lower find_lowering(std::string_view op) {
  for (const auto family : kFamilies) {
    for (const LoweringEntry& entry : family()) {
      if (entry.op == op) return entry.lower;
    }
  }
  return nullptr;
}

std::string_view computed_in(ir::DType dtype) {
  if (dtype == ir::DType::kF64) return "_f64";
  if (dtype == ir::DType::kU64) return "_u64";
  return ir::is_float(dtype) ? "_f32" : "_i64";
}

std::string_view by_bytes(int64_t size) {
  return size == 1 ? "_1" : size == 2 ? "_2" : size == 4 ? "_4" : "_8";
}

Grid rows_grid(int64_t rows, int64_t extent, ir::DType dtype) {
  constexpr int64_t kMostBlocks = 1 << 16, kMostThreads = 512, kLeastThreads = 32, kEach = 4;
  int64_t threads = kLeastThreads;
  while (threads < kMostThreads && threads * kEach < extent) threads *= 2;
  const int64_t word = computed_in(dtype) == "_f32" ? 4 : 8;
  return {std::clamp<int64_t>(rows, 1, kMostBlocks), threads, threads * word};
}

Teams teams_for(int64_t rows, int64_t extent, int64_t word_bytes, int multiprocessors) {
  constexpr int64_t kMostBlocks = 1 << 16, kThreadsOfShortRows = 128;
  int64_t lanes = kWarp;
  while (lanes < kMostLanes && lanes * kHeld < extent) lanes *= 2;
  // Few rows are spread over all multiprocessors.
  int64_t threads = lanes;
  while (threads < kThreadsOfShortRows && rows * lanes > threads * multiprocessors) threads *= 2;
  const int64_t teams = threads / lanes, blocks = (rows + teams - 1) / teams;
  const int64_t shared = std::max<int64_t>(threads / kWarp * word_bytes, 16);  // shared() rounds up
  return {static_cast<int32_t>(lanes), {std::clamp<int64_t>(blocks, 1, kMostBlocks), threads, shared}};
}

Walk walk_to(const Operand& out, std::span<const Operand> in) {
  std::vector<int64_t> extents(out.extents.begin(), out.extents.end());
  std::vector<std::vector<int64_t>> strides;
  for (const Operand& operand : in)
    strides.push_back(broadcast_strides(operand.extents, operand.strides(), extents.size()));
  if (out.channels_last) {
    move_channels_last(extents);
    for (std::vector<int64_t>& each : strides) move_channels_last(each);
  }
  return walk_of(extents, strides);
}

const ir::Tensor* Lowering::constant(size_t input) const {
  return has(input) && value(input).is_constant() ? &*value(input).constant : nullptr;
}

Result<std::vector<int64_t>> Lowering::integers(size_t input, std::string_view what) const {
  if (const ir::Tensor* known = constant(input)) return known->to_i64();
  return Status::unsupported(what, " has to be known while compiling");
}

Flags Lowering::flags(size_t input, std::string mistake) {
  const ir::Extents& extents = inputs[input].extents;
  const std::optional<size_t> rows = value(input).row_axis;
  int64_t count = 1, inner = 1;
  if (rows.has_value() && *rows < extents.rank()) {
    count = extents[*rows];
    for (size_t axis = *rows + 1; axis < extents.rank(); ++axis) inner *= extents[axis];
  }
  return emit.flags(text(node.describe(), ": ", mistake), rows.has_value() ? count : 0, inner);
}

Status Lowering::move(const Operand& from, const std::vector<int64_t>& from_strides, const Operand& to,
                      const std::vector<int64_t>& to_strides, std::span<const int64_t> extents) {
  std::vector<int64_t> order[] = {{extents.begin(), extents.end()}, from_strides, to_strides};
  if (to.channels_last) {  // elements that are written side by side lie so
    for (std::vector<int64_t>& each : order) move_channels_last(each);
  }
  const MoveParams params = move_params(order[0], order[1], order[2]);
  if (params.count == 0) return {};
  return launch(text("move", by_bytes(to.element_bytes())), params,
                {names(params.from, from), names(params.to, to)}, grid(params.count));
}

Status Lowering::turn(const Operand& from, const Operand& to) {
  constexpr int64_t kFew = 8, kMostBlocks = 1 << 16;  // a few channels or places would leave tiles empty
  const int64_t images = to.extents[0], channels = to.extents[1];
  const int64_t places = images * channels == 0 ? 0 : to.elements() / (images * channels);
  const bool tiles = channels >= kFew && places >= kFew && to.element_bytes() == sizeof(uint16_t);
  if (from.channels_last == to.channels_last || !tiles)
    return move(from, from.strides(), to, to.strides(), to.extents.span());
  TurnParams params;
  params.matrices = images;
  params.rows = from.channels_last ? places : channels;
  params.columns = from.channels_last ? channels : places;
  const auto in_tiles = [](int64_t count) { return (count + kTurnTile - 1) / kTurnTile; };
  const int64_t blocks = images * in_tiles(channels) * in_tiles(places);
  return launch("turn_2", params, {names(params.from, from), names(params.to, to)},
                {std::min(blocks, kMostBlocks), kThreads, kTurnTile * kTurnRow * int64_t{sizeof(uint16_t)}});
}

Status Lowering::fill(const Operand& to, double value) {
  const std::vector<int64_t> none(1, 0), one(1, 1), all(1, to.elements());
  MoveParams params = move_params(all, none, one);
  if (params.count == 0) return {};
  const ir::Tensor element = ir::Tensor::scalar(to.dtype, value);
  std::memcpy(&params.value, element.data(), static_cast<size_t>(element.bytes()));
  return launch(text("move", by_bytes(to.element_bytes())), params, {names(params.to, to)},
                grid(params.count));
}

Status Lowering::cast(const Operand& from, const Operand& to) {
  MapParams params = flat_params(to.elements());
  if (params.count == 0) return {};
  params.in[0].type = type_of(from.dtype);
  params.in[0].strides[0] = 1;
  params.out_type = type_of(to.dtype);
  return launch(text("same", computed_in(from.dtype)), params,
                {names(params.in[0].data, from), names(params.out, to)}, grid(params.count));
}

// ---- the graph

Arguments Emitter::arguments(const void* params, size_t bytes, std::span<const Bind> binds,
                             const Flags* flags) {
  constexpr size_t kAlign = 16;
  const size_t begin = (out_.params.size() + kAlign - 1) / kAlign * kAlign;
  out_.params.resize(begin + bytes);
  std::memcpy(out_.params.data() + begin, params, bytes);
  const auto at = [&](const uint64_t* field) {
    return static_cast<uint32_t>(reinterpret_cast<const std::byte*>(field) -
                                 static_cast<const std::byte*>(params));
  };
  Arguments made{static_cast<uint32_t>(begin), static_cast<uint32_t>(bytes),
                 static_cast<uint32_t>(out_.patches.size()), 0};
  const auto bind = [&](const Bind& each) {
    using Kind = plan::Place::Kind;
    const Operand& operand = each.operand;
    if (operand.place.kind == Kind::kConstant) {
      const uint64_t address = operand.constant + operand.offset;
      std::memcpy(out_.params.data() + begin + at(each.field), &address, sizeof address);
      return;
    }
    Patch patch{Patch::Kind::kArena, 0, at(each.field), operand.offset};
    if (operand.place.kind == Kind::kArena) {
      patch.offset += operand.place.offset;
    } else {
      patch.kind = operand.place.kind == Kind::kInput ? Patch::Kind::kInput : Patch::Kind::kOutput;
      patch.input = static_cast<uint16_t>(operand.place.offset);
    }
    out_.patches.push_back(patch);
  };
  for (const Bind& each : binds) {
    if (each.operand.present()) bind(each);
  }
  if (flags != nullptr) {
    out_.patches.push_back({Patch::Kind::kFlags, 0, at(&flags->words), flags->words});
    if (enabled.has_value()) bind({&flags->enabled, *enabled});
  }
  made.patch_count = static_cast<uint32_t>(out_.patches.size()) - made.patches;
  return made;
}

Status Emitter::launch(std::string_view kernel, const void* params, size_t bytes, std::span<const Bind> binds,
                       const Flags* flags, const Grid& grid, const char* why) {
  const Kernel* const found = device_->kernels.find(kernel);
  if (found == nullptr || found->params_bytes != bytes)
    return Status::internal("there is no kernel '", kernel, "' that takes ", bytes, " bytes of parameters");
  launch(*found, params, bytes, binds, flags, grid, why);
  return {};
}

void Emitter::launch(const Kernel& kernel, const void* params, size_t bytes, std::span<const Bind> binds,
                     const Flags* flags, const Grid& grid, const char* why) {
  out_.steps.push_back(Launch{&kernel, static_cast<unsigned>(grid.blocks),
                              static_cast<unsigned>(grid.threads), static_cast<unsigned>(grid.shared_bytes),
                              arguments(params, bytes, binds, flags), why});
}

Result<CompiledKernels::Found> Emitter::compiled(const char* name, const std::string& source,
                                                 size_t params_bytes) {
  if (libraries_.chains == nullptr) return CompiledKernels::Found{nullptr, "NVRTC is off"};
  return libraries_.chains->find(name, source, params_bytes);
}

Result<ProductChoice> Emitter::library_product(const BlasProblem& problem, const BlasRivals& rivals) {
  if (libraries_.blas == nullptr) return ProductChoice();
  BlasProblem asked = problem;
  if (asked.dtype == ir::DType::kF32) asked.compute = libraries_.compute;
  return libraries_.blas->product(asked, rivals, source_);
}

Result<Ref<const LibraryCall>> Emitter::library_convolution(const ConvolutionProblem& problem,
                                                            const ConvolutionRivals& rivals) {
  if (libraries_.cudnn == nullptr) return Ref<const LibraryCall>();
  ConvolutionProblem asked = problem;
  asked.math = asked.dtype == ir::DType::kF32 ? libraries_.math : kCudnnTensorMath;
  HEDDLE_TRY_ASSIGN(Ref<const LibraryCall> call, libraries_.cudnn->convolution(asked, rivals, source_));
  return call;
}

Status Emitter::launch_now(std::string_view kernel, const void* params, const Grid& grid, StreamHandle stream,
                           bool in_chain) const {
  const Kernel* const found = device_->kernels.find(kernel);
  if (found == nullptr) return Status::internal("there is no kernel '", kernel, '\'');
  void* pointers[] = {const_cast<void*>(params)};  // CUDA only reads it
  LaunchConfig config;
  config.grid_x = static_cast<unsigned>(grid.blocks);
  config.block_x = static_cast<unsigned>(grid.threads);
  config.shared_bytes = static_cast<unsigned>(grid.shared_bytes);
  config.stream = stream;
  config.attributes = &kEarlyLaunch;
  config.count = in_chain && device_->begins_early(config.grid_x) ? 1 : 0;
  return device_->check(device_->api.launch_with(&config, found->function, pointers, nullptr), kernel);
}

Operand Emitter::scratch(ir::DType dtype, const ir::Extents& extents) {
  constexpr uint64_t kAlign = 256;
  Operand operand;
  operand.dtype = dtype;
  operand.extents = extents;
  operand.place = {plan::Place::Kind::kArena, top_};
  top_ += (static_cast<uint64_t>(extents.elements() * ir::size_of(dtype)) + kAlign - 1) / kAlign * kAlign;
  out_.arena_bytes = std::max(out_.arena_bytes, top_);
  return operand;
}

// `count` 0: one for all, whatever rows a run has.
Flags Emitter::flags(std::string mistake, int64_t count, int64_t inner) {
  Flags flags;
  flags.words = out_.flag_words * sizeof(uint32_t);
  flags.count = std::max<int64_t>(count, 1);
  flags.inner = std::max<int64_t>(inner, 1);
  out_.checks.push_back({std::move(mistake), static_cast<uint64_t>(flags.count), count > 0});
  out_.flag_words += static_cast<uint64_t>(flags.count);
  return flags;
}

Operand Emitter::constant(const ir::Tensor& tensor) const {
  Operand operand;
  operand.dtype = tensor.dtype();
  operand.extents = tensor.extents();
  operand.place.kind = plan::Place::Kind::kConstant;
  for (const Weights* weights : constants_) {
    if (const auto found = weights->find(tensor)) operand.constant = *found;
  }
  return operand;
}

Result<Operand> Emitter::table(const ir::Tensor& tensor) {
  HEDDLE_TRY_ASSIGN(const Ref<const Weights> weights, Weights::make(device_, {tensor}, source_));
  tables_.push_back(weights);
  Operand operand;
  operand.dtype = tensor.dtype();
  operand.extents = tensor.extents();
  operand.place.kind = plan::Place::Kind::kConstant;
  operand.constant = *weights->find(tensor);
  return operand;
}

Result<Operand> Emitter::turned_weight(const ir::Tensor& weight) {
  if (!constants_.front()->find(weight).has_value()) return table(with_channels_last(weight));
  HEDDLE_TRY_ASSIGN(const Ref<const TurnedWeight> turned, turned_.find(weight, source_));
  shared_.push_back(turned);
  Operand operand;
  operand.dtype = weight.dtype();
  operand.extents = weight.extents();
  operand.place.kind = plan::Place::Kind::kConstant;
  operand.constant = *turned->weights->find(turned->turned);
  return operand;
}

Status Emitter::graph(const ir::Graph& graph, const std::vector<Operand>& inputs,
                      const std::vector<Operand>& outputs) {
  const auto bytes_of = [&](ir::ValueId id) {
    return static_cast<uint64_t>(graph.type(id).extents()->elements() * ir::size_of(graph.type(id).dtype));
  };
  for (const ir::Value& value : graph.values) {
    if (!value.type.is_static())
      return Status::internal("value '", value.name, "' is ", value.type, " in a specialised graph");
  }
  const plan::Placement placed = plan::place_values(graph, bytes_of);
  constexpr uint64_t kAlign = 256;
  const uint64_t before = top_;
  top_ = before + (placed.arena_bytes + kAlign - 1) / kAlign * kAlign;
  out_.arena_bytes = std::max(out_.arena_bytes, top_);
  const bool outermost = depth_++ == 0;
  if (outermost) outline_ = {{}, placed.arena_bytes, placed.arena_bytes_apart};

  std::vector<Operand> operands(graph.values.size());
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    const plan::Place place = placed.places[id];
    Operand& operand = operands[id];
    switch (place.kind) {
      case plan::Place::Kind::kNone:
        break;
      case plan::Place::Kind::kInput:
        operand = inputs[place.offset];
        break;
      case plan::Place::Kind::kOutput:
        operand = outputs[place.offset];
        break;
      case plan::Place::Kind::kArena:
        operand.place = {place.kind, before + place.offset};
        break;
      case plan::Place::Kind::kConstant:
        operand = constant(*graph.values[placed.root[id]].constant);
        break;
    }
    operand.dtype = graph.type(id).dtype;
    operand.extents = *graph.type(id).extents();
  }
  // What a chain of element-wise operators keeps lies as its results do.
  const bool chain_so = std::ranges::any_of(outputs, &Operand::channels_last);
  ChannelsLast lying{std::vector<char>(operands.size(), chain_so ? 1 : 0),
                     std::vector<char>(graph.nodes.size(), 0)};
  if (outermost && libraries_.cudnn != nullptr) {
    HEDDLE_TRY_ASSIGN(lying, channels_last(graph, operands));
  }
  for (ir::ValueId id = 0; id < operands.size(); ++id) {
    Operand& operand = operands[id];
    if (operand.place.kind == plan::Place::Kind::kArena && !same_in_both_orders(operand.extents))
      operand.channels_last = lying.values[id] != 0;
  }
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& each = graph.nodes[i];
    const size_t first = out_.steps.size();
    Status status = plan::renames(each) ? Status() : node(graph, each, operands, lying.nodes[i] != 0);
    if (!status.ok()) return status.with_context(each.describe());
    if (outermost) outline_.nodes.push_back({first, out_.steps.size()});
  }
  Lowering end{*this, graph, {}, {}, {}};
  for (const plan::Placement::Copy& copy : placed.copies) {
    Operand to = outputs[copy.output];
    const std::vector<int64_t> all(1, operands[copy.from].elements()), one(1, 1);
    to.dtype = operands[copy.from].dtype;
    HEDDLE_TRY(end.move(operands[copy.from], one, to, one, all));
  }
  top_ = before;
  --depth_;
  return {};
}

Result<ChannelsLast> Emitter::channels_last(const ir::Graph& graph, const std::vector<Operand>& operands) {
  std::vector<char> convolves(graph.nodes.size(), 0);
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    const ir::Node& node = graph.nodes[i];
    if (!node.is("Conv") || operands[node.outputs[0]].elements() == 0) continue;
    Lowering asked{*this, graph, node, {}, {operands[node.outputs[0]]}};
    for (const ir::ValueId id : node.inputs)
      asked.inputs.push_back(id == ir::kNoValue ? Operand() : operands[id]);
    Result<bool> can = convolves_channels_last(asked);
    if (!can.ok()) return can.status().with_context(node.describe());
    convolves[i] = *can ? 1 : 0;
  }
  return choose_channels_last(graph, convolves);
}

// Operands in the other order than the node's are turned on the way.
Status Emitter::in_its_order(Lowering& lowering, Lower lower, bool channels_last) {
  const AnyOrder any = any_order(lowering.node);
  const auto other = [&](const Operand& operand) { return operand.channels_last != channels_last; };
  const auto turned = [&](const Operand& operand) {
    Operand copy = same_in_both_orders(operand.extents) ? operand : scratch(operand.dtype, operand.extents);
    copy.channels_last = channels_last;
    return copy;
  };
  const auto move = [&](const Operand& from, const Operand& to) {
    return same_in_both_orders(to.extents) ? Status() : lowering.turn(from, to);
  };
  const std::span<const size_t> planes = planes_of(lowering.node);
  for (size_t i = 0; i < lowering.inputs.size() && !any.reads; ++i) {
    Operand& input = lowering.inputs[i];
    if (!input.present() || !other(input)) continue;
    if (channels_last && std::ranges::find(planes, i) == planes.end()) continue;
    const Operand given = std::exchange(input, turned(input));
    HEDDLE_TRY(move(given, input));
  }
  const std::vector<Operand> wanted = lowering.outputs;
  for (Operand& output : lowering.outputs) {
    if (!any.writes && output.present() && other(output)) output = turned(output);
  }
  HEDDLE_TRY(lower(lowering));
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i].channels_last == lowering.outputs[i].channels_last) continue;
    HEDDLE_TRY(move(lowering.outputs[i], wanted[i]));
  }
  return {};
}

Status Emitter::node(const ir::Graph& graph, const ir::Node& node, const std::vector<Operand>& operands,
                     bool channels_last) {
  const Lower lower = find_lowering(node.op->name);
  if (lower == nullptr) return Status::unsupported("the CUDA driver has no lowering for it");
  Lowering lowering{*this, graph, node, {}, {}};
  bool anything = false;
  for (const ir::ValueId id : node.inputs)
    lowering.inputs.push_back(id == ir::kNoValue ? Operand() : operands[id]);
  for (const ir::ValueId id : node.outputs) {
    lowering.outputs.push_back(id == ir::kNoValue ? Operand() : operands[id]);
    anything = anything || lowering.outputs.back().elements() > 0;
  }
  if (!anything) return {};
  const uint64_t before = top_;
  Status status = in_its_order(lowering, lower, channels_last);
  top_ = before;
  return status;
}

Result<Lowered> Emitter::take() { return std::move(out_); }

}  // namespace heddle::cuda
