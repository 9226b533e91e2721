// checks.h: what every eager call is checked for before its model is looked up.
//
//   What       Devices of the tensors, memory that a call writes to, and values that some operators refuse:
//              no part of a model, so a model that is found says nothing about them.
//   Threads    Any.
//   Blocks     Never.
#pragma once

#include <string>
#include <string_view>

#include "device.h"
#include "eager.h"

namespace heddle::torch_backend {

bool is_written(const c10::Argument& argument);  // in-place and out= forms write to it
// Of the first tensor of this device, or of an argument that names one; else the current one.
c10::DeviceIndex device_of(c10::ArrayRef<c10::IValue> arguments);

// What PyTorch checks for this operator, into the overload.
void add_checks(Overload& overload);

// What is checked of this operator's values; null: nothing (value_checks.cpp).
Overload::Check value_check(std::string_view op);

// Whether the call asks for a tensor of another device, layout or memory format: torch.ones_like(x,
// device="cpu").
// make_elsewhere() runs it as PyTorch's composition of other operators.
bool is_elsewhere(const Overload& overload, c10::ArrayRef<c10::IValue> arguments, c10::DeviceIndex index);
void make_elsewhere(const c10::OperatorHandle& op, c10::Stack& stack);

// RuntimeError unless every tensor is on `device`, or is a number.
void check_devices(const Overload& overload, c10::ArrayRef<c10::IValue> arguments, c10::Device device);

// The same for an operator without an entry; every CPU tensor without dimensions is a number.
void check_devices(const c10::FunctionSchema& schema, c10::ArrayRef<c10::IValue> arguments,
                   c10::Device device);

// RuntimeError where two elements of a target are one, or where a target and an input share some of their
// elements. Appends to the key which inputs a target shares all elements with: some operators refuse that.
void check_overlap(const Overload& overload, c10::ArrayRef<at::Tensor> targets,
                   c10::ArrayRef<c10::IValue> arguments, std::string& key);

// The same of a target of out= that was given its size, for operators that refuse to share memory at all:
// it may reach into an input now.
void check_resized(const Overload& overload, const at::Tensor& target, c10::ArrayRef<c10::IValue> arguments);

// translated() of device.h, with IndexError for an index outside where PyTorch's CPU raises that.
[[noreturn]] void raise_of_call(const Overload& overload, const Error& error);
template <class F>
auto translated(const Overload& overload, F&& f) -> decltype(f()) {
  try {
    return f();
  } catch (const Error& error) {
    raise_of_call(overload, error);
  }
}

}  // namespace heddle::torch_backend
