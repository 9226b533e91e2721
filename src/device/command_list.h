// command_list.h: work as plain values. What a stream submits, a driver encodes, a simulator inspects.
//
//   What       Commands in order. Naming a buffer keeps it alive until the submission is over.
//   Invariant  No encoder; a Run names an immutable program and the memory that it changes.
//   Lifetime   Built by one thread, moved into Stream::submit, whose in-flight record owns it, or its slot.
#pragma once

#include <utility>
#include <variant>
#include <vector>

#include "device/view.h"

namespace heddle::device {

class Program;
class RowFaults;

struct Wait {
  Point point;
};
// Its views are contiguous, aligned to their element, and such as Traits::binding says; nothing else reads or
// writes the outputs and the arena until the submission is over. An output overlaps an input only where
// Program::may_share() says so.
struct Run {
  Ref<const Program> program;
  Ref<Buffer> arena;  // Program::arena_bytes() of device memory; null where that is 0
  std::vector<View> inputs;
  std::vector<View> outputs;
  // Set: every input and output has the rows of several callers along axis 0, as many as it counts. A mistake
  // in the data of one row (an index out of range) is recorded for that row. That row's outputs are
  // undefined; other rows are unaffected. Null, or a mistake in what all rows share: the run is invalid.
  // submit() returns that on a synchronous device. An asynchronous device records it for the whole run before
  // the submission is over; with null it reports nothing.
  Ref<RowFaults> row_faults = nullptr;
  // Of runs whose outputs it reads and that may not be over. One that is wrong as a whole makes this one
  // wrong: an asynchronous driver passes that on.
  std::vector<Ref<const RowFaults>> sources = {};
};
struct Copy {  // same dtype and extents; either side may be strided
  View from, to;
};
struct Fill {
  View to;
  double value;
};
// The event is reached once all before it on the queue is over, or the queue has failed. A list that is
// refused signals nothing. For devices with Traits::events.
struct Signal {
  ForeignEvent event;
};
using Command = std::variant<Wait, Run, Copy, Fill, Signal>;

class CommandList {
 public:
  // Before everything else in the list.
  void wait_first(std::vector<Point> points) {
    commands_.insert(commands_.begin(), points.size(), Command(Wait{}));
    for (size_t i = 0; i < points.size(); ++i) std::get<Wait>(commands_[i]).point = std::move(points[i]);
  }
  void wait(Point point) { commands_.emplace_back(Wait{std::move(point)}); }
  void run(Ref<const Program> program, Ref<Buffer> arena, std::vector<View> inputs, std::vector<View> outputs,
           Ref<RowFaults> row_faults = nullptr) {
    commands_.emplace_back(Run{std::move(program), std::move(arena), std::move(inputs), std::move(outputs),
                               std::move(row_faults)});
  }
  void copy(View from, View to) { commands_.emplace_back(Copy{std::move(from), std::move(to)}); }
  void fill(View to, double value) { commands_.emplace_back(Fill{std::move(to), value}); }
  void signal(ForeignEvent event) { commands_.emplace_back(Signal{std::move(event)}); }
  void add(Command command) { commands_.push_back(std::move(command)); }
  void reserve(size_t commands) { commands_.reserve(commands); }
  void clear() { commands_.clear(); }
  void keep_waits();                // and nothing else; allocates nothing
  void share() { shared_ = true; }  // by callers who were told that their runs were taken
  bool is_shared() const { return shared_; }

  auto begin() const { return commands_.begin(); }
  auto end() const { return commands_.end(); }
  auto begin() { return commands_.begin(); }  // for the stream, before it submits
  auto end() { return commands_.end(); }
  size_t size() const { return commands_.size(); }

  // Calls f(buffer, write) for every buffer named but the arenas, which one run at a time owns.
  template <class F>
  void for_each_buffer(F&& f) const;

 private:
  std::vector<Command> commands_;
  bool shared_ = false;
};

template <class F>
void CommandList::for_each_buffer(F&& f) const {
  const auto touch = [&](const View& view, bool write) {
    if (view.buffer != nullptr) f(*view.buffer, write);
  };
  for (const Command& command : commands_) {
    if (const auto* run = std::get_if<Run>(&command)) {
      for (const View& v : run->inputs) touch(v, false);
      for (const View& v : run->outputs) touch(v, true);
    } else if (const auto* copy = std::get_if<Copy>(&command)) {
      touch(copy->from, false);
      touch(copy->to, true);
    } else if (const auto* fill = std::get_if<Fill>(&command)) {
      touch(fill->to, true);
    }
  }
}

}  // namespace heddle::device
