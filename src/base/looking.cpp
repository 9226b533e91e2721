#include "base/looking.h"

namespace heddle {

namespace {

thread_local Looker own;

}  // namespace

Looker& Looker::of_this_thread() { return own; }

}  // namespace heddle
