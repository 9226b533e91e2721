// register.h: tells PyTorch's dispatcher of the table: which overloads of an operator an entry serves is read
// off the schemas.
#pragma once

#include <string>
#include <vector>

namespace heddle::torch_backend {

void register_operators();                        // once a process
std::vector<std::string> registered_overloads();  // sorted: "aten::add.Tensor"
std::vector<std::string> overloads_on_cpu();      // those of them that cpu_operators.h runs
std::vector<std::string> unknown_overloads();     // sorted: ours that this version of PyTorch does not have

}  // namespace heddle::torch_backend
