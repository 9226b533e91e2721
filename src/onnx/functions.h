// functions.h: what a model imports and brings along: opsets, and functions of its own.
//
//   What       Domains with their versions, and the FunctionProtos by domain, name and overload.
//   Lifetime   Functions point into the model.
//   Threads    Pure functions; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "onnx/proto.h"

namespace heddle::onnx {

using Opsets = std::map<std::string, int64_t, std::less<>>;  // version by domain; ai.onnx is ""
using Functions = std::map<std::string, const proto::FunctionProto*, std::less<>>;
using OpsetImports = google::protobuf::RepeatedPtrField<proto::OperatorSetIdProto>;

std::string_view short_domain(std::string_view domain);  // "" for "ai.onnx", others as they are

// Checks that ai.onnx, where it is imported, is one Heddle reads. Refuses domains imported twice.
Result<Opsets> read_opsets(const OpsetImports& imports);

std::string function_key(std::string_view domain, std::string_view name, std::string_view overload);
Result<Functions> read_functions(const proto::ModelProto& model);

}  // namespace heddle::onnx
