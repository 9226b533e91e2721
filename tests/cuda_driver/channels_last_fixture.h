// channels_last_fixture.h: graphs of convolutions, written down in few lines.
#pragma once

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "tests/driver_conformance/session_fixture.h"

namespace heddle::cuda {

// A graph of one type, whose nodes are named by who writes it down.
class Drawing {
 public:
  using Ints = std::vector<int64_t>;

  explicit Drawing(ir::DType dtype) : dtype_(dtype) {}

  ir::ValueId in(const ir::Extents& extents, std::optional<ir::DType> dtype = {}) {
    inputs_.push_back(conformance::random_tensor(dtype.value_or(dtype_), extents, ++seed_, -1, 1));
    return builder_.input(text("in", inputs_.size()), inputs_.back().type());
  }
  ir::ValueId op(std::string_view op, std::vector<ir::ValueId> inputs, std::string name,
                 ir::Attributes attributes = {}) {
    const auto made = builder_.node(op, std::move(inputs), std::move(attributes), std::move(name));
    REQUIRE_MESSAGE(made.ok(), to_string(made.status()));
    return *made;
  }
  // 3 x 3, and the plane stays as it is.
  ir::ValueId conv(ir::ValueId x, std::string name, ir::ValueId residual = ir::kNoValue, int64_t outputs = 8,
                   int64_t group = 1) {
    const int64_t inputs = (*builder_.value(x).type.extents())[1];
    const ir::ValueId w = weight({outputs, inputs / group, 3, 3}), bias = weight({outputs});
    return op("Conv", {x, w, bias, residual}, std::move(name),
              {{"pads", Ints{1, 1, 1, 1}}, {"group", group}});
  }
  ir::ValueId weight(const ir::Extents& extents) {
    return builder_.constant(conformance::random_tensor(dtype_, extents, ++seed_, -0.3, 0.3));
  }
  ir::ValueId reshape(ir::ValueId x, const Ints& shape, std::string name) {
    return op("Reshape", {x, builder_.constant(ir::Tensor::of_i64(shape))}, std::move(name));
  }
  ir::ValueId max_pool(ir::ValueId x, std::string name) {
    return op("MaxPool", {x}, std::move(name),
              {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}});
  }
  ir::Builder& builder() { return builder_; }
  void out(ir::ValueId id) { builder_.output(id); }
  ir::Graph take() { return *builder_.take(); }
  const std::vector<ir::Tensor>& inputs() const { return inputs_; }
  ir::DType dtype() const { return dtype_; }

 private:
  const ir::DType dtype_;
  ir::Builder builder_;
  std::vector<ir::Tensor> inputs_;
  uint32_t seed_ = 0;
};

inline const ir::Extents kImages = {2, 8, 6, 7};

}  // namespace heddle::cuda
