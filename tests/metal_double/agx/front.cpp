// front.cpp: Metal.framework's part. It is linked by programs; the driver behind it is loaded with the first
// device.
#include "agx_double.h"

#include <dlfcn.h>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

void* load() {
  Dl_info own{};
  dladdr(reinterpret_cast<void*>(&load), &own);
  std::string path = own.dli_fname;
  path = path.substr(0, path.rfind('/') + 1) + "libAGXMetalG16X.so";
  void* driver = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!driver) {
    fprintf(stderr, "the AGX double's driver was not found: %s\n", dlerror());
    abort();
  }
  return driver;
}

template <class Function>
Function* in_driver(const char* name) {
  static void* const driver = load();
  return reinterpret_cast<Function*>(dlsym(driver, name));
}

}  // namespace

extern "C" {

void* MTLCreateSystemDefaultDevice() { return in_driver<void*()>("agx_driver_make_device")(); }

void agx_double_set(agx_double_option option, uint64_t value) {
  in_driver<void(agx_double_option, uint64_t)>("agx_driver_set")(option, value);
}

void agx_double_read(agx_double_counts* counts) {
  in_driver<void(agx_double_counts*)>("agx_driver_read")(counts);
}
}
