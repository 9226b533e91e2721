// kept_file.h: files that processes keep for each other, each of them written whole or not at all.
//
//   Invariant  A reader sees a whole file or none, whatever ends the writer. What it read before stays.
//   Errors     invalid: what the file system said.
//   Threads    Any, and other processes. Of several writers of one file the last one counts.
//   Blocks     On the file system.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace heddle {

// 16 digits. It finds damage. It does not stop anyone who means to change the file.
std::string checksum(std::string_view bytes);

// The bytes of a file, nothing where there is none.
Result<std::optional<std::string>> read_kept(const std::string& path, uint64_t bytes_max);
// Makes its folder, too.
Status replace_kept(const std::string& path, std::string_view bytes);

}  // namespace heddle
