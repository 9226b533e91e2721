// field_checks.h: MPSGraph's operators as the field met them, beside what they compute.
//
//   What       One call in each operator that has a limit: it ends the process, or makes what was made wrong.
//              Without a Mac (control.h) each does nothing and gives back what it was given.
//   Threads    As Building.
#pragma once

#include "tests/metal_double/graph/building.h"

namespace heddle::metal_double {

// MTLReportFailure's way: no exception, no return.
[[noreturn]] void report_failure(std::string_view method, const std::string& why);

void field_fits(const Building& b, MPSDataType type, const Shape& shape);
void field_reduces(const Building& b, const Value& x, const std::vector<size_t>& axes);
void field_scans(const Building& b, const Value& x, size_t axis);
void field_gathers_along(const Building& b, const Value& x);
void field_scatters(const Building& b, const Value& data, MPSGraphScatterMode mode);
void field_concatenates(const Building& b, const std::vector<Value>& parts);
void field_signs(const Building& b, const Value& x);
void field_counts_turns(const Building& b, const Value& turns);

MPSGraphTensor* field_product(Building& b, const Value& x, const Value& y, MPSGraphTensor* made);
MPSGraphTensor* field_convolution(Building& b, const Value& x, const Value& w, MPSGraphTensor* made);
MPSGraphTensor* field_quotient(Building& b, MPSGraphTensor* made);
MPSGraphTensor* field_order(Building& b, const Value& x, size_t axis, MPSGraphTensor* order);

// The double's loops give the index as one element; the field's, without axes.
Shape shape_of_index();
// The order in which an executable lists its targets.
NSArray<MPSGraphTensor*>* listed(NSArray<MPSGraphTensor*>* targets);

}  // namespace heddle::metal_double
