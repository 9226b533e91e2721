// log.h: messages for the callback of set_log. Without one, nothing is formatted twice and nothing is
// printed.
#pragma once

#include <heddle/heddle.h>

namespace heddle {

void log(LogLevel level, const std::string& message);  // calls the callback with no lock held

}  // namespace heddle
