// algorithm_store.h: which of a library's algorithms was the fastest for a problem, for the next process.
//
//   What       find() gives what is known of a problem, keep() adds what was measured. Both are words of the
//              caller's. What a library's algorithm is only its version can tell, so it is for the caller to
//              see whether the library still has it.
//   Invariant  What is in the file stays, so that answers do not change between runs; but for an algorithm
//              that the library no longer proposed, which gives way.
//   Errors     None: what the file cannot do is told to `warn`, once for reading and once for writing, and in
//              describe(). Choices then live as long as the device.
//   Threads    Any.
//   Blocks     On the file system: make() and keep().
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "base/kept_lines.h"
#include "base/sync.h"

namespace heddle::cuda {

struct LibraryTuning {
  bool on = true;           // else nothing is measured, and rules decide
  std::string folder = {};  // "": choices are not kept
  std::function<void(const std::string&)> warn = [](const std::string&) {};
};

class AlgorithmStore {
 public:
  static constexpr const char* kOurs = "ours";  // by convention: the driver's own kernels were as fast

  // `library` names the file. `identity`: GPU and version of the library.
  AlgorithmStore(const LibraryTuning& tuning, std::string_view library, std::string identity);
  AlgorithmStore(const AlgorithmStore&) = delete;
  AlgorithmStore& operator=(const AlgorithmStore&) = delete;

  std::optional<std::string> find(const std::string& problem) const;
  // The choice that holds from now on: another process's, if that came first and `refused` is not set.
  std::string keep(const std::string& problem, const std::string& chosen, bool refused);
  std::string describe() const;  // for people: where choices are kept, as it was at the beginning

 private:
  using Choices = std::map<std::string, std::string>;  // by the problem
  static std::optional<Choices> choices_of(const Lines& lines);

  const std::string library_;
  const std::function<void(const std::string&)> warn_;
  const std::optional<KeptLines> file_;
  std::string said_;
  Guarded<Choices, Rank::kCache> choices_;
  Atomic<bool> unwritable_{false};  // set once, by the thread that then warns
};

}  // namespace heddle::cuda
