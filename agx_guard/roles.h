// roles.h: from a selector's name to what the guard does about it. Pure functions.
#pragma once

#include "originals.h"

namespace agx_guard {

Selector describe(const std::string& name, Kind kind, bool returns);

// For command buffers and queues, whose other methods are left alone.
bool is_of_interest(const std::string& name, Kind kind, bool returns_object);

// Methods of encoders that matter though no protocol declares them.
bool is_driver_private(const std::string& name);

}  // namespace agx_guard
