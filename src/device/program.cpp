#include "device/program.h"

namespace heddle::device {

Result<ProgramPlan> Module::plan(std::span<const ir::Extents>, NoLocksHeld) const {
  return Status::unsupported("this device's driver does not say what a program would do");
}

}  // namespace heddle::device
