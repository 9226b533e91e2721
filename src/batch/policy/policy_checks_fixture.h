// policy_checks_fixture.h: for tests: what must hold of every single decision of the batch policy.
//
//   What       fault_of(question, decision, decide) names the first broken rule, or nothing. The rules are
//              written naively, and some by asking `decide` again: about one group alone, about a part of
//              what waits, in another order, at a later time.
//   Threads    Pure.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "batch/policy/batch_policy.h"

namespace heddle::batch {

using Decide = std::function<Decision(TimePoint, std::span<const Waiting>, const Running&, const Limits&)>;
using Fault = std::optional<std::string>;

struct Question {
  TimePoint now;
  std::vector<Waiting> waiting;
  Running running;
  Limits limits;

  Decision ask(const Decide& decide) const { return decide(now, waiting, running, limits); }
};

class PolicyChecks {
 public:
  PolicyChecks(const Question& question, const Decide& decide)
      : q_(question), decide_(decide), ordered_(question.waiting) {
    std::sort(ordered_.begin(), ordered_.end(),
              [&](const Waiting& a, const Waiting& b) { return rank(a) < rank(b); });
    for (const Waiting& request : ordered_) groups_[request.group].push_back(request);
  }

  Fault fault_of(const Decision& decision) const {
    if (!same_in_reverse(decision)) return "the order in which requests are handed over changes the answer";
    if (const auto* wait = std::get_if<Wait>(&decision)) return fault_of_wait(*wait);
    if (const auto* expire = std::get_if<Expire>(&decision)) return fault_of_expire(expire->ids);
    return fault_of_take(std::get<Take>(decision).ids);
  }

 private:
  using Rank = std::tuple<int64_t, TimePoint, RequestId>;
  using Requests = std::vector<Waiting>;

  Rank rank(const Waiting& request) const {
    int64_t steps = 0;
    if (q_.limits.aging.count() > 0) steps = (q_.now - request.arrived) / q_.limits.aging;
    return {-(request.priority + steps), request.arrived, request.id};
  }
  int64_t share() const {
    const Running& r = q_.running;
    const int64_t share = r.active > 0 ? (r.active + r.lanes - 1) / r.lanes : q_.limits.max_rows;
    return std::min(share, q_.limits.max_rows);
  }
  static int64_t rows(const Requests& requests) {
    int64_t sum = 0;
    for (const Waiting& request : requests) sum += request.rows;
    return sum;
  }
  int64_t cost(const Requests& requests) const {
    int64_t sum = 0;
    int64_t widest = 0;
    for (const Waiting& request : requests) {
      sum += request.cost;
      widest = std::max(widest, request.cost);
    }
    return q_.limits.cost_kind == CostKind::sum ? sum : widest * rows(requests);
  }
  bool fits(const Requests& requests) const {
    return rows(requests) <= share() && (q_.limits.max_cost <= 0 || cost(requests) <= q_.limits.max_cost);
  }
  bool is_full(const Requests& group) const {
    return !fits(group) || rows(group) >= share() ||
           (q_.limits.max_cost > 0 && cost(group) >= q_.limits.max_cost);
  }
  bool is_preferred(int64_t count) const {
    const auto& sizes = q_.limits.preferred_rows;
    return std::find(sizes.begin(), sizes.end(), count) != sizes.end();
  }
  bool lane_is_free() const { return q_.running.busy < q_.running.lanes; }
  bool someone_returns() const { return q_.running.returning > 0 && q_.now < q_.running.returning_until; }
  bool has_reason_to_wait() const {
    return someone_returns() || (q_.running.busy > 0 && q_.limits.max_wait != Duration::max());
  }
  TimePoint oldest(const Requests& requests) const {
    TimePoint oldest = TimePoint::max();
    for (const Waiting& request : requests) oldest = std::min(oldest, request.arrived);
    return oldest;
  }
  bool is_over(TimePoint start, Duration wait) const {
    return wait != Duration::max() && q_.now - start >= wait;
  }
  static bool nears_deadline(const Waiting& request, TimePoint now) {
    return request.deadline != TimePoint::max() &&
           now >= request.deadline - (request.deadline - request.arrived) / 4;
  }
  Decision ask(Requests waiting, TimePoint now) const {
    return Question{now, std::move(waiting), q_.running, q_.limits}.ask(decide_);
  }
  bool alone_goes(const Requests& group) const { return std::holds_alternative<Take>(ask(group, q_.now)); }

  bool same_in_reverse(const Decision& decision) const {
    const Decision other = ask(Requests(q_.waiting.rbegin(), q_.waiting.rend()), q_.now);
    if (other.index() != decision.index()) return false;
    if (const auto* wait = std::get_if<Wait>(&decision)) return wait->until == std::get<Wait>(other).until;
    const auto* take = std::get_if<Take>(&decision);
    return take == nullptr || take->ids == std::get<Take>(other).ids;
  }

  Fault fault_of_expire(const std::vector<RequestId>& ids) const {
    std::multiset<RequestId> late;
    for (const Waiting& request : ordered_) {
      if (request.deadline <= q_.now) late.insert(request.id);
    }
    if (ids.empty() || late != std::multiset<RequestId>(ids.begin(), ids.end())) {
      return "expired are not exactly the requests past their deadline";
    }
    return {};
  }

  Fault fault_of_wait(const Wait& wait) const {
    if (wait.until <= q_.now) return "it waits until a time in the past";
    for (const Waiting& request : ordered_) {
      if (request.deadline <= q_.now) return "it waits although a deadline has passed";
      if (wait.until > request.deadline) return "it waits beyond a deadline";
    }
    if (Fault fault = fault_of_asking_again(wait)) return fault;
    if (!lane_is_free() || ordered_.empty()) return {};
    if (!has_reason_to_wait()) return "a lane is free and nothing is worth waiting for, but it waits";
    if (wait.until == TimePoint::max()) return "a lane is free, but it waits without bound";
    for (const auto& [id, group] : groups_) {
      if (is_full(group)) return "a lane is free and a batch is full, but it waits";
      Requests head;
      for (const Waiting& request : group) {
        head.push_back(request);
        if (is_preferred(rows(head))) return "a lane is free and a preferred size is reached, but it waits";
        if (is_over(request.arrived, q_.limits.max_wait))
          return "a lane is free, but it waits beyond max_wait";
        if (nears_deadline(request, q_.now)) return "a lane is free and a deadline is near, but it waits";
      }
      if (alone_goes(group)) return "a group that would go alone waits";
    }
    return {};
  }

  // Nothing else happens: a request has to go at last, each time for a later reason.
  Fault fault_of_asking_again(Wait wait) const {
    for (int asked = 0; wait.until != TimePoint::max(); ++asked) {
      if (asked == 4) return "asked again and again at `until`, it only waits";
      const Decision next = ask(q_.waiting, wait.until);
      const auto* later = std::get_if<Wait>(&next);
      if (later == nullptr) return {};
      if (later->until <= wait.until) return "asked at `until`, it waits for the same time";
      wait = *later;
    }
    return {};
  }

  Fault fault_of_take(const std::vector<RequestId>& ids) const {
    if (!lane_is_free()) return "a batch is taken with no lane free";
    Requests taken;
    for (const RequestId id : ids) {
      const auto found = std::find_if(ordered_.begin(), ordered_.end(),
                                      [&](const Waiting& request) { return request.id == id; });
      if (found == ordered_.end()) return "a request is taken that does not wait";
      taken.push_back(*found);
    }
    if (taken.empty()) return "an empty batch is taken";
    for (const Waiting& request : ordered_) {
      if (request.deadline <= q_.now) return "a batch is taken before what is past its deadline expires";
    }
    for (const Waiting& request : taken) {
      if (request.group != taken.front().group) return "a batch holds two groups";
    }
    const Requests& group = groups_.at(taken.front().group);
    for (size_t i = 0; i < taken.size(); ++i) {
      if (i >= group.size() || group[i].id != ids[i]) return "a batch is not the head of its group, in order";
    }
    if (taken.size() > 1 && !fits(taken)) return "a batch of several requests exceeds a limit";
    if (Fault fault = fault_of_size(taken, group)) return fault;
    if (Fault fault = fault_of_overtaking(taken)) return fault;
    return fault_of_first_ones(ids);
  }

  Fault fault_of_size(const Requests& taken, const Requests& group) const {
    if (taken.size() < group.size()) {
      Requests more(group.begin(), group.begin() + static_cast<ptrdiff_t>(taken.size()) + 1);
      if (is_full(group) && fits(more)) return "a batch stops although the next request fits";
      if (!is_full(group) && !is_preferred(rows(taken)))
        return "a batch is cut to a size that is not preferred";
      if (is_full(group)) return {};
      while (more.size() <= group.size()) {
        if (is_preferred(rows(more))) return "a batch is cut below a larger preferred size";
        if (more.size() == group.size()) break;
        more.push_back(group[more.size()]);
      }
      return {};
    }
    if (is_full(taken) || is_preferred(rows(taken)) || !has_reason_to_wait()) return {};
    if (is_over(oldest(taken), q_.limits.max_wait)) return {};
    for (const Waiting& request : taken) {
      if (nears_deadline(request, q_.now)) return {};
    }
    const bool aged = q_.limits.aging.count() > 0 && is_over(oldest(taken), q_.limits.aging);
    for (const auto& [id, other] : groups_) {
      if (id != taken.front().group && aged && someone_returns() && alone_goes(other)) return {};
    }
    return "a batch goes early without a reason";
  }

  Fault fault_of_overtaking(const Requests& taken) const {
    for (const auto& [id, group] : groups_) {
      if (id == taken.front().group || rank(group.front()) > rank(taken.front())) continue;
      if (alone_goes(group)) return "a due batch overtakes a due one that stands higher";
      const bool aged = q_.limits.aging.count() > 0 && is_over(oldest(group), q_.limits.aging);
      if (aged && someone_returns()) return "a batch overtakes one that stands higher and has aged";
    }
    return {};
  }

  Fault fault_of_first_ones(const std::vector<RequestId>& ids) const {
    std::map<std::pair<uint64_t, int>, std::set<std::pair<TimePoint, RequestId>>> classes;
    for (const Waiting& r : ordered_) classes[{r.group, r.priority}].insert({r.arrived, r.id});
    Requests first;
    for (const Waiting& r : ordered_) {
      const auto& members = classes.at({r.group, r.priority});
      const auto place = std::distance(members.begin(), members.find({r.arrived, r.id}));
      if (place < q_.limits.max_rows) first.push_back(r);
    }
    const Decision decision = ask(first, q_.now);
    const auto* take = std::get_if<Take>(&decision);
    if (take == nullptr || take->ids != ids) return "the first max_rows of each class give another batch";
    return {};
  }

  const Question& q_;
  const Decide& decide_;
  Requests ordered_;
  std::map<uint64_t, Requests> groups_;
};

inline Fault fault_of(const Question& question, const Decision& decision, const Decide& decide) {
  return PolicyChecks(question, decide).fault_of(decision);
}

}  // namespace heddle::batch
