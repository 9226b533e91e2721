// mapped_file.h: a file's bytes in memory, read only.
//
//   What       One private read-only map of a regular file. Pages are read when they are touched.
//   Lifetime   The bytes live as long as the object. A holder of a pointer keeps a Ref: external weights hold
//              theirs.
//   Limits     When another program cuts the file short while it is mapped, touching the lost part ends this
//              process (SIGBUS): replace model files by renaming, not in place.
//   Threads    Immutable: any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/status.h"

namespace heddle::onnx {

class MappedFile {
 public:
  // `path` must be a regular file. Messages name the path.
  static Result<Ref<const MappedFile>> open(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace heddle::onnx
