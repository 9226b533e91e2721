// tuning_file.h: the decisions about products, kept from one process to the next.
//
//   What       One text file in a folder for each identity: the processor, its cores and instructions,
//              oneDNN's version and that of our rules. read() gives its decisions. merge() adds to it.
//   Invariant  What is in the file stays: of two decisions about one key the older wins, so that answers do
//              not change between runs. Writers, threads and processes, take turns; what one wrote no other
//              drops (base/kept_lines.h).
//   Errors     read(): invalid where the file is cut off, changed, or another identity's; such a file counts
//              as empty for merge(). merge(): unavailable where another writer kept the lock for
//              kPatience, anything else where the folder cannot be written.
//   Threads    Any.
//   Blocks     On the file system; merge() for the lock, at most kPatience.
#pragma once

#include <map>
#include <string>
#include <tuple>

#include "base/kept_lines.h"
#include "drivers/host/onednn/product_way.h"

namespace heddle::host {

struct TuningKey {
  int64_t rows, k, n;  // rows: a rung
  bool bf16, rows_only;
  int cores;  // that share: 1, or a team's width
  friend auto operator<=>(const TuningKey&, const TuningKey&) = default;
};
using Decisions = std::map<TuningKey, Way>;

// What a file is good for. `root` is put before paths that are read (tests).
std::string tuning_identity(int processors, const std::string& root = "");

class TuningFile {
 public:
  static constexpr Duration kPatience = KeptLines::kPatience;

  TuningFile(std::string folder, std::string identity);

  const std::string& path() const { return file_.path(); }
  Result<Decisions> read() const;  // of no file: none
  // `mine` then holds the file's, too.
  Status merge(Decisions& mine) const;

 private:
  KeptLines file_;
};

}  // namespace heddle::host
