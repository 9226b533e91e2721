// coalescing.cpp: which models coalesce, with which defaults, and why not.
#include "api/coalescing.h"

#include <algorithm>

#include "api/submissions.h"
#include "base/own_count.h"
#include "base/thread.h"
#include "drivers/host/machine/cpu_budget.h"

namespace heddle {
namespace {

// What exporters of text encoders and decoders agree on, if there is an integer mask. Whether padding does no
// harm is checked before it is used (padding_check.h).
std::vector<RaggedInput> known_export(const std::vector<Port>& inputs) {
  std::vector<RaggedInput> ragged;
  bool masked = false;
  for (const Port& port : inputs) {
    const bool known =
        port.name == "input_ids" || port.name == "attention_mask" || port.name == "token_type_ids";
    if (!known || port.shape.size() != 2 || port.shape[1] != inputs[0].shape[1]) return {};
    masked =
        masked || (port.name == "attention_mask" && port.dtype != DType::f32 && port.dtype != DType::f16);
    ragged.push_back({port.name, 1, 0});
  }
  const bool symbolic =
      !ragged.empty() && inputs[0].shape[1].find_first_not_of("0123456789") != std::string::npos;
  return masked && symbolic ? ragged : std::vector<RaggedInput>{};
}

std::vector<batch::RaggedInput> to_batch(const std::vector<RaggedInput>& ragged) {
  std::vector<batch::RaggedInput> out;
  for (const RaggedInput& each : ragged) {
    if (each.axis < 1) {
      throw Error(ErrorCode::invalid, text("the ragged axis of input '", each.input, "' is ", each.axis,
                                           "; it has to be 1 or more"));
    }
    out.push_back({each.input, static_cast<size_t>(each.axis), each.pad});
  }
  return out;
}

constexpr int kMostRows = 1 << 16;
// On a device beside the processor another lane's launches slow the others', and batches are smaller: two
// lanes of 8 rows serve less than one of 16, and three as much as one of 24 (docs/cuda.md).
constexpr int64_t kLeastShare = 8;

Ref<batch::Coalescer> coalescer_of(const Internals::ModelRep& model, const ModelOptions& options) {
  const Ref<runtime::Runtime>& runtime = Internals::runtime_ref(model.device);
  const auto layout_for = [&](const std::vector<RaggedInput>& ragged) {
    return batch::RowLayout::make(model.model->inputs(), model.model->outputs(), to_batch(ragged),
                                  options.exact);
  };
  const batch::RowLayout equal = take(layout_for({}));
  std::optional<batch::RowLayout> padded;
  if (options.ragged) {
    padded = take(layout_for(*options.ragged));
  } else if (auto known = layout_for(known_export(model.inputs)); known.ok()) {
    padded = std::move(known).value();
  }
  if (padded && (!padded->ragged() || options.exact)) padded.reset();  // exact: nothing is padded
  batch::CoalescerOptions coalesce;
  const device::Traits& traits = runtime->device().traits();
  // Permits are the bound where somebody asked for fewer: batches are then fewer, and larger.
  const int permits = runtime->governor().limit();
  coalesce.lanes = std::min(traits.lanes, permits);
  // A synchronous device is idle while a call is handed on to the next thread; others have a queue.
  coalesce.lanes_alone =
      traits.synchronous ? std::min(std::max(traits.lanes, traits.queue_depth), permits) : coalesce.lanes;
  // Who answers submissions has the cores that lanes leave.
  if (!traits.synchronous) {
    coalesce.more_leaders = std::max(0, processors() - coalesce.lanes_alone - 1);
    coalesce.least_share = kLeastShare;
    // Where looks would use up a quota, the kernel stops all threads for the rest of its period.
    coalesce.look_on = host::read_budget().quota == 0 ? processors() : 0;
  }
  coalesce.chooses_lanes = traits.synchronous;  // lanes that are left have their cores, as helpers
  coalesce.max_rows = options.max_batch;
  coalesce.max_parked = static_cast<size_t>(options.max_waiting);
  if (options.latency_bound) coalesce.latency_bound = *options.latency_bound;
  coalesce.alone = !model.joins;
  coalesce.door = model.joins && traits.synchronous && traits.unified_memory;
  coalesce.outlives = submissions::keep;
  std::unique_ptr<batch::PaddingCheck> padding;
  if (padded) {
    padding =
        std::make_unique<batch::PaddingCheck>(runtime, model.model, *padded, options.ragged.has_value());
  }
  auto calls = std::make_shared<batch::Coalescer>(runtime, model.model, equal, coalesce, std::move(padding));
  runtime->slots().also_ask(calls, [of = calls.get()] { of->give_up_idle(); });
  return submissions::note(std::move(calls));
}

}  // namespace

void set_up_coalescing(Internals::ModelRep& model, const ModelOptions& options) {
  if (options.max_batch < 1 || options.max_batch > kMostRows || options.max_waiting < 0) {
    throw Error(ErrorCode::invalid,
                text("max_batch is ", options.max_batch, " and max_waiting ", options.max_waiting,
                     "; they have to be 1 to ", kMostRows, " and at least 0"));
  }
  const device::Traits& traits = Internals::runtime(model.device).device().traits();
  model.joins = false;
  if (!options.coalesce) {
    model.coalescing = "off: the model was loaded with coalesce=False";
  } else if (!model.batchable) {
    model.coalescing = "off: rows of different callers cannot be told apart: " + model.why_not;
  } else if (options.max_batch == 1) {
    model.coalescing = "off: max_batch is 1";
  } else {
    model.joins = true;
    model.coalescing =
        text("on: calls that find ",
             traits.lanes == 1 ? text("the lane") : text("all ", traits.lanes, " lanes"), " of device '",
             traits.name, "' busy are joined where that pays, up to ", options.max_batch, " rows; ");
  }
  if (!model.joins && traits.synchronous && traits.unified_memory) {
    const int lanes = Internals::runtime(model.device).governor().limit();
    model.door = std::make_unique<runtime::LoneDoor>(lanes, 0);
    model.door->open(lanes);
  }
  model.calls = coalescer_of(model, options);  // its refusals come in any case
  for (Ref<batch::Coalescer>& each : model.calls_apart) each = own_count(model.calls);
}

}  // namespace heddle
