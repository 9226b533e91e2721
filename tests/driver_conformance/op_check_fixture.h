// op_check_fixture.h: one case of one operator, on one device, against the reference.
//
//   Threads    Any, with memory of the kind that put_operands_in() says.
#pragma once

#include <vector>

#include "device/device.h"
#include "ir/graph.h"
#include "ir/tensor.h"
#include "op_cases_fixture.h"

namespace heddle::conformance {

struct Operands {
  ir::Graph graph;
  std::vector<ir::Tensor> inputs;  // of the graph
  std::vector<ir::Tensor> wanted;  // the reference's values
};

Result<Operands> make_inputs(const Case& c, DType t);  // without what is wanted
Result<Operands> make_operands(const Case& c, DType t);

// internal: a value is not the reference's. unsupported and others: the device's own.
Status check_operands(device::Device& device, const Operands& operands);
Status check_case(device::Device& device, const Case& c, DType dtype);

}  // namespace heddle::conformance
