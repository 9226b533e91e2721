#include "batch/requests/waiting_list.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/seeded_numbers.h"

namespace heddle::batch {
namespace {

// What a list holds, as one vector in order of arrival.
struct Plain {
  std::vector<WaitingList::Item> items;

  std::vector<RequestId> offer(TimePoint now, int64_t max_rows) const {
    using Key = std::pair<uint64_t, int>;
    std::map<Key, int64_t> rows;
    std::vector<std::pair<Key, RequestId>> waiting;
    std::vector<std::pair<TimePoint, RequestId>> expired;
    for (const WaitingList::Item& each : items) {
      const Waiting& request = each.request;
      const Key key{request.group, request.priority};
      if (request.deadline <= now) {
        expired.emplace_back(request.deadline, request.id);
      } else if (rows[key] < max_rows) {
        rows[key] += request.rows;
        waiting.emplace_back(key, request.id);
      }
    }
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const auto& one, const auto& other) { return one.first < other.first; });
    std::sort(expired.begin(), expired.end());
    std::vector<RequestId> ids;
    for (const auto& each : waiting) ids.push_back(each.second);
    for (const auto& each : expired) ids.push_back(each.second);
    return ids;
  }
  int64_t rows() const {
    int64_t sum = 0;
    for (const WaitingList::Item& each : items) sum += each.request.rows;
    return sum;
  }
  TimePoint next_deadline() const {
    TimePoint next = TimePoint::max();
    for (const WaitingList::Item& each : items) next = std::min(next, each.request.deadline);
    return next;
  }
};

TimePoint moment(uint64_t ns) { return TimePoint(Duration(static_cast<Duration::rep>(ns))); }

std::vector<RequestId> ids_of(std::span<const Waiting> requests) {
  std::vector<RequestId> ids;
  for (const Waiting& each : requests) ids.push_back(each.id);
  return ids;
}

// A list beside the plain one; `groups` decides how long its lines are, and how many.
class Pair {
 public:
  Pair(uint64_t seed, uint64_t groups) : random_(seed), groups_(groups), payloads_(4096) {}

  void add() {
    Waiting request;
    request.group = random_.below(groups_);
    request.priority = static_cast<int>(random_.below(3)) - 1;
    request.rows = 1 + static_cast<int64_t>(random_.below(5));
    if (random_.below(3) == 0) request.deadline = moment(random_.below(kTimes));
    char* const payload = &payloads_[added_++];
    request.id = list_.add(request, payload);
    CHECK(request.id > last_);  // ids grow
    last_ = request.id;
    plain_.items.push_back({request, payload});
  }
  void remove_one() {
    const auto place = static_cast<ptrdiff_t>(random_.below(plain_.items.size()));
    const WaitingList::Item expected = plain_.items[static_cast<size_t>(place)];
    const RequestId id = expected.request.id;
    REQUIRE(list_.find(id) != nullptr);
    CHECK(list_.find(id)->payload == expected.payload);
    const WaitingList::Item removed = list_.remove(id);
    CHECK(removed.payload == expected.payload);
    CHECK(removed.request.rows == expected.request.rows);
    CHECK(list_.find(id) == nullptr);
    plain_.items.erase(plain_.items.begin() + place);
  }
  void compare() {
    CHECK(list_.size() == plain_.items.size());
    CHECK(list_.rows() == plain_.rows());
    CHECK(list_.next_deadline() == plain_.next_deadline());
    const TimePoint now = moment(random_.below(kTimes));
    const auto max_rows = 1 + static_cast<int64_t>(random_.below(8));
    CHECK(ids_of(list_.offer(now, max_rows)) == plain_.offer(now, max_rows));
  }
  // Everything, as when the queue closes.
  void remove_all() {
    std::vector<void*> expected, removed = list_.remove_all();
    for (const WaitingList::Item& each : plain_.items) expected.push_back(each.payload);
    std::sort(expected.begin(), expected.end());
    std::sort(removed.begin(), removed.end());
    CHECK(removed == expected);
    plain_.items.clear();
  }
  bool removes() { return !plain_.items.empty() && random_.below(20) < (is_filling_ ? 7 : 13); }
  void turn() { is_filling_ = !is_filling_; }

 private:
  static constexpr uint64_t kTimes = 10;  // few, so that deadlines are equal to each other and to now
  SeededNumbers random_;
  const uint64_t groups_;
  std::vector<char> payloads_;
  size_t added_ = 0;
  RequestId last_ = 0;
  bool is_filling_ = true;
  WaitingList list_;
  Plain plain_;
};

}  // namespace

TEST_CASE("a list of few or many groups offers what one vector in order of arrival would") {
  for (const uint64_t groups : {uint64_t{1}, uint64_t{3}, uint64_t{200}}) {
    CAPTURE(groups);
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      CAPTURE(seed);
      Pair pair(seed, groups);
      for (int step = 0; step < 2000; ++step) {
        if (step % 200 == 199) pair.turn();
        if (pair.removes()) {
          pair.remove_one();
        } else {
          pair.add();
        }
        if (step % 7 == 0) pair.compare();
        if (step % 900 == 899) pair.remove_all();
      }
    }
  }
}

TEST_CASE("an id finds its request while that waits, and no other number finds one") {
  WaitingList list;
  CHECK(list.find(0) == nullptr);
  const RequestId first = list.add({}, nullptr), second = list.add({}, nullptr);
  list.remove(first);
  CHECK(list.find(first) == nullptr);
  CHECK(list.find(0) == nullptr);  // a free cell's number
  CHECK(list.find(second) != nullptr);
  CHECK(list.find(second + 1) == nullptr);  // of a cell that was never made
  const RequestId third = list.add({}, nullptr);
  CHECK(third % WaitingList::kMost == first % WaitingList::kMost);  // in the first one's cell
  CHECK(list.find(first) == nullptr);
  CHECK(list.find(third) != nullptr);
}

TEST_CASE("a request has at least one row, and at most as many as can be added up") {
  for (const auto& [rows, is_taken] :
       std::vector<std::pair<int64_t, bool>>{{-1, false},
                                             {0, false},
                                             {1, true},
                                             {WaitingList::kRowsMost, true},
                                             {WaitingList::kRowsMost + 1, false}}) {
    CAPTURE(rows);
    CHECK(WaitingList::takes(rows).ok() == is_taken);
  }
}

}  // namespace heddle::batch
