// Which Mac the double stands for. HEDDLE_METAL_DOUBLE_MAC=14.0-M1 makes it that one from the start.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/metal_double/control.h"
#include "tests/metal_double/foundation/system_version.h"
#include "tests/metal_double/metal/state.h"

namespace heddle::metal_double {
namespace {

struct Field {
  std::atomic<const FieldLimits*> limits{nullptr};  // null: as documented
  std::atomic<Chip> chip{Chip::kM4};
  std::mutex lock;
  std::vector<std::unique_ptr<const FieldLimits>> kept;  // a reader may still hold one
};
Field& state_of_the_field() {
  static Field* const made = new Field;
  return *made;
}

void set_field(const FieldMac& mac, const FieldLimits* limits) {
  Field& field = state_of_the_field();
  const std::lock_guard lock(field.lock);
  set_system_version({mac.major, mac.minor});
  field.chip = mac.chip;
  if (limits != nullptr) field.kept.push_back(std::make_unique<const FieldLimits>(*limits));
  field.limits = limits == nullptr ? nullptr : field.kept.back().get();
}

const bool kStarted = (reset_field(), true);

}  // namespace

void become(const FieldMac& mac) { become(mac, field_limits_of(mac)); }
void become(const FieldMac& mac, const FieldLimits& limits) { set_field(mac, &limits); }
const FieldLimits* field() { return state_of_the_field().limits; }
Chip chip() { return state_of_the_field().chip; }

void reset_field() {
  const char* const asked = std::getenv("HEDDLE_METAL_DOUBLE_MAC");
  if (asked == nullptr) return set_field({14, 0, Chip::kM4}, nullptr);
  FieldMac mac;
  int chip = 0;
  const bool read = std::sscanf(asked, "%d.%d-M%d", &mac.major, &mac.minor, &chip) == 3;
  if (!read || chip < 1 || chip > 4) {
    std::fprintf(stderr, "HEDDLE_METAL_DOUBLE_MAC is '%s'; it must be like '14.0-M1'\n", asked);
    std::abort();
  }
  mac.chip = static_cast<Chip>(chip - 1);
  become(mac);
}

}  // namespace heddle::metal_double
