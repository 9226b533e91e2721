// private_names.h: what PyTorch's headers keep in namespaces for themselves (detail, impl).
// Each was seen in 2.13.0, 2.14.1 and 2.15.0. A test keeps such names out of the other files, but for the
// registry of profilers: its header wants Kineto's in front of it (activities.cpp). Those of Python are in
// python/heddle/torch/private_names.py.
#pragma once

#include <ATen/EmptyTensor.h>
#include <ATen/core/op_registration/adaption.h>
#include <c10/core/GeneratorImpl.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

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

}  // namespace heddle::torch_backend
