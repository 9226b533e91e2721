// kept_lines.h: lines of text that processes keep for each other in a file.
//
//   What       One file in a folder for each identity: what the lines are true of. read() gives its lines.
//              rewrite() gives it others, made of those that it has.
//   Invariant  A reader sees a whole file or none. Writers, threads and processes, take turns by a lock file:
//              what rewrite() is given is what it replaces.
//   Errors     read(): invalid where the file is cut off, changed, or of another title or identity; such a
//              file has no lines for rewrite(). rewrite(): unavailable where another writer kept the lock for
//              kPatience, invalid where the folder cannot be written.
//   Threads    Any.
//   Blocks     On the file system; rewrite() for the lock, at most kPatience.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace heddle {

using Lines = std::vector<std::string>;  // without their ends

class KeptLines {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(50);

  // `kind`: what the file's name begins with. `title`: of this form of the lines; its number grows with them.
  KeptLines(std::string folder, std::string_view kind, std::string title, std::string identity);

  const std::string& path() const { return path_; }
  Result<Lines> read() const;  // of no file: none
  Status rewrite(const std::function<Lines(Lines theirs)>& change) const;

 private:
  Status replace(const Lines& lines) const;

  std::string folder_, title_, identity_, path_;
};

}  // namespace heddle
