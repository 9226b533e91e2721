// boot.cpp: installs the guard when the library is inserted, and looks for the driver when a device is made.
//
// This file must be linked after all others: on Linux a constructor of an earlier file would run before the
// runtime knows that file's selectors.
#include "agx_guard.h"

#include <dlfcn.h>

namespace agx_guard {
void look_for_driver();
}

namespace {

// The name differs from the API's so that on macOS the interposed function can call the real one by its name.
template <class Function, class... Arguments>
auto make_and_look(Function* make, Arguments... arguments) {
  auto made = make(arguments...);
  agx_guard::look_for_driver();
  return made;
}

}  // namespace

#ifdef __APPLE__

#include <dispatch/dispatch.h>
#include <objc/runtime.h>

#include <cstring>

extern "C" void* MTLCreateSystemDefaultDevice();
extern "C" void* MTLCopyAllDevices();

namespace {

void* create_device() { return make_and_look(&MTLCreateSystemDefaultDevice); }
void* copy_devices() { return make_and_look(&MTLCopyAllDevices); }

struct Interposed {
  const void* replacement;
  const void* original;
};
__attribute__((used, section("__DATA,__interpose"))) const Interposed interposed[] = {
    {reinterpret_cast<const void*>(&create_device),
     reinterpret_cast<const void*>(&MTLCreateSystemDefaultDevice)},
    {reinterpret_cast<const void*>(&copy_devices), reinterpret_cast<const void*>(&MTLCopyAllDevices)}};

// A framework that makes its device inside Metal loads the driver all the same. The run time calls this with
// its lock held, so that the classes can only be looked at by another thread, as soon as it is dropped.
void image_loaded(const mach_header* image) {
  Dl_info info{};
  if (!dladdr(image, &info) || !info.dli_fname || !strstr(info.dli_fname, "AGX")) return;
  dispatch_async_f(dispatch_get_global_queue(QOS_CLASS_USER_INITIATED, 0), nullptr,
                   [](void*) { agx_guard::look_for_driver(); });
}

}  // namespace

#else

extern "C" __attribute__((visibility("default"))) void* MTLCreateSystemDefaultDevice() {
  using Make = void*();
  static auto* const next = reinterpret_cast<Make*>(dlsym(RTLD_NEXT, "MTLCreateSystemDefaultDevice"));
  return next ? make_and_look(next) : nullptr;
}

#endif

__attribute__((constructor)) static void boot() {
  const bool on = agx_guard_install() != AGX_GUARD_OFF;
#ifdef __APPLE__
  if (on) objc_addLoadImageFunc(image_loaded);
#else
  (void)on;
#endif
}
