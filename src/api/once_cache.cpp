// once_cache.cpp: OnceCache over base's OnceMap.
#include <string>

#include "api/internals.h"
#include "base/once_map.h"

namespace heddle {
namespace {

struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const { return std::hash<std::string_view>{}(key); }
};

}  // namespace

struct OnceCache::Rep {
  explicit Rep(size_t limit) : map({.count = limit, .bytes = 0}) {}
  OnceMap<std::string, void, Hash> map;
};

OnceCache::OnceCache(size_t limit) : rep_(std::make_unique<Rep>(limit)) {}
OnceCache::~OnceCache() = default;

std::shared_ptr<const void> OnceCache::get_or_make(std::string_view key,
                                                   const std::function<std::shared_ptr<const void>()>& make) {
  return take(rep_->map.get_or_make(key, [&]() -> Result<std::shared_ptr<const void>> {
    try {
      return make();
    } catch (const Error& error) {
      return Status::make(static_cast<Code>(error.code()), error.what());
    }
  }));
}

OnceCache::Stats OnceCache::stats() const {
  const auto stats = rep_->map.stats();
  return {stats.hits, stats.misses, stats.failures, stats.evictions, stats.count};
}

void OnceCache::clear() { rep_->map.clear(); }

}  // namespace heddle
