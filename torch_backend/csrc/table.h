// table.h: the one table of ATen operators: schema name -> builder of graph nodes. Eager calls and traced
// graphs use the same entries.
//
//   Names      The functional overload: "aten::add.Tensor", "aten::relu". Its in-place and out= overloads
//              ("aten::add_.Tensor", "aten::add.out") are found by their schemas and need no entry. View
//              operators have entries for traced graphs only; eager views are PyTorch's own, on strides.
#pragma once

#include <span>
#include <string_view>

#include "call.h"

namespace heddle::torch_backend {

enum class Numbers : uint8_t {
  varying,  // arguments of type Scalar are inputs of the graph
  known,    // they are part of it: each new value is a new graph
};

struct Entry {
  std::string_view op;
  Results (*build)(Call&);
  Numbers numbers = Numbers::varying;
};

// One list a file of ops/.
std::span<const Entry> unary_entries();
std::span<const Entry> activation_entries();
std::span<const Entry> arithmetic_entries();
std::span<const Entry> pair_entries();
std::span<const Entry> logic_entries();
std::span<const Entry> selection_entries();
std::span<const Entry> comparison_entries();
std::span<const Entry> creation_entries();
std::span<const Entry> reduction_entries();
std::span<const Entry> loss_entries();
std::span<const Entry> order_entries();
std::span<const Entry> shape_entries();
std::span<const Entry> rearrangement_entries();
std::span<const Entry> indexing_entries();
std::span<const Entry> scatter_entries();
std::span<const Entry> matrix_entries();
std::span<const Entry> window_entries();
std::span<const Entry> pooling_entries();
std::span<const Entry> resampling_entries();
std::span<const Entry> normalization_entries();
std::span<const Entry> attention_entries();
std::span<const Entry> recurrent_entries();

// All of them; null when there is none of that name.
std::span<const Entry> table();
const Entry* find_entry(std::string_view op);

}  // namespace heddle::torch_backend
