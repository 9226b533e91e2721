#include "settings_kept.h"

namespace agx_guard {

KeptSetting& KeptSettings::slot(uint64_t key) {
  for (size_t i = 0; i < used_; ++i) {
    if (kept_[i].key == key) return kept_[i];
  }
  if (used_ == kept_.size()) kept_.emplace_back();
  KeptSetting& setting = kept_[used_++];
  setting.key = key;
  return setting;
}

void KeptSettings::drop(uint64_t key) {
  for (size_t i = 0; i < used_; ++i) {
    if (kept_[i].key != key) continue;
    for (id& object : kept_[i].objects) {
      [object release];
      object = nil;
    }
    std::swap(kept_[i], kept_[--used_]);
    return;
  }
}

void KeptSettings::clear() {
  for (size_t i = 0; i < used_; ++i) {
    for (id& object : kept_[i].objects) {
      [object release];
      object = nil;
    }
  }
  used_ = 0;
  lost_ = unfinished_ = false;
}

}  // namespace agx_guard
