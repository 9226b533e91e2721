#include "onnx/functions.h"

#include "onnx/names.h"
#include "onnx/reader.h"

namespace heddle::onnx {

std::string_view short_domain(std::string_view domain) {
  return domain == "ai.onnx" ? std::string_view() : domain;
}

Result<Opsets> read_opsets(const OpsetImports& imports) {
  Opsets opsets;
  for (const proto::OperatorSetIdProto& import : imports) {
    const std::string domain(short_domain(import.domain()));
    if (!opsets.emplace(domain, import.version()).second) {
      return Status::invalid("domain ", in_quotes(import.domain()), " is imported twice");
    }
    if (!domain.empty()) continue;
    if (import.version() < kOldestOpset || import.version() > kNewestOpset) {
      return Status::unsupported("opset ", import.version(), " of ai.onnx is not supported; Heddle reads ",
                                 kOldestOpset, " to ", kNewestOpset);
    }
  }
  return opsets;
}

std::string function_key(std::string_view domain, std::string_view name, std::string_view overload) {
  // Any byte may occur in a part: lengths keep the parts apart, where a separator could not.
  return text(short_domain(domain).size(), ':', name.size(), ':', short_domain(domain), name, overload);
}

Result<Functions> read_functions(const proto::ModelProto& model) {
  Functions functions;
  for (const proto::FunctionProto& function : model.functions()) {
    const std::string key = function_key(function.domain(), function.name(), function.overload());
    if (!functions.emplace(key, &function).second) {
      return Status::invalid("function ", in_quotes(function.name()), " of domain ",
                             in_quotes(function.domain()), " is defined twice");
    }
  }
  return functions;
}

}  // namespace heddle::onnx
