// fallback.h: operators that PyTorch's CPU may run on copies of the arguments, if that is allowed.
//
//   Threads    Any; one lock, which only calls that are allowed take.
//   Blocks     Until the copies are there, and as long as the CPU computes.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace heddle::torch_backend {

// Until it was called with true, they raise NotImplementedError with the operator's name.
void allow_cpu_fallback(bool on);
std::vector<std::pair<std::string, uint64_t>> cpu_fallbacks();  // how often each operator ran so

}  // namespace heddle::torch_backend
