// kernels.h: the kernels of an image as functions of one context, by name.
//
//   Threads    Immutable once loaded.
//   Errors     load(): unsupported when the image has no code for this GPU.
#pragma once

#include <array>
#include <bit>
#include <map>
#include <string>
#include <string_view>

#include "drivers/cuda/driver/driver_api.h"

namespace heddle::cuda {

struct Kernel {
  const char* name;        // of list.inc
  size_t params_bytes;     // of the struct that it takes
  int cluster = 1;         // blocks of one
  bool everywhere = true;  // in code for every GPU; others may be missing
  Function function = nullptr;
};

class Kernels {
 public:
  Kernels() = default;
  Kernels(Kernels&&) = default;  // no copies: moves_ and pause_ point into by_name_
  Kernels& operator=(Kernels&&) = default;
  static Result<Kernels> load(const DriverApi& api, const void* image);

  // Null: list.inc has none of that name, or the image has none for this GPU.
  const Kernel* find(std::string_view name) const;
  // Moves elements of 1, 2, 4 or 8 bytes; found once, for copies and fills.
  const Kernel* move_of(int64_t size) const {
    return moves_[static_cast<size_t>(std::countr_zero(static_cast<uint64_t>(size)))];
  }
  const Kernel* pause() const { return pause_; }
  const Kernel* copy_and_tell() const { return copy_and_tell_; }
  bool clusters() const { return clusters_; }  // the code for this GPU has kernels whose blocks form clusters
  ModuleHandle module() const { return module_; }

 private:
  ModuleHandle module_ = nullptr;
  std::map<std::string, Kernel, std::less<>> by_name_;
  std::array<const Kernel*, 4> moves_{};
  const Kernel* pause_ = nullptr;
  const Kernel* copy_and_tell_ = nullptr;
  bool clusters_ = true;
};

}  // namespace heddle::cuda
