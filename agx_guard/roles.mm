#include "roles.h"

#include <array>
#include <string_view>

namespace agx_guard {

namespace {

bool begins(std::string_view name, std::string_view with) { return name.substr(0, with.size()) == with; }
bool ends(std::string_view name, std::string_view with) {
  return name.size() >= with.size() && name.substr(name.size() - with.size()) == with;
}

template <size_t N>
bool begins_with_any(std::string_view name, const std::array<std::string_view, N>& words) {
  for (std::string_view word : words) {
    if (begins(name, word)) return true;
  }
  return false;
}

constexpr std::array<std::string_view, 7> kAnnotations = {
    "insertDebugSignpost:", "pushDebugGroup:", "popDebugGroup", "setLabel:", "label", "device",
    "commandBuffer"};

// The buffer table of a compute encoder: these take each other's place at an index.
constexpr std::array<std::string_view, 5> kBufferTable = {
    "setBuffer:", "setBytes:", "setVisibleFunctionTable:", "setIntersectionFunctionTable:",
    "setAccelerationStructure:"};

constexpr std::array<std::string_view, 4> kWithoutSettings = {
    "updateFence:", "waitForFence:", "sampleCounters", "barrier"};

Role role_on_encoder(std::string_view name, bool returns) {
  if (name == "dealloc") return Role::dealloc;
  if (name == "endEncoding") return Role::end;
  if (name == "destroyImpl" || name == "deferredEndEncoding") return Role::destroy;
  if (name == "renderCommandEncoder") return Role::make_child;
  for (std::string_view annotation : kAnnotations) {
    if (name == annotation) return returns ? Role::query : Role::annotation;
  }
  if (returns) return Role::query;
  if (begins(name, "set") || begins(name, "use") || begins(name, "memoryBarrier")) return Role::setting;
  return Role::work;
}

Role role_on_buffer(std::string_view name) {
  if (name == "dealloc") return Role::buffer_dealloc;
  if (name == "commit") return Role::commit;
  if (name == "encodeSignalEvent:value:") return Role::signal;
  if (name == "encodeWaitForEvent:value:") return Role::wait;
  return Role::make_encoder;
}

}  // namespace

Selector describe(const std::string& name, Kind kind, bool returns) {
  Selector selector{.name = name,
                    .role = Role::query,
                    .indexed = false,
                    .group = 0,
                    .carries = false,
                    .uses_settings = false};
  if (kind == Kind::queue) {
    selector.role = Role::make_buffer;
  } else if (kind == Kind::buffer) {
    selector.role = role_on_buffer(name);
  } else {
    selector.role = role_on_encoder(name, returns);
    selector.indexed = ends(name, "ndex:");
    selector.group = begins_with_any(name, kBufferTable) ? 1 : begins(name, "setBufferOffset:") ? 2 : 0;
    selector.uses_settings = selector.role == Role::work && !begins_with_any(name, kWithoutSettings);
    // Arrays of objects are read through a pointer whose length the signature does not tell.
    selector.carries = selector.role == Role::setting && name.find("withRange:") == std::string::npos &&
                       name.find("ufferRange:") == std::string::npos &&
                       name.find("count:") == std::string::npos;
  }
  return selector;
}

bool is_of_interest(const std::string& name, Kind kind, bool returns_object) {
  if (kind == Kind::queue) return begins(name, "commandBuffer") && returns_object;
  if (kind == Kind::encoder) return false;  // an encoder's protocols say
  return name == "dealloc" || name == "commit" || name == "encodeSignalEvent:value:" ||
         name == "encodeWaitForEvent:value:" ||
         (name.find("ommandEncoder") != std::string::npos && returns_object);
}

bool is_driver_private(const std::string& name) {
  return name == "dealloc" || name == "destroyImpl" || name == "deferredEndEncoding";
}

}  // namespace agx_guard
