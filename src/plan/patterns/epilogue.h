// epilogue.h: what Linear and Conv take in of the nodes that follow them: a residual, an activation.
//
//   What       Both have the inputs x, weight, bias, residual and the attribute `activation`; they differ in
//              which comes first (Conv: the residual), so each says itself what it may still take in.
//   Threads    Pure, apart from the Rewriter they are given.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "plan/passes/rewrite.h"

namespace heddle::plan {

inline constexpr size_t kWeight = 1;
inline constexpr size_t kBias = 2;
inline constexpr size_t kResidual = 3;

// The four inputs, those left out as kNoValue.
std::vector<ir::ValueId> four_inputs(const ir::Node& product);

// Replaces `node` by a Linear or Conv with these inputs; absent ones at the end go.
Status replace_product(Rewriter& rw, const ir::Node& node, std::string_view op,
                       std::vector<ir::ValueId> inputs, ir::Attributes attributes);

// The product that makes `id`, when `reader` may take its place; else null.
using Absorbable = const ir::Node* (*)(const Rewriter& rw, ir::ValueId id, const ir::Node& reader);

// The other operand of an Add becomes the product's residual, if it has none yet.
Status absorb_residual(Rewriter& rw, const ir::Node& add, Absorbable absorbable);
Status absorb_activation(Rewriter& rw, const ir::Node& node, const ir::Node& product,
                         const ir::Attributes& activation);

// The attributes of a product (activation, activation_alpha, activation_beta) that mean this element-wise
// node; nothing when none do.
std::optional<ir::Attributes> activation_attributes(const Rewriter& rw, const ir::Node& node);

}  // namespace heddle::plan
