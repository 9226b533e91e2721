// kernel_files.h: compiled kernels that processes keep for each other, a file each.
//
//   What       find() gives the code of a source, if it is there; keep() adds it. A file holds its source and
//              what else decides the code, which are compared, and a checksum.
//   Invariant  The folder holds no more than kMost of them: the oldest give way.
//   Errors     None: what the files cannot do is told to `warn`, once for reading and once for writing.
//   Threads    Any, and other processes.
//   Blocks     On the file system.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "base/atomic.h"

namespace heddle::cuda {

class KernelFiles {
 public:
  static constexpr size_t kMost = 1024;

  // `folder` empty: nothing is kept. `identity`: what decides the code beside the source.
  KernelFiles(const std::string& folder, std::string identity, std::function<void(const std::string&)> warn);

  std::optional<std::string> find(const std::string& source) const;
  void keep(const std::string& source, const std::string& code) const;
  std::string path_of(const std::string& source) const;
  std::string describe() const;  // for people: where they are, and how many are there now

 private:
  std::string head_of(const std::string& source) const;
  size_t count() const;
  void make_room() const;

  const std::string folder_, identity_;
  const std::function<void(const std::string&)> warn_;
  mutable Atomic<bool> unreadable_{false};  // set once, by the thread that then warns
  mutable Atomic<bool> unwritable_{false};  // likewise
};

}  // namespace heddle::cuda
