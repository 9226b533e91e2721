// names.h: names that come from a file, made fit for a message.
//
//   What       A file may hold any bytes as a name. Names of inputs and outputs must be clean, since callers
//              type them; other names are shown and stored printable.
//   Threads    Pure functions; any thread.
#pragma once

#include <string>
#include <string_view>

namespace heddle::onnx {

inline constexpr size_t kNameBytes = 256;  // longer names are cut in messages

bool is_clean(std::string_view name);          // valid UTF-8 without control characters
std::string printable(std::string_view name);  // unclean bytes as \xNN, at most about kNameBytes long
std::string in_quotes(std::string_view name);  // the same in single quotes

}  // namespace heddle::onnx
