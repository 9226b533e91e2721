#include "agx_guard.h"
#include "buffers.h"
#include "counters.h"
#include "originals.h"
#include "records.h"
#include "settings.h"

#include <algorithm>
#include <cstring>

namespace agx_guard {

namespace {

agx_guard_statistics read() {
  const Guarded found = guarded();
  const Tracked tracked = count_tracked();
  agx_guard_statistics all{};
  all.size = sizeof all;
  all.active = uint64_t(agx_guard_is_active());
  all.classes_guarded = found.classes.size();
  all.methods_guarded = found.methods.size();
  all.methods_unguarded = found.unguarded.size();
  all.calls = counters.calls.read() + tracked.calls;
  all.lock_acquisitions = settings().order ? all.calls : 0;
  all.lock_contentions = counters.lock_contentions.read();
  all.lock_wait_warnings = counters.lock_wait_warnings.read();
  all.lock_limits = counters.lock_limits.read();
  all.lock_wait_us_max = counters.lock_wait_us_max.read();
  all.encoders_made = counters.encoders_made.read();
  all.encoders_made_parallel = counters.encoders_made_parallel.read();
  all.encoders_adopted = counters.encoders_adopted.read();
  all.encoders_released = counters.encoders_released.read();
  all.encoders_tracked = tracked.records;
  all.encoders_open = tracked.open;
  all.encoders_kept = count_kept();
  all.encoders_kept_past_completion = counters.encoders_kept_past_completion.read();
  all.buffers_made = counters.buffers_made.read();
  all.buffers_committed = counters.buffers_committed.read();
  all.buffers_committed_open = counters.buffers_committed_open.read();
  all.buffers_abandoned = counters.buffers_abandoned.read();
  all.events_signalled = counters.events_signalled.read();
  all.events_waited_for = counters.events_waited_for.read();
  all.late_calls = counters.late_calls.read();
  all.late_carried = counters.late_carried.read();
  all.late_refused = counters.late_refused.read();
  all.late_nothing = counters.late_nothing.read();
  all.late_buffers = counters.late_buffers.read();
  return all;
}

#define AGX_GUARD_NUMBER(name) {#name, offsetof(agx_guard_statistics, name)}
const struct {
  const char* name;
  size_t offset;
} kNumbers[] = {AGX_GUARD_NUMBER(active),
                AGX_GUARD_NUMBER(classes_guarded),
                AGX_GUARD_NUMBER(methods_guarded),
                AGX_GUARD_NUMBER(methods_unguarded),
                AGX_GUARD_NUMBER(calls),
                AGX_GUARD_NUMBER(lock_acquisitions),
                AGX_GUARD_NUMBER(lock_contentions),
                AGX_GUARD_NUMBER(lock_wait_warnings),
                AGX_GUARD_NUMBER(lock_limits),
                AGX_GUARD_NUMBER(lock_wait_us_max),
                AGX_GUARD_NUMBER(encoders_made),
                AGX_GUARD_NUMBER(encoders_made_parallel),
                AGX_GUARD_NUMBER(encoders_adopted),
                AGX_GUARD_NUMBER(encoders_released),
                AGX_GUARD_NUMBER(encoders_tracked),
                AGX_GUARD_NUMBER(encoders_open),
                AGX_GUARD_NUMBER(encoders_kept),
                AGX_GUARD_NUMBER(encoders_kept_past_completion),
                AGX_GUARD_NUMBER(buffers_made),
                AGX_GUARD_NUMBER(buffers_committed),
                AGX_GUARD_NUMBER(buffers_committed_open),
                AGX_GUARD_NUMBER(buffers_abandoned),
                AGX_GUARD_NUMBER(events_signalled),
                AGX_GUARD_NUMBER(events_waited_for),
                AGX_GUARD_NUMBER(late_calls),
                AGX_GUARD_NUMBER(late_carried),
                AGX_GUARD_NUMBER(late_refused),
                AGX_GUARD_NUMBER(late_nothing),
                AGX_GUARD_NUMBER(late_buffers),
                AGX_GUARD_NUMBER(calls_dropped)};

// Names of classes and selectors, and type encodings: quotes and backslashes do not occur in them.
template <class Each>
std::string list(const std::vector<Each>& items, const auto& name_of) {
  std::string text = "[";
  for (const Each& item : items) text += (text.size() > 1 ? ", \"" : "\"") + name_of(item) + "\"";
  return text + "]";
}

std::string write() {
  const auto same = [](const std::string& text) { return text; };
  const Guarded found = guarded();
  const agx_guard_statistics all = read();
  std::string text = "{\"statistics\": {";
  for (const auto& [name, offset] : kNumbers) {
    uint64_t value = 0;
    memcpy(&value, reinterpret_cast<const char*>(&all) + offset, sizeof value);
    text += (text.back() == '{' ? "\"" : ", \"") + std::string(name) + "\": " + std::to_string(value);
  }
  text += "}, \"without\": [";
  if (!settings().by_class) text += "\"originals\"";
  if (!settings().keep) text += std::string(text.back() == '[' ? "" : ", ") + "\"keep\"";
  if (!settings().order) text += std::string(text.back() == '[' ? "" : ", ") + "\"order\"";
  text += "], \"warn_ms\": " + std::to_string(settings().warn_ms) +
          ", \"limit_ms\": " + std::to_string(settings().limit_ms) +
          ", \"recent\": " + std::to_string(settings().recent);
  text += ", \"classes\": " + list(found.classes, same);
  text += ", \"methods\": " + list(found.methods, [](const Original* original) { return original->text; });
  text += ", \"unguarded\": " + list(found.unguarded, same) + "}";
  return text;
}

}  // namespace

}  // namespace agx_guard

extern "C" __attribute__((visibility("default"))) void agx_guard_read(agx_guard_statistics* statistics,
                                                                      size_t size) {
  const agx_guard_statistics all = agx_guard::read();
  memcpy(statistics, &all, std::min(size, sizeof all));
}

extern "C" __attribute__((visibility("default"))) size_t agx_guard_report(char* text, size_t size) {
  const std::string report = agx_guard::write();
  if (size > 0) {
    const size_t length = std::min(size - 1, report.size());
    memcpy(text, report.data(), length);
    text[length] = '\0';
  }
  return report.size();
}
