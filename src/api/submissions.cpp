#include "api/submissions.h"

#include <vector>

#include "base/made_once.h"
#include "base/sync.h"

namespace heddle::submissions {
namespace {

struct Open {
  std::vector<std::weak_ptr<batch::Coalescer>> calls;
  std::vector<Ref<batch::Leader>> leaders;  // that ended their own model
};

Guarded<Open, Rank::kRegistry>& open() {
  static constinit MadeOnce<Guarded<Open, Rank::kRegistry>> all;
  return all.get();
}

void join_ended() {
  std::vector<Ref<batch::Leader>> ended;
  {
    auto all = open().lock();
    std::erase_if(all->leaders, [&](const Ref<batch::Leader>& leader) {
      if (!leader->ended.load_relaxed()) return false;
      ended.push_back(leader);
      return true;
    });
  }
  for (const Ref<batch::Leader>& leader : ended) leader->thread.join();
}

}  // namespace

Ref<batch::Coalescer> note(Ref<batch::Coalescer> calls) {
  join_ended();
  auto all = open().lock();
  std::erase_if(all->calls, [](const auto& each) { return each.expired(); });
  all->calls.push_back(calls);
  return calls;
}

void keep(Ref<batch::Leader> leader) { open().lock()->leaders.push_back(std::move(leader)); }

void end_all(Deadline deadline) {
  std::vector<Ref<batch::Coalescer>> living;
  {
    const auto all = open().lock();
    for (const auto& each : all->calls) {
      if (Ref<batch::Coalescer> calls = each.lock()) living.push_back(std::move(calls));
    }
  }
  for (const Ref<batch::Coalescer>& calls : living) static_cast<void>(calls->close_until(deadline));
  join_ended();
}

}  // namespace heddle::submissions
