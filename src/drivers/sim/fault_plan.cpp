#include "drivers/sim/fault_plan.h"

#include <charconv>

namespace heddle::sim {
namespace {

constexpr bool each_fault_has_its_line() {
  size_t at = 0;
  for (const FaultLine& line : kFaultLines) {
    if (static_cast<size_t>(line.fault) != at++) return false;
  }
  return at == static_cast<size_t>(Fault::kCount);
}
static_assert(each_fault_has_its_line());

}  // namespace

std::string to_string(const PlannedFault& planned) {
  return text(line_of(planned.fault).word, " ", planned.nth, planned.lasting ? "+" : "");
}

Result<PlannedFault> parse_fault(std::string_view word, std::string_view nth) {
  std::string words;
  for (const FaultLine& line : kFaultLines) {
    words += text(words.empty() ? "" : ", ", line.word);
    if (line.word != word) continue;
    PlannedFault planned{line.fault, 0};
    std::string_view digits = nth;
    if (digits.ends_with('+')) {
      planned.lasting = true;
      digits.remove_suffix(1);
    }
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, planned.nth);
    if (error == std::errc() && rest == end && planned.nth >= 1) return planned;
    return Status::invalid("fault ", word, " has to say which time it comes, from 1 on, not '", nth, "'");
  }
  return Status::invalid("there is no fault '", word, "'; there are ", words);
}

}  // namespace heddle::sim
