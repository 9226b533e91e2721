// private_names.h: what PyTorch's headers keep in namespaces for themselves (detail, impl) and this device uses.
// Each was seen in 2.13.0, 2.14.1 and 2.15.0. A test keeps such names out of the other files; those of Python
// are in python/heddle/torch/private_names.py.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

// Some PyTorchs have no registry of profilers.
#if __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#define HEDDLE_TORCH_HAS_PROFILERS 1
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#endif

namespace heddle::torch_backend {

// Tensors and their memory
using at::detail::computeStorageNbytes;
using at::detail::computeStorageNbytesContiguous;
using at::detail::empty_generic;
using at::detail::empty_meta;
using at::detail::empty_strided_generic;
using at::detail::empty_strided_meta;
using at::detail::make_tensor;

// The device and its dispatch
using c10::impl::common_device_check_failure;
using c10::impl::DeviceGuardImplInterface;
using c10::impl::ExcludeDispatchKeyGuard;

using c10::detail::getNonDeterministicRandom;

#if defined(HEDDLE_TORCH_HAS_PROFILERS)
using torch::profiler::impl::PrivateUse1ProfilerRegistry;
#endif

}  // namespace heddle::torch_backend
