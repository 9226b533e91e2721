// policy_simulation_fixture.h: a queue, its callers and its device in virtual time, driven by a policy.
//
//   What       simulate(history, decide) plays the history to its end: one event at a time, the policy asked
//              after each. What it decides is checked (policy_checks.h) and obeyed. The result says the first
//              fault, what became of every call, and how large the batches were.
//   Threads    Pure; the same history gives the same result.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "batch/policy/policy_checks_fixture.h"
#include "batch/policy/policy_history_fixture.h"

namespace heddle::batch {

enum class Checked : uint8_t { yes, no };

struct Answered {
  size_t caller = 0;
  Duration waited{};
  bool expired = false;
};

struct Played {
  Fault fault;
  std::vector<Answered> answers;
  std::map<int64_t, int64_t> batches;  // how many of each number of rows
  Duration end{};

  double mean_rows() const {
    double rows = 0;
    for (const auto& [size, count] : batches) rows += static_cast<double>(size * count);
    return rows / static_cast<double>(std::max<int64_t>(total(), 1));
  }
  double share_of(int64_t size) const {
    const auto found = batches.find(size);
    return found == batches.end() ? 0 : static_cast<double>(found->second) / static_cast<double>(total());
  }
  int64_t total() const {
    int64_t total = 0;
    for (const auto& [size, count] : batches) total += count;
    return total;
  }
};

class Simulation {
 public:
  Simulation(const History& history, const Decide& decide, Checked checked)
      : history_(history), decide_(decide), checked_(checked), calls_left_(history.callers.size()) {
    for (size_t i = 0; i < history.callers.size(); ++i) {
      calls_left_[i] = history.callers[i].calls;
      arrivals_.emplace(TimePoint(history.callers[i].first), i);
    }
  }

  Played play() {
    while (!played_.fault && step()) ask();
    if (!played_.fault && !waiting_.empty()) played_.fault = "a request is never answered";
    played_.end = now_.time_since_epoch();
    return std::move(played_);
  }

 private:
  struct Call {
    Waiting request;
    size_t caller = 0;
    bool saw_no_lane = false;
  };
  struct Batch {
    std::vector<Call> calls;
    Duration run{};
  };

  bool step() {
    const TimePoint answer = batches_.empty() ? TimePoint::max() : batches_.begin()->first;
    const TimePoint arrival = arrivals_.empty() ? TimePoint::max() : arrivals_.begin()->first;
    const TimePoint next = std::min({answer, arrival, timer_});
    if (next == TimePoint::max()) return false;
    now_ = next;
    if (next == answer) {
      finish();
    } else if (next == arrival) {
      arrive();
    }
    return true;
  }

  void arrive() {
    const size_t number = arrivals_.begin()->second;
    arrivals_.erase(arrivals_.begin());
    const Caller& caller = history_.callers[number];
    returning_ = std::max<int64_t>(returning_ - caller.rows, 0);
    inside_ += caller.rows;
    const bool has_deadline = caller.patience != Duration::max();
    waiting_.push_back({{.id = ++last_id_,
                         .group = caller.group,
                         .rows = caller.rows,
                         .cost = caller.cost,
                         .priority = caller.priority,
                         .arrived = now_,
                         .deadline = has_deadline ? now_ + caller.patience : TimePoint::max()},
                        number});
  }

  // The policy waits for the members of a batch, up to a quarter of its run time, whether they come or not.
  void finish() {
    const Batch batch = std::move(batches_.begin()->second);
    batches_.erase(batches_.begin());
    if (now_ >= returning_until_) returning_ = 0;
    for (const Call& call : batch.calls) {
      if (batch.calls.size() > 1) returning_ += call.request.rows;
      answered(call, false);
    }
    if (batch.calls.size() > 1) returning_until_ = now_ + batch.run / 4;
  }

  void answered(const Call& call, bool expired) {
    inside_ -= call.request.rows;
    // A batch's run is no waiting: what counts for a taken call was noted when it was taken.
    if (expired) played_.answers.push_back({call.caller, now_ - call.request.arrived, true});
    if (--calls_left_[call.caller] > 0)
      arrivals_.emplace(now_ + history_.callers[call.caller].think, call.caller);
  }

  Question question() const {
    Question question{now_, {}, {}, history_.limits};
    for (const Call& call : waiting_) question.waiting.push_back(call.request);
    question.running.lanes = history_.lanes;
    question.running.busy = static_cast<int>(batches_.size());
    if (history_.knows_callers) {
      question.running.active = static_cast<int>(inside_ + returning_);
      question.running.returning = static_cast<int>(returning_);
      question.running.returning_until = returning_until_;
    }
    return question;
  }

  void ask() {
    for (;;) {
      const Question asked = question();
      const Decision decision = asked.ask(decide_);
      if (checked_ == Checked::yes) played_.fault = fault_of(asked, decision, decide_);
      if (played_.fault) return;
      if (const auto* take = std::get_if<Take>(&decision)) {
        run(remove(take->ids));
      } else if (const auto* expire = std::get_if<Expire>(&decision)) {
        for (const Call& call : remove(expire->ids)) expired(call);
      } else {
        const TimePoint until = std::get<Wait>(decision).until;
        timer_ = until == TimePoint::max() ? until : std::max(until, now_) + history_.late;
        break;
      }
      if (played_.fault) return;
    }
    if (static_cast<int>(batches_.size()) < history_.lanes) return;
    for (Call& call : waiting_) call.saw_no_lane = true;
  }

  std::vector<Call> remove(const std::vector<RequestId>& ids) {
    std::vector<Call> out;
    for (const RequestId id : ids) {
      const auto found = std::find_if(waiting_.begin(), waiting_.end(),
                                      [&](const Call& call) { return call.request.id == id; });
      if (found == waiting_.end()) {
        played_.fault = "a request is answered that does not wait";
        return {};
      }
      out.push_back(*found);
      waiting_.erase(found);
    }
    if (out.empty()) played_.fault = "a decision moves nothing";
    return out;
  }

  void expired(const Call& call) {
    const bool timer_is_in_time = history_.late < history_.callers[call.caller].patience / 4;
    if (timer_is_in_time && !call.saw_no_lane && checked_ == Checked::yes) {
      played_.fault = "a request expires although a lane was free all the time";
    }
    answered(call, true);
  }

  void run(std::vector<Call> calls) {
    int64_t rows = 0;
    for (const Call& call : calls) {
      rows += call.request.rows;
      played_.answers.push_back({call.caller, now_ - call.request.arrived, false});
    }
    ++played_.batches[rows];
    // A batch that takes no time would be over before the next event.
    const Duration run = std::max(history_.run + history_.run_per_row * rows, Duration(1));
    batches_.emplace(now_ + run, Batch{std::move(calls), run});
  }

  const History& history_;
  const Decide& decide_;
  Checked checked_;
  Played played_;
  TimePoint now_{};
  TimePoint timer_ = TimePoint::max();
  std::vector<int> calls_left_;
  std::multimap<TimePoint, size_t> arrivals_;
  std::multimap<TimePoint, Batch> batches_;
  std::vector<Call> waiting_;
  int64_t inside_ = 0;
  int64_t returning_ = 0;
  TimePoint returning_until_ = TimePoint::min();
  RequestId last_id_ = 0;
};

inline Played simulate(const History& history, const Decide& decide, Checked checked = Checked::yes) {
  return Simulation(history, decide, checked).play();
}

}  // namespace heddle::batch
