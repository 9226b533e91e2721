#include "runtime/registry.h"

#include <map>
#include <memory>
#include <new>

#include "base/fork.h"
#include "base/made_once.h"

namespace heddle::runtime::registry {

namespace {

struct Table {
  const uint32_t generation = fork_generation();
  Guarded<std::map<std::string, std::weak_ptr<Governor>, std::less<>>, Rank::kRegistry> governors;
};

// Never destroyed: threads that outlive main() may still ask. It holds weak references only.
Table& table() {
  static constinit MadeOnce<Table> only;
  return only.get();
}

constinit Atomic<uint64_t> next_model{1};   // 0 is ModelId::kForeign
constinit Atomic<uint64_t> next_stream{1};  // both only count

// Hashes and orders depend on these numbers: those of a simulation come again in the next one, so that its
// seed repeats it.
uint64_t next_of([[maybe_unused]] Atomic<uint64_t>& counter) {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return (uint64_t{1} << 32) + seam::serial();
#endif
  return counter.add_relaxed(1);
}

}  // namespace

Result<Ref<Governor>> governor(std::string_view device, int limit) {
  Table& known = table();
  if (fork_generation() != known.generation) return forked();
  Ref<Governor> found;
  {
    auto governors = known.governors.lock();
    auto place = governors->find(device);
    if (place != governors->end()) found = place->second.lock();
    if (found == nullptr) {
      found = Governor::make(std::string(device), 0);
      governors->insert_or_assign(std::string(device), found);
    }
  }
  if (limit > 0) found->set_limit_once(limit);
  return found;
}

ModelId next_model_id() { return ModelId{next_of(next_model)}; }
uint64_t next_stream_serial() { return next_of(next_stream); }

}  // namespace heddle::runtime::registry
