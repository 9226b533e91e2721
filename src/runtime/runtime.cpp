#include "runtime/runtime.h"

#include <optional>

#include "base/fork.h"
#include "base/no_memory.h"
#include "device/row_faults.h"
#include "runtime/binding.h"
#include "runtime/registry.h"

namespace heddle::runtime {

using device::CommandList;
using device::View;

namespace {
bool named(const View& view) { return view.buffer == nullptr; }  // memory of the caller, in a command
}  // namespace

Runtime::Runtime(Ref<device::Device> device, const Options& options)
    : device_(std::move(device)),
      options_(options),
      generation_(fork_generation()),
      can_run_at_once_(device_->traits().synchronous && device_->traits().unified_memory),
      copies_(registry::next_model_id()),
      parts_(std::make_unique<Parts>()) {}

Result<Ref<Runtime>> Runtime::make(Ref<device::Device> device, Options options) {
  if (options.in_flight < 0 || options.in_flight > Governor::kMaxLimit) {
    return Status::invalid("an in-flight limit of ", options.in_flight, " was asked for; it must be 1 to ",
                           Governor::kMaxLimit, ", or 0 for as many as the device asks for");
  }
  Ref<Runtime> runtime(new Runtime(std::move(device), options));
  HEDDLE_TRY(runtime->build());
  return runtime;
}

Status Runtime::build() {
  const device::Traits& traits = device_->traits();
  const int limit = options_.in_flight > 0 ? options_.in_flight : traits.queue_depth;
  if (options_.own_governor) {
    parts_->governor = Governor::make(traits.name, limit);
  } else {
    HEDDLE_TRY_ASSIGN(parts_->governor, registry::governor(traits.name, limit));
  }
  parts_->executables = std::make_shared<Executables>(options_);
  HEDDLE_TRY_ASSIGN(parts_->allocator, Allocator::make(device_, options_));
  parts_->roster = std::make_shared<Roster>(device_, *options_.clock);
  HEDDLE_TRY_ASSIGN(parts_->streams, StreamPool::make(parts_->roster, options_));
  if (traits.runs_together > 1) parts_->governor->ask_when_full(parts_->roster);
  parts_->lanes = std::make_shared<Lanes>(parts_->roster, parts_->governor);
  const int slices =
      options_.slices > 0 ? options_.slices : TimeSlices::width_for(traits.threads, traits.synchronous);
  parts_->time_slices = std::make_unique<TimeSlices>(slices, *options_.clock);
  parts_->executables->on_change([lanes = std::weak_ptr<Lanes>(parts_->lanes)] {
    if (const Ref<Lanes> living = lanes.lock()) living->drop_programs();
  });
  // One forms while another runs.
  parts_->slots = std::make_shared<Slots>(parts_->allocator, traits.unified_memory,
                                          2 * static_cast<size_t>(parts_->governor->limit()));
  parts_->allocator->hoard([slots = std::weak_ptr<Slots>(parts_->slots),
                            lanes = std::weak_ptr<Lanes>(parts_->lanes),
                            roster = std::weak_ptr<Roster>(parts_->roster)] {
    Allocator::LetGo asked;
    if (const Ref<Roster> living = roster.lock()) living->give_up();
    if (const Ref<Slots> living = slots.lock()) asked = living->drop_idle();
    if (const Ref<Lanes> living = lanes.lock()) living->drop_idle_slots();
    return asked;
  });
  if (!traits.synchronous) {
    HEDDLE_TRY_ASSIGN(parts_->reaper, Thread::start("heddle-reaper", [this] { reap(); }));
  }
  return {};
}

Runtime::~Runtime() {
  if (fork_generation() != generation_) {
    static_cast<void>(
        parts_.release());  // its threads and locks stayed in the parent: touching them would hang
    return;
  }
  if (parts_->streams == nullptr) return;  // build() has failed
  close(Deadline::never());
  static_cast<void>(parts_->roster->synchronize(Deadline::never()));
  parts_->roster->drop_finished();
  parts_->reaper_stops.store_relaxed(true);  // the ring orders it: reap() reads the bell first
  parts_->roster->bell()->ring();
  parts_->reaper.join();
  parts_->governor->forget(copies_);
}

void Runtime::reap() {
  const Ref<Bell> bell = parts_->roster->bell();
  for (;;) {
    const uint64_t seen = bell->rings();  // first: work that ends while we sweep rings again
    bool again = true;                    // also where a sweep lacks memory
    static_cast<void>(or_exhausted("a sweep", [&] {
      parts_->roster->drop_finished();
      const bool held_back = parts_->roster->send_older(options_.clock->now() - Stream::kPatience);
      parts_->allocator->reap_pending();
      again = held_back;
      return Status();
    }));
    if (parts_->reaper_stops.load_relaxed()) return;
    if (again) {
      const auto never = [] { return false; };
      static_cast<void>(parts_->reaper_rests.lock().wait_until(Deadline::in(Stream::kPatience), never));
    } else {
      bell->wait(seen);
    }
  }
}

Status Runtime::ours() const {
  if (fork_generation() != generation_) [[unlikely]]
    return forked();
  return {};
}

Status Runtime::usable() const {
  HEDDLE_TRY(ours());
  if (gate_.closed()) [[unlikely]]
    return Status::unavailable("the runtime is closed");
  return {};
}

Result<Ref<Model>> Runtime::load(ir::Graph graph, const device::LoadOptions& options) {
  HEDDLE_TRY(usable());
  const Gate::Pass inside(gate_);
  if (!inside) return Status::unavailable("the runtime is closed; it loads no more models");
  const auto source = std::make_shared<ModelSource>(parts_->allocator);
  HEDDLE_TRY_ASSIGN(auto module, or_exhausted("loading a model", [&] {
                      return device_->load(std::move(graph), options, source, NoLocksHeld{});
                    }));
  source->loaded();
  auto model = std::make_shared<Model>(std::move(module), source, registry::next_model_id(), parts_->governor,
                                       parts_->executables);
  auto models = parts_->models.lock();
  std::erase_if(*models, [](const auto& each) { return each.expired(); });
  models->push_back(model);
  return model;
}

std::vector<Ref<Model>> Runtime::models() const {
  std::vector<Ref<Model>> living;
  const auto models = parts_->models.lock();
  for (const auto& each : *models) {
    if (Ref<Model> model = each.lock()) living.push_back(std::move(model));
  }
  return living;
}

Status Runtime::compile(Model& model, std::span<const ir::Extents> inputs, Deadline deadline) {
  HEDDLE_TRY(usable());
  const Gate::Pass inside = model.enter();
  if (!inside) return model.closed_status();
  HEDDLE_TRY(model.check_extents(inputs));
  return find_program(model,
                      [&] {
                        return parts_->executables->find_or_compile(model.id(), model.module(), inputs,
                                                                    parts_->allocator->limit(), deadline);
                      })
      .status();
}

Result<plan::ProgramPlan> Runtime::plan(Model& model, std::span<const ir::Extents> inputs) {
  HEDDLE_TRY(usable());
  const Gate::Pass inside = model.enter();
  if (!inside) return model.closed_status();
  HEDDLE_TRY(model.check_extents(inputs));
  return or_exhausted(text("planning model '", model.name(), "'"),
                      [&] { return model.module().plan(inputs, parts_->allocator->limit(), NoLocksHeld{}); });
}

Result<std::vector<View>> Runtime::run(Model& model, const Call& call) {
  HEDDLE_TRY(usable());
  InFlight started{model.enter()};
  HEDDLE_TRY(begin(started, model, call));
  return finish(started, call.deadline);
}

Result<InFlight> Runtime::start(Model& model, const Call& call) {
  HEDDLE_TRY(usable());
  InFlight started{model.enter()};
  HEDDLE_TRY(begin(started, model, call));
  return started;
}

// Callbacks run when no thread waits for the compilation any more: see ModelSource.
template <class Find>
Result<Ref<const device::Program>> Runtime::find_program(const Model& model, Find&& find) {
  Allocator::Relief relief(*parts_->allocator);
  for (;;) {
    const uint64_t refusals = model.source().refusals();
    auto program = find();
    if (program.ok()) [[likely]]
      return program;
    const bool for_memory =
        program.status().code() == Code::exhausted && model.source().refusals() != refusals;
    if (!for_memory || !relief.ask(model.source().last_refused())) return program;
  }
}

Status Runtime::begin(InFlight& started, Model& model, const Call& call) {
  if (!started.inside) [[unlikely]]
    return model.closed_status();
  started.slot = call.slot;
  started.faults = call.row_faults;
  HEDDLE_TRY_ASSIGN(Ref<const device::Program> program, find_program(model, [&] {
                      return parts_->executables->find_or_compile(model.id(), model.module(), call.inputs,
                                                                  parts_->allocator->limit(), call.deadline,
                                                                  [&] { return model.check(call.inputs); });
                    }));
  if (runs_in_slot(call)) return submit_in_slot(started, model, call, std::move(program));
  HEDDLE_TRY(started.binding.bind(*parts_->allocator, *device_, model, *program, call));
  const bool with_lane = device_->traits().synchronous && call.slot == nullptr;
  return with_lane ? run_with_lane(started, model, call, std::move(program))
                   : submit_staged(started, model, call, std::move(program));
}

Result<Runtime::Entry> Runtime::enter(const Model& model, const Call& call, const Joining* joining) {
  Entry entry;
  if (call.stream != nullptr) {
    HEDDLE_TRY(enter_on(*call.stream, &Governor::enter, model.id(), call.deadline, entry, joining));
    if (entry.joined.has_value()) return entry;
  } else {
    HEDDLE_TRY_ASSIGN(entry.permit, parts_->governor->enter(model.id(), call.deadline));
  }
  HEDDLE_TRY_ASSIGN(entry.lane, parts_->lanes->at(entry.permit, call.stream == nullptr));
  return entry;
}

// On a synchronous device. The owner of a lane fills its slot and its list, and is alone on its stream. A
// slot that cannot grow without pressure callbacks, which may call models, grows without the permit.
Status Runtime::run_with_lane(InFlight& started, Model& model, const Call& call,
                              Ref<const device::Program> program) {
  Binding& binding = started.binding;
  std::optional<TimeSlices::Call> slice;
  if (call.in_slices) slice.emplace(*parts_->time_slices, call.deadline);
  for (std::unique_ptr<Slot> grown;;) {
    HEDDLE_TRY_ASSIGN(Entry entry, enter(model, call));
    Lane& lane = *entry.lane;
    if (grown != nullptr) lane.slot.swap(grown);
    if (binding.needs_slot() && lane.slot == nullptr) lane.slot = parts_->slots->make();
    Status room;
    if (binding.needs_slot()) room = binding.reserve(*lane.slot, Allocator::Callbacks::no);
    if (room.ok()) [[likely]] {
      lane.list.clear();  // of what an exception may have left, too
      binding.stage(std::move(program), lane.slot.get(), started.faults, lane.list);
      Stream& stream = call.stream == nullptr ? *lane.stream : *call.stream;
      const Status status = stream.submit_now(lane.list);
      lane.list.clear();
      HEDDLE_TRY(status);
      binding.copy_back();
      return {};
    }
    if (room.code() != Code::exhausted) return room;
    grown = std::move(lane.slot);
    entry.permit.decline();
    entry.turn.reset();
    HEDDLE_TRY(binding.reserve(*grown));
  }
}

Status Runtime::submit_staged(InFlight& started, Model& model, const Call& call,
                              Ref<const device::Program> program) {
  const bool synchronous = device_->traits().synchronous;
  Binding& binding = started.binding;
  if (started.slot == nullptr && binding.needs_slot()) started.slot = parts_->slots->take();
  if (started.slot != nullptr) HEDDLE_TRY(binding.reserve(*started.slot));
  if (started.faults == nullptr && !synchronous) started.faults = std::make_shared<device::RowFaults>(0);
  std::optional<TimeSlices::Call> slice;
  if (call.in_slices) slice.emplace(*parts_->time_slices, call.deadline);
  CommandList list;
  binding.stage(std::move(program), started.slot.get(), started.faults, list);

  Submission extras;
  extras.awaited = call.wait || binding.names_caller_memory() || binding.copies_back();
  extras.joins = call.stream != nullptr && !extras.awaited;
  extras.keep = call.keep;
  extras.slot = started.slot;
  const Joining joining{list, extras};
  HEDDLE_TRY_ASSIGN(Entry entry, enter(model, call, extras.joins ? &joining : nullptr));
  if (entry.joined.has_value()) {
    HEDDLE_TRY_ASSIGN(started.value, *std::move(entry.joined));
    return {};
  }
  if (!entry.turn.has_value()) {
    HEDDLE_TRY_ASSIGN(Turn own, entry.lane->stream->turn());
    entry.turn.emplace(std::move(own));
  }
  extras.permit = std::move(entry.permit);
  if (extras.awaited && !synchronous) started.stream = entry.turn->stream().shared_from_this();
  started.may_leave = !binding.names_caller_memory() || call.keep != nullptr;
  const Ref<device::Timeline> timeline = entry.turn->stream().timeline();
  HEDDLE_TRY_ASSIGN(started.value, submit(*std::move(entry.turn), std::move(list), std::move(extras)));
  if (synchronous) return {};
  const Status marked = or_exhausted("a call", [&] {
    binding.mark_foreign({timeline, started.value}, started.faults);
    return Status();
  });
  return marked.ok() ? marked : started.stream->await(started.value, Deadline::never());  // no mark, then
}

Result<std::vector<View>> Runtime::finish(InFlight& started, Deadline deadline) {
  if (started.stream != nullptr) {
    parts_->time_slices->rest();
    HEDDLE_TRY(started.stream->await(started.value, started.may_leave ? deadline : Deadline::never()));
    HEDDLE_TRY(started.faults->whole());
  }
  if (started.is_in_slot) return started.slot->run().outputs();
  started.binding.copy_back();
  return started.binding.take_outputs();
}

// What joins the submission before it needs no Permit. Else nothing is held back while one is waited for.
Status Runtime::enter_on(Stream& stream, Enter enter, ModelId who, Deadline deadline, Entry& entry,
                         const Joining* joining) {
  Governor& governor = *parts_->governor;
  const auto join_or_send = [&] {
    if (joining != nullptr) entry.joined = entry.turn->try_join(joining->list, joining->extras);
    if (joining == nullptr) static_cast<void>(entry.turn->send());  // its runs' faults say what became of it
    return entry.joined.has_value();
  };
  for (;;) {
    {
      HEDDLE_TRY_ASSIGN(Turn turn, stream.turn(deadline));
      entry.turn.emplace(std::move(turn));
      if (join_or_send()) return {};
      HEDDLE_TRY_ASSIGN(entry.permit, (governor.*enter)(who, deadline, DuringHold::step_aside));
      if (entry.permit) [[likely]]
        return {};
      entry.turn.reset();
    }
    // Parked without the Turn, the call has its place before the next exclusive hold. The Turn's owner may be
    // parked for a Permit: waiting for that Turn while holding a Permit could deadlock.
    HEDDLE_TRY_ASSIGN(entry.permit, (governor.*enter)(who, deadline, DuringHold::wait));
    if (std::optional<Turn> turn = stream.try_turn()) {
      entry.turn.emplace(*std::move(turn));
      if (join_or_send()) entry.permit.decline();
      return {};
    }
    entry.permit.decline();
  }
}

// The Turn ends here: others may submit while we wait.
Result<uint64_t> Runtime::submit(Turn turn, CommandList list, Submission extras) {
  return turn.submit(std::move(list), std::move(extras));
}

Result<Ref<device::Buffer>> Runtime::allocate(uint64_t bytes, device::MemoryKind kind) {
  HEDDLE_TRY(usable());
  return parts_->allocator->allocate(bytes, kind);
}

Result<View> Runtime::allocate(ir::DType dtype, const ir::Extents& extents, device::MemoryKind kind) {
  HEDDLE_TRY_ASSIGN(const int64_t elements, ir::checked_elements(extents.span(), dtype));
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer,
                    allocate(static_cast<uint64_t>(elements * ir::size_of(dtype)), kind));
  return View::contiguous(std::move(buffer), dtype, extents);
}

Status Runtime::copy(Stream& stream, const View& from, const View& to, Deadline deadline,
                     Ref<const void> keep) {
  if (from.dtype != to.dtype || from.extents != to.extents) {
    return Status::invalid("a copy from ", from.dtype, from.extents, " to ", to.dtype, to.extents,
                           " was asked for; dtype and shape must be the same");
  }
  HEDDLE_TRY_ASSIGN(const View source, stage(from, false, deadline));
  HEDDLE_TRY_ASSIGN(const View target, stage(to, true, deadline));
  const bool copies_back = target.buffer != to.buffer;
  CommandList list;
  list.copy(source, target);
  const bool callers = named(source) || named(target);
  const bool may_leave = !callers || keep != nullptr;
  HEDDLE_TRY(
      move_data(stream, std::move(list), deadline, {copies_back || callers, may_leave, std::move(keep)}));
  // The caller that takes the values away must learn that they are undefined.
  if ((to.buffer == nullptr || copies_back) && from.buffer != nullptr) HEDDLE_TRY(from.buffer->fault());
  if (copies_back) copy_view(target, to);
  return {};
}

// The view itself where the device can name it; else staging memory, with its bytes in it unless it is to be
// written.
Result<View> Runtime::stage(const View& view, bool write, Deadline deadline) {
  if (can_name(*device_, view)) return view;
  // Before memory is taken: a forked child would lock what threads of its parent may have locked.
  HEDDLE_TRY(usable());
  HEDDLE_TRY_ASSIGN(const View callers, as_callers(view, write, deadline));
  HEDDLE_TRY_ASSIGN(Ref<device::Buffer> buffer,
                    parts_->allocator->allocate(view.bytes(), device::MemoryKind::staging));
  View staged = View::contiguous(std::move(buffer), view.dtype, view.extents);
  if (!write) copy_view(callers, staged);
  return staged;
}

Status Runtime::fill(Stream& stream, const View& to, double value, Deadline deadline) {
  HEDDLE_TRY_ASSIGN(const View target, stage(to, true, deadline));
  const bool copies_back = target.buffer != to.buffer;
  CommandList list;
  list.fill(target, value);
  HEDDLE_TRY(move_data(stream, std::move(list), deadline, {copies_back || named(target), !named(target)}));
  if (copies_back) copy_view(target, to);
  return {};
}

Status Runtime::wait(Stream& stream, const Event& event, Deadline deadline) {
  HEDDLE_TRY(usable());
  if (!event.recorded() || event.point().done() || event.point().timeline == stream.timeline()) return {};
  // Looked at again: the event may have been over, and the failure come, since.
  if (event.point().timeline->failed() && !event.point().done()) return event.point().timeline->failure();
  CommandList list;
  list.wait(event.point());
  return move_data(stream, std::move(list), deadline, {});
}

Status Runtime::move_data(Stream& stream, CommandList list, Deadline deadline, Moving moving) {
  HEDDLE_TRY(usable());
  const Gate::Pass inside(gate_);
  if (!inside) return usable();
  Entry entry;
  HEDDLE_TRY(enter_on(stream, &Governor::enter_copy, copies_, deadline, entry));
  Submission extras;
  extras.permit = std::move(entry.permit);
  extras.awaited = moving.wait && !device_->traits().synchronous;
  const bool awaited = extras.awaited, may_leave = moving.may_leave;
  extras.keep = std::move(moving.keep);
  const Ref<Stream> kept = stream.shared_from_this();
  HEDDLE_TRY_ASSIGN(const uint64_t value, submit(*std::move(entry.turn), std::move(list), std::move(extras)));
  if (!awaited) return {};
  parts_->time_slices->rest();
  return kept->await(value, may_leave ? deadline : Deadline::never());
}

Status Runtime::synchronize(Deadline deadline) {
  HEDDLE_TRY(usable());
  parts_->time_slices->rest();
  return parts_->roster->synchronize(deadline);
}

void Runtime::close(Deadline deadline) {
  if (fork_generation() != generation_) return;
  gate_.close();
  parts_->streams->close();
  parts_->governor->refuse_parked(copies_, Status::unavailable("the runtime is closed"));
  static_cast<void>(gate_.wait_empty(deadline));  // no load() can add a model after this
  const std::vector<Ref<Model>> all = models();
  for (const Ref<Model>& model : all)
    model->refuse();  // all first, so that one long call keeps no other model open
  for (const Ref<Model>& model : all) static_cast<void>(model->close(deadline));
  parts_->roster->close();
}

Runtime::Stats Runtime::stats() const {
  Stats stats;
  stats.streams = parts_->streams->stats();
  stats.memory = parts_->allocator->stats();
  stats.slot_bytes = parts_->slots->held().device.load_relaxed();
  stats.slot_staging_bytes = parts_->slots->held().staging.load_relaxed();
  stats.governor = parts_->governor->stats();
  stats.slices = parts_->time_slices->stats();
  stats.executables = parts_->executables->stats();
  stats.reaper_rings = parts_->roster->bell()->rings();
  for (const Ref<Stream>& stream : parts_->roster->living()) stats.in_flight += stream->in_flight();
  return stats;
}

}  // namespace heddle::runtime
