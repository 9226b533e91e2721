// external_data.h: the files beside a model that hold its weights.
//
//   What       Turns a tensor's {location, offset, length} into bytes of a mapped file.
//   Invariant  No byte outside the model's folder is ever read: locations are relative, and what they name,
//              symbolic links followed, lies in the folder. Each file is mapped once.
//   Lifetime   The bytes live as long as the Ref that comes with them, not as long as this object.
//   Threads    One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "base/status.h"
#include "onnx/mapped_file.h"
#include "onnx/proto.h"

namespace heddle::onnx {

class ExternalData {
 public:
  explicit ExternalData(std::string folder) : folder_(std::move(folder)) {}  // "" refuses all external data

  struct Bytes {
    std::span<const std::byte> bytes;
    Ref<const MappedFile> keep;
  };
  // The `size` bytes that the tensor's external_data entries name.
  Result<Bytes> find(const proto::TensorProto& tensor, uint64_t size);

 private:
  Result<Ref<const MappedFile>> file(const std::string& location);

  std::string folder_;
  std::map<std::string, Ref<const MappedFile>> files_;  // by location
};

}  // namespace heddle::onnx
