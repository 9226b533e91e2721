// hooks.h: PyTorch's hooks for device "heddle".
#pragma once

namespace heddle::torch_backend {

void register_hooks();  // once a process, before anything asks for the device

}  // namespace heddle::torch_backend
