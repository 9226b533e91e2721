#include "agx_guard.h"
#include "buffers.h"
#include "counters.h"
#include "originals.h"
#include "records.h"
#include "settings.h"

#include <dlfcn.h>
#include <cstdio>
#include <cstring>
#include <mutex>

namespace agx_guard {

namespace {

std::mutex installing;
std::atomic<bool> installed{false};
bool others_warned = false;

// Another copy of the guard would nest with this one and believe its hooks to be the driver's methods.
bool is_guarded_by_another_copy() {
  Dl_info ours{}, first{};
  dladdr(reinterpret_cast<void*>(&agx_guard_install), &ours);
  void* const found = dlsym(RTLD_DEFAULT, "agx_guard_install");
  if (!found || !dladdr(found, &first) || first.dli_fbase == ours.dli_fbase) return false;
  const auto is_active = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "agx_guard_is_active"));
  return is_active && is_active();
}

void report_at_exit() {
  const size_t size = agx_guard_report(nullptr, 0) + 1;
  std::string text(size, '\0');
  agx_guard_report(text.data(), size);
  text.resize(strlen(text.c_str()));
  FILE* const file = fopen(settings().report.c_str(), "w");
  if (!file) return say("AGX_GUARD_REPORT=%s cannot be written", settings().report.c_str());
  fwrite(text.data(), 1, text.size(), file);
  fclose(file);
}

void say_what_is_guarded() {
  const Guarded found = guarded();
  say("%zu methods of %zu classes are guarded", found.methods.size(), found.classes.size());
  for (const std::string& name : found.classes) say("guarded class %s", name.c_str());
  for (const std::string& text : found.unguarded) say("not guarded, unknown signature: %s", text.c_str());
  if (!settings().by_class) say("without originals per class");
  if (!settings().keep) say("without keeping encoders");
  if (!settings().order) say("without ordering use and destruction");
}

}  // namespace

void look_for_driver() {
  const std::lock_guard hold(installing);
  if (!installed.load(std::memory_order_acquire)) return;
  if (guard_driver_classes() && settings().verbose) say_what_is_guarded();
}

}  // namespace agx_guard

using namespace agx_guard;

extern "C" __attribute__((visibility("default"))) agx_guard_result agx_guard_install(void) {
  if (settings().off) return AGX_GUARD_OFF;
  @autoreleasepool {
    bool already = false;
    {
      const std::lock_guard hold(installing);
      already = installed.load(std::memory_order_acquire);
      if (!already && is_guarded_by_another_copy()) {
        if (!others_warned) say("another copy of libagx_guard guards this process; this one stays out");
        others_warned = true;
        return AGX_GUARD_OTHER_COPY;
      }
      if (!already) forget_all();  // stragglers of an earlier uninstall
      installed.store(true, std::memory_order_release);
      static const bool registered = settings().report.empty() || atexit(report_at_exit) == 0;
      (void)registered;
    }
    look_for_driver();
    if (already) return AGX_GUARD_ALREADY;
    return guarded().classes.empty() ? AGX_GUARD_WAITING : AGX_GUARD_INSTALLED;
  }
}

extern "C" __attribute__((visibility("default"))) agx_guard_result agx_guard_uninstall(void) {
  const std::lock_guard hold(installing);
  if (!installed.load(std::memory_order_acquire)) return AGX_GUARD_NOT_INSTALLED;
  @autoreleasepool {
    // Records first: an encoder released below must still find -dealloc's hook.
    let_go_of_all();
    restore_originals();
    forget_all();
  }
  installed.store(false, std::memory_order_release);
  return AGX_GUARD_INSTALLED;
}

extern "C" __attribute__((visibility("default"))) int agx_guard_is_active(void) {
  return installed.load(std::memory_order_acquire);
}

extern "C" __attribute__((visibility("default"))) size_t agx_guard_verify(void) {
  return installed.load(std::memory_order_acquire) ? count_replaced_by_others() : 0;
}
