// tables.h: the families of operators; op.cpp gathers them.
//
//   What       Each function gives the entries of one file of ops/. A new family is one line here and one in
//              op.cpp.
//   Threads    Entries are made on first use, by one thread, and constant from then on.
#pragma once

#include <span>

#include "ir/op.h"

namespace heddle::ir {

std::span<const OpDef> unary_ops();
std::span<const OpDef> binary_ops();
std::span<const OpDef> chain_ops();
std::span<const OpDef> shape_ops();
std::span<const OpDef> movement_ops();
std::span<const OpDef> slicing_ops();
std::span<const OpDef> indexing_ops();
std::span<const OpDef> reduce_ops();
std::span<const OpDef> order_ops();
std::span<const OpDef> linear_ops();
std::span<const OpDef> convolution_ops();
std::span<const OpDef> convolution_transpose_ops();
std::span<const OpDef> integer_ops();
std::span<const OpDef> pooling_ops();
std::span<const OpDef> normalization_ops();
std::span<const OpDef> attention_ops();
std::span<const OpDef> linear_attention_ops();
std::span<const OpDef> recurrent_ops();
std::span<const OpDef> trigonometry_ops();
std::span<const OpDef> bitwise_ops();
std::span<const OpDef> scatter_ops();
std::span<const OpDef> resize_ops();
std::span<const OpDef> sampling_ops();
std::span<const OpDef> control_ops();

}  // namespace heddle::ir
