#include "drivers/sim/history.h"

#include <array>
#include <variant>

#include "base/status.h"

namespace heddle::sim {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Happened::What::kCount)> kHappenedNames = {
    "submitted", "begun", "ended", "told", "lost", "failed", "violated"};

struct Describer {
  std::string operator()(const device::Wait&) const { return "wait"; }
  std::string operator()(const device::Run&) const { return "run"; }
  std::string operator()(const device::Copy& copy) const {
    return text("copy of ", copy.to.bytes(), " bytes");
  }
  std::string operator()(const device::Fill& fill) const {
    return text("fill of ", fill.to.bytes(), " bytes");
  }
  std::string operator()(const device::Signal&) const { return "signal"; }
};

}  // namespace

std::string_view name(Happened::What what) { return kHappenedNames[static_cast<size_t>(what)]; }

std::string describe(const device::Command& command) { return std::visit(Describer(), command); }

}  // namespace heddle::sim
