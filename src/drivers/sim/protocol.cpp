#include "drivers/sim/protocol.h"

#include <array>

#include "base/status.h"

namespace heddle::sim {
namespace {

constexpr std::array<std::string_view, static_cast<size_t>(Violation::kCount)> kNames = {
    "use after free",       "buffer recycled in flight", "command list dropped in flight",
    "double commit",        "submit from two threads",   "missing dependency between queues",
    "arena used by two",    "point awaited too early",   "staging read too early",
    "work after a failure", "view against the binding"};

}  // namespace

std::string_view name(Violation what) { return kNames[static_cast<size_t>(what)]; }

std::string to_string(const Found& found) { return text(name(found.what), ": ", found.detail); }

}  // namespace heddle::sim
