// register.h: tells PyTorch's dispatcher of the table: which overloads of an operator an entry serves is read
// off the schemas.
#pragma once

#include <string>
#include <vector>

namespace heddle::torch_backend {

void register_operators();                        // once a process
std::vector<std::string> registered_overloads();  // sorted: "aten::add.Tensor"
// Operators that no kernel here serves: NotImplementedError, unless they may run on the CPU, counted.
void allow_cpu_fallback(bool on);
std::vector<std::pair<std::string, uint64_t>> cpu_fallbacks();

}  // namespace heddle::torch_backend
