#include "base/status.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

#include "base/made_once.h"

namespace heddle {

namespace {

template <class Number>
void append_number(std::string& out, Number number) {
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), number).ptr;
  out.append(digits, static_cast<size_t>(end - digits));
}

}  // namespace

std::string_view name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::invalid:
      return "invalid";
    case Code::unsupported:
      return "unsupported";
    case Code::exhausted:
      return "exhausted";
    case Code::unavailable:
      return "unavailable";
    case Code::deadline:
      return "deadline";
    case Code::cancelled:
      return "cancelled";
    case Code::device_lost:
      return "device_lost";
    case Code::internal:
      return "internal";
  }
  return "unknown";
}

std::string to_string(Code code) { return std::string(name(code)); }

void append_part(std::string& out, std::string_view part) { out.append(part); }
void append_part(std::string& out, const char* part) { out.append(part == nullptr ? "(null)" : part); }
void append_part(std::string& out, char part) { out.push_back(part); }
void append_part(std::string& out, bool part) { out.append(part ? "true" : "false"); }
void append_part(std::string& out, int64_t part) { append_number(out, part); }
void append_part(std::string& out, uint64_t part) { append_number(out, part); }
void append_part(std::string& out, float part) { append_number(out, part); }
void append_part(std::string& out, double part) { append_number(out, part); }

Status Status::make(Code code, std::string message, std::source_location place) {
  if (code == Code::ok) return Status();
  return Status(new Rep(code, std::move(message), place));
}

const Status::Rep& Status::without_memory =
    *new Rep(Code::exhausted, "the system has no memory left", std::source_location::current());

Status Status::no_memory() {
  const Status kept(&without_memory);
  kept.retain();  // its first owner stays
  return kept;
}

void Status::retain() const {
  if (rep_ != nullptr)
    const_cast<Rep*>(rep_)->owners.add_relaxed(1);  // the copied owner keeps it alive meanwhile
}

void Status::release() {
  // acq_rel: the last owner's delete comes after every other owner's reads.
  if (const_cast<Rep*>(rep_)->owners.sub_acq_rel(1) == 1) delete rep_;
  rep_ = nullptr;
}

const std::string& Status::message() const {
  static constinit MadeOnce<const std::string> none;
  return rep_ == nullptr ? none.get() : rep_->message;
}

std::string Status::place() const {
  if (rep_ == nullptr) return {};
  std::string_view file = rep_->place.file_name();
  if (const size_t slash = file.rfind('/'); slash != std::string_view::npos) file.remove_prefix(slash + 1);
  return text(file, ':', rep_->place.line());
}

Status Status::with_context(std::string_view prefix) const {
  if (rep_ == nullptr) return {};
  return make(rep_->code, text(prefix, ": ", rep_->message), rep_->place);
}

std::string to_string(const Status& status) {
  if (status.ok()) return "ok";
  return text(name(status.code()), ": ", status.message());
}

void die_without_value(const Status& status) {
  const std::string line = text("heddle: the value of a failed Result was taken: ", to_string(status), " (",
                                status.place(), ")\n");
  std::fputs(line.c_str(), stderr);
  std::abort();
}

}  // namespace heddle
