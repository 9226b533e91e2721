#include "drivers/metal/failure.h"

#import <Metal/Metal.h>

namespace heddle::metal {
namespace {

std::string described(NSError* error) {
  if (error == nil) return "Metal gives no reason";
  return text(utf8([error localizedDescription]), " (", utf8([error domain]), " ",
              static_cast<int64_t>([error code]), ")");
}

bool is_of(NSError* error, NSString* domain, NSInteger code) {
  return error != nil && [[error domain] isEqualToString:domain] && [error code] == code;
}

}  // namespace

std::string utf8(NSString* text) {
  const char* bytes = text == nil ? nullptr : [text UTF8String];
  return bytes == nullptr ? std::string() : std::string(bytes);
}

Status command_buffer_failure(std::string_view what, NSError* error) {
  if (is_of(error, MTLCommandBufferErrorDomain, MTLCommandBufferErrorOutOfMemory)) {
    return Status::exhausted(what, " had no memory: ", described(error));
  }
  return Status::device_lost(what, " failed: ", described(error));
}

bool is_removal(NSError* error) {
  return is_of(error, MTLCommandBufferErrorDomain, MTLCommandBufferErrorDeviceRemoved);
}

Status compile_failure(std::string_view what, NSError* error) {
  return Status::internal(what, " cannot be compiled: ", described(error));
}

Status exception_failure(std::string_view what, NSException* exception) {
  return Status::internal(what, ": ", utf8([exception name]), ": ", utf8([exception reason]));
}

}  // namespace heddle::metal
