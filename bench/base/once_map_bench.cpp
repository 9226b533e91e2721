// Question  What does a hit of the OnceMap cost, alone and beside seven other threads, and what does its
//           lock-free read path buy over the obvious cache, a lock around an unordered_map?
// Peer      Guarded<unordered_map<K, Ref<V>>>, which in a release build is a std::mutex and one relaxed load.
// Read as   ns per hit, dropping the Ref again included. "copy and drop a Ref" is the part no map can avoid.
//           The bar is 25 ns alone. With one key, all threads write one reference count: that line bounds
//           both maps.
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/once_map.h"
#include "base/sync.h"
#include "bench/base/rounds.h"

namespace heddle::bench {
namespace {

constexpr uint64_t kHits = 500'000;
constexpr int kRounds = 11;
constexpr uint64_t kKeys = 64;

template <class K>
K key_of(uint64_t i);
template <>
uint64_t key_of(uint64_t i) {
  return i * 1'000'003;
}
template <>
std::string key_of(uint64_t i) {
  return text("model-digest-0123456789/shape-", i);
}

template <class K>
struct Maps {
  using Value = Ref<const uint64_t>;
  OnceMap<K, uint64_t> once;
  Guarded<std::unordered_map<K, Value>, Rank::kCache> locked;
  std::vector<K> keys;
  std::vector<Value> values;

  Maps() {
    for (uint64_t i = 0; i < kKeys; ++i) {
      keys.push_back(key_of<K>(i));
      values.push_back(std::make_shared<const uint64_t>(i));
      const auto made = once.get_or_make(keys[i], [&]() -> Result<Value> { return values[i]; });
      if (!made.ok()) std::exit(1);
      locked.lock()->emplace(keys[i], values[i]);
    }
  }

  template <class Get>
  uint64_t hit(int thread, uint64_t spread, Get get) {
    uint64_t right = 0, i = static_cast<uint64_t>(thread) * 7;
    for (uint64_t n = 0; n < kHits; ++n, ++i) {
      const uint64_t which = i % spread;
      const Value value = get(keys[which], which);
      right += *value == which ? 1 : 0;
    }
    return right;
  }

  uint64_t hit_once(int thread, uint64_t spread) {
    return hit(thread, spread, [&](const K& key, uint64_t) {
      return *once.get_or_make(key, []() -> Result<Value> { return Status::internal("a miss"); });
    });
  }
  uint64_t hit_locked(int thread, uint64_t spread) {
    return hit(thread, spread, [&](const K& key, uint64_t) { return locked.lock()->find(key)->second; });
  }
  uint64_t copy_ref(int thread, uint64_t spread) {
    return hit(thread, spread, [&](const K&, uint64_t which) { return values[which]; });
  }
};

template <class K>
void add_cases(std::vector<Case>& cases, Maps<K>& maps, const std::string& kind) {
  for (const int threads : {1, 8}) {
    for (const uint64_t spread : {kKeys, uint64_t{1}}) {
      const std::string of = text(", ", spread, " ", kind, spread == 1 ? " key" : " keys");
      cases.push_back(
          {"OnceMap hit" + of, threads, kHits, [&maps, spread](int t) { return maps.hit_once(t, spread); }});
      cases.push_back({"lock + unordered_map" + of, threads, kHits,
                       [&maps, spread](int t) { return maps.hit_locked(t, spread); }});
      cases.push_back({"copy and drop a Ref" + of, threads, kHits,
                       [&maps, spread](int t) { return maps.copy_ref(t, spread); }});
    }
  }
}

int run(int argc, char** argv) {
  Maps<uint64_t> numbers;
  Maps<std::string> names;
  std::vector<Case> cases;
  add_cases(cases, numbers, "integer");
  add_cases(cases, names, "string");
  const std::vector<Figure> figures = compare(cases, kRounds);
  print(figures);
  std::printf("\nlock + unordered_map / OnceMap (over 1: the OnceMap is faster)\n");
  for (size_t i = 0; i < figures.size(); i += 3) print_ratio(figures[i], figures[i + 1]);
  write_json(argc, argv, "once_map", figures);
  return 0;
}

}  // namespace
}  // namespace heddle::bench

int main(int argc, char** argv) { return heddle::bench::run(argc, argv); }
