// tables.h: the families of operators; op.cpp gathers them.
//
//   What       Each function gives the entries of one file of ops/. A new family is one line here and one in
//              op.cpp.
//   Lifetime   op.cpp makes each family once and keeps its entries for as long as the process lives.
#pragma once

#include <vector>

#include "ir/op.h"

namespace heddle::ir {

std::vector<OpDef> unary_ops();
std::vector<OpDef> binary_ops();
std::vector<OpDef> chain_ops();
std::vector<OpDef> shape_ops();
std::vector<OpDef> movement_ops();
std::vector<OpDef> slicing_ops();
std::vector<OpDef> indexing_ops();
std::vector<OpDef> reduce_ops();
std::vector<OpDef> order_ops();
std::vector<OpDef> linear_ops();
std::vector<OpDef> grouped_product_ops();
std::vector<OpDef> convolution_ops();
std::vector<OpDef> convolution_transpose_ops();
std::vector<OpDef> integer_ops();
std::vector<OpDef> pooling_ops();
std::vector<OpDef> normalization_ops();
std::vector<OpDef> attention_ops();
std::vector<OpDef> linear_attention_ops();
std::vector<OpDef> recurrent_ops();
std::vector<OpDef> trigonometry_ops();
std::vector<OpDef> bitwise_ops();
std::vector<OpDef> scatter_ops();
std::vector<OpDef> resize_ops();
std::vector<OpDef> sampling_ops();
std::vector<OpDef> control_ops();

}  // namespace heddle::ir
