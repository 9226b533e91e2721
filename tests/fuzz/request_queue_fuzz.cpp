// A history of a RequestQueue that the bytes decide, of one thread: each payload comes back exactly once.
#include <map>

#include "fuzz_fixture.h"

namespace heddle::fuzz {
namespace {

constexpr size_t kRequestsMost = 200;

class History {
 public:
  explicit History(Bytes bytes) : bytes_(bytes), options_(some_options()), queue_(options_) {}

  void run() {
    while (!bytes_.over() && requests_ < kRequestsMost) step();
    close();
    for (const auto& [id, payload] : waiting_) must(payload == 0, "nothing waits in a closed queue");
    must(back_ == out_, "each payload came back once");
    const BatchMetrics metrics = queue_.metrics();
    must(metrics.depth == 0, "a closed queue holds nothing");
    must(metrics.submitted == out_, "what was admitted was counted");
  }

 private:
  RequestQueue::Options some_options() {
    RequestQueue::Options options;
    options.limits = some_limits();
    options.workers = 1 + static_cast<int>(bytes_.below(3));
    options.pad = bytes_.flag();
    if (options.pad && bytes_.flag()) options.buckets = {4, 8};
    return options;
  }

  BatchLimits some_limits() {
    BatchLimits limits;
    limits.max_batch = 1 + static_cast<int64_t>(bytes_.below(8));
    limits.max_cost = static_cast<int64_t>(bytes_.below(20));
    limits.padded_cost = bytes_.flag();
    limits.max_wait = std::chrono::nanoseconds(bytes_.flag() ? 0 : 1000);
    limits.aging = std::chrono::nanoseconds(bytes_.below(2) * 100);
    if (bytes_.flag()) limits.preferred = {1 + static_cast<int64_t>(bytes_.below(4))};
    if (!limits.preferred.empty()) limits.preferred[0] = std::min(limits.preferred[0], limits.max_batch);
    limits.capacity = 1 + bytes_.below(12);
    return limits;
  }

  void step() {
    switch (bytes_.below(12)) {
      case 0:
      case 1:
      case 2:
        return submit();
      case 3:
      case 4:
        return take();
      case 5:
        return proceed();
      case 6:
        return cancel();
      case 7:
        return wrong_limits();
      case 8:
        return describe();
      case 9:
        return seek();
      case 10:
        if (bytes_.below(8) == 0) return close();
        refusal_of([&] { queue_.drain(std::chrono::nanoseconds(0)); });
        return;
      default:
        return health();
    }
  }

  // Payloads are numbers from 1 on.
  void submit() {
    std::vector<RequestQueue::Request> requests(1 + bytes_.below(3));
    for (size_t i = 0; i < requests.size(); ++i) {
      RequestQueue::Request& one = requests[i];
      one.payload = reinterpret_cast<void*>(out_ + i + 1);
      one.group = bytes_.below(2);
      one.rows = bytes_.below(8) == 7 ? bytes_.number() : 1 + static_cast<int64_t>(bytes_.below(4));
      one.cost = bytes_.below(8) == 7 ? bytes_.number() : static_cast<int64_t>(bytes_.below(10));
      one.priority = static_cast<int>(bytes_.below(3)) - 1;
      if (bytes_.below(4) == 0) one.timeout = std::chrono::nanoseconds(bytes_.number());
    }
    requests_ += requests.size();
    std::vector<uint64_t> ids(requests.size());
    bool admitted = false;
    const bool waits = bytes_.flag();
    const auto refused = refusal_of([&] {
      if (waits) {
        ids = queue_.submit(requests, std::chrono::nanoseconds(0));
        admitted = true;
      } else {
        admitted = queue_.try_submit(requests, ids);
      }
    });
    must(!refused || !admitted, "a request that is refused was not admitted");
    must(!closed_ || !admitted, "a closed queue admits nothing");
    if (!admitted) return;
    for (const uint64_t id : ids) waiting_[id] = ++out_;
  }

  void came_back(const RequestQueue::Owed& owed) {
    if (owed != nullptr) came_back(*owed);
  }
  void came_back(const std::vector<void*>& payloads) {
    for (void* payload : payloads) {
      const auto number = reinterpret_cast<uint64_t>(payload);
      must(number >= 1 && number <= out_, "a payload that was given");
      must(!seen_[number], "a payload comes back once");
      seen_[number] = true;
      ++back_;
      for (auto& [id, waits] : waiting_) {
        if (waits == number) waits = 0;
      }
    }
  }

  void take() {
    const std::optional<RequestQueue::Work> work = queue_.try_take();
    if (!work) return;
    came_back(work->expired);
    came_back(work->batch);
    must((work->ticket == 0) == work->batch.empty(), "a batch has a ticket, and nothing else has");
    if (work->ticket != 0) running_.push_back({work->ticket});
  }

  // A batch in its order: formed, ran, finish; or abandoned, once.
  void proceed() {
    if (running_.empty()) return;
    Running& one = running_[bytes_.below(running_.size())];
    if (bytes_.below(6) == 5) {
      const bool mine = queue_.abandon(one.ticket) != nullptr;
      must(!mine || !one.abandoned, "a batch is abandoned once");
      one.abandoned = one.abandoned || mine;
      return;
    }
    switch (one.phase++) {
      case 0:
        queue_.formed(one.ticket);
        return;
      case 1:
        must((queue_.ran(one.ticket) == nullptr) == one.abandoned,
             "who runs a batch answers it, or who abandoned it");
        return;
      default:
        queue_.finish(one.ticket, bytes_.flag(), std::chrono::nanoseconds(bytes_.below(2) * 1000));
        if (bytes_.flag()) queue_.told(one.ticket);
        running_.erase(running_.begin() + (&one - running_.data()));
    }
  }

  void cancel() {
    if (waiting_.empty()) return;
    auto at = waiting_.begin();
    std::advance(at, bytes_.below(std::min<size_t>(waiting_.size(), 256)));
    const uint64_t id = at->first + (bytes_.below(8) == 7 ? 1000 : 0);
    const uint64_t payload = id == at->first ? at->second : 0;
    if (const RequestQueue::Owed back = queue_.cancel(id)) {
      must(payload != 0 && reinterpret_cast<uint64_t>(back->at(0)) == payload,
           "its own payload, while it waits");
      came_back(back);
    } else {
      must(payload == 0 || closed_, "what waits can be withdrawn");
    }
  }

  void wrong_limits() {
    BatchLimits limits = some_limits();
    if (bytes_.flag()) limits.max_batch = bytes_.number();
    const BatchLimits before = queue_.limits();
    if (!refusal_of([&] { queue_.set_limits(limits); })) return;
    const BatchLimits after = queue_.limits();
    must(after.max_batch == before.max_batch && after.capacity == before.capacity,
         "limits that are refused change none");
  }

  void describe() {
    std::vector<Shape> shapes;
    for (size_t i = bytes_.below(3); i > 0; --i) {
      Shape shape;
      for (size_t rank = bytes_.below(4); rank > 0; --rank) shape.push_back(bytes_.number());
      shapes.push_back(std::move(shape));
    }
    const int64_t kinds[] = {1, 2};
    RequestQueue::Described described{};
    if (refusal_of([&] { described = queue_.describe(kinds, shapes); })) return;
    must(described.rows > 0, "a request has rows");
  }

  // Room is asked for, told of at most once, and left again.
  void seek() {
    auto calls = std::make_shared<int>(0);
    const uint64_t seeker = queue_.seek_room(1 + bytes_.below(4), [calls] { ++*calls; });
    if (bytes_.flag()) take();
    queue_.leave_room(seeker);
    must(*calls <= 1, "room is told of once");
  }

  void health() {
    const BatchHealth health = queue_.health();
    must(closed_ == (health.state == BatchHealth::State::closed), "a closed queue says so, and no other");
    must(queue_.metrics().prometheus(std::string(bytes_.words(12))).find("queue=") != std::string::npos,
         "metrics name the queue");
  }

  void close() {
    came_back(queue_.close());
    closed_ = true;
    must(queue_.closed(), "a closed queue is closed");
  }

  struct Running {
    uint64_t ticket;
    int phase = 0;
    bool abandoned = false;
  };

  Bytes bytes_;
  RequestQueue::Options options_;
  RequestQueue queue_;
  std::map<uint64_t, uint64_t> waiting_;  // by id: the payload; 0: it came back
  std::map<uint64_t, bool> seen_;
  std::vector<Running> running_;
  uint64_t out_ = 0, back_ = 0;
  size_t requests_ = 0;
  bool closed_ = false;
};

}  // namespace
}  // namespace heddle::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  heddle::fuzz::History({data, size}).run();
  return 0;
}
