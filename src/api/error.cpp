#include "api/internals.h"

namespace heddle {

std::string_view name(ErrorCode code) { return name(static_cast<Code>(code)); }

Error::Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
Error::~Error() = default;

static_assert(static_cast<int>(ErrorCode::invalid) == static_cast<int>(Code::invalid) &&
              static_cast<int>(ErrorCode::internal) == static_cast<int>(Code::internal));

void throw_status(const Status& status) {
  const auto code = static_cast<ErrorCode>(status.code());
  if (status.code() == Code::internal) throw Error(code, status.message() + " (" + status.place() + ")");
  throw Error(code, status.message());
}

Deadline to_deadline(const Timeout& timeout) { return timeout ? Deadline::in(*timeout) : Deadline::never(); }

}  // namespace heddle
