#include "tests/cuda_double/work_order.h"

#include <algorithm>
#include <map>

#include "base/sync.h"

namespace heddle::cuda_double {
namespace {

struct Orders {
  uint64_t numbers = 0;  // given so far
  std::vector<sim::Position>
      ended;                      // streams that are gone: the next one goes on with a number and its passes
  const sim::Retired retired{0};  // so none is
  sim::Knowledge host;
  Known shown;  // a copy of `host`; null: it knows more by now
  std::map<cuda::Address, sim::AccessLog> touched;
};
// With it, what all of WorkOrder's members hold.
Guarded<Orders, Rank::kAllocator>& orders() {
  static auto* const all = new Guarded<Orders, Rank::kAllocator>();  // threads may outlive statics
  return *all;
}

thread_local constinit WorkOrder* its_stream = nullptr;

void end_block(Orders& all, sim::Bytes bytes, sim::Knowledge& known, const char* what) {
  const sim::Access end{bytes, true, {}};
  const auto first = all.touched.lower_bound(bytes.begin), last = all.touched.lower_bound(bytes.end);
  const bool used = std::any_of(
      first, last, [&](auto& log) { return log.second.record(end, false, &known, all.retired).has_value(); });
  if (used) stop(what, "work that uses the memory may not be over");
  all.touched.erase(first, last);
}

}  // namespace

Known known_to_host() {
  const auto all = orders().lock();
  if (all->shown == nullptr) {
    all->shown = std::make_shared<const sim::Knowledge>(all->host);
  }
  return all->shown;
}

WorkOrder::WorkOrder() {
  const auto all = orders().lock();
  if (all->ended.empty()) {
    here_.queue = all->numbers++;
  } else {
    here_ = all->ended.back();
    all->ended.pop_back();
  }
}

WorkOrder::~WorkOrder() {
  show_host();
  orders().lock()->ended.push_back(here_);
}

WorkOrder* WorkOrder::of_thread() { return its_stream; }
void WorkOrder::take_thread() { its_stream = this; }

void WorkOrder::begin(const Known& host) {
  const auto all = orders().lock();
  if (host_ != host) {
    host_ = host;
    known_.learn(*host);
  }
  known_.learn_all_up_to(here_);
  ++here_.pass;
}

Known WorkOrder::up_to_here() {
  const auto all = orders().lock();
  const auto here = std::make_shared<sim::Knowledge>(known_);
  here->learn_all_up_to(here_);
  return here;
}

void WorkOrder::learn(const Known& awaited) {
  const auto all = orders().lock();
  if (awaited != nullptr) known_.learn(*awaited);
}

void show_host(const Known& known) {
  const auto all = orders().lock();
  all->host.learn(*known);
  all->shown = nullptr;
}

void WorkOrder::show_host() {
  const auto all = orders().lock();
  all->host.learn(known_);
  all->host.learn_all_up_to(here_);
  all->shown = nullptr;
}

void WorkOrder::touch(cuda::Address at, uint64_t bytes, bool writes, const char* what) {
  const auto all = orders().lock();
  const sim::Access access{{at, at + bytes}, writes, here_};
  all->touched.try_emplace(at);
  for (auto log = all->touched.lower_bound(at); log != all->touched.end() && log->first < at + bytes; ++log) {
    const auto unordered = log->second.record(access, false, &known_, all->retired);
    if (!unordered.has_value()) continue;
    stop(what,
         text("nothing orders two streams that touch the same memory: ", sim::describe(*unordered, access))
             .c_str());
  }
}

void WorkOrder::check_unused(cuda::Address at, uint64_t bytes, const char* what) {
  const auto all = orders().lock();
  end_block(*all, {at, at + bytes}, known_, what);
}

void check_unused(cuda::Address at, uint64_t bytes, const char* what) {
  const auto all = orders().lock();
  sim::Knowledge known = all->host;
  end_block(*all, {at, at + bytes}, known, what);
}

}  // namespace heddle::cuda_double
