// failure.h: what Metal and MPSGraph say when they fail, as a Status with their own text.
#pragma once

#import <Foundation/Foundation.h>

#include <string>

#include "base/status.h"

namespace heddle::metal {

std::string utf8(NSString* text);  // "" for nil

// `what` failed with `error`. exhausted when the device had no memory for it, else device_lost.
Status command_buffer_failure(std::string_view what, NSError* error);
bool is_removal(NSError* error);  // of the device
// Of compiling: internal, since the source is ours.
Status compile_failure(std::string_view what, NSError* error);
Status exception_failure(std::string_view what, NSException* exception);  // internal

}  // namespace heddle::metal
