#include "batch/calls/looking.h"

namespace heddle::batch {

namespace {

thread_local Looker own;

}  // namespace

Looker& Looker::of_this_thread() { return own; }

}  // namespace heddle::batch
