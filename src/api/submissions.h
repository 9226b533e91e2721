// submissions.h: what outlives a Model: a thread that ended it from inside an answer, and answers at exit().
//
//   What       A leader (batch/calls/leaders.h) whose answer lets the last handle of its model go cannot join
//              itself. It is kept here and joined by the next model that is made, or at exit().
//   Threads    Any.
//   Blocks     end_all(), until its deadline.
#pragma once

#include "batch/calls/coalescer.h"

namespace heddle::submissions {

// For the model's life: end_all() answers what it was given.
Ref<batch::Coalescer> note(Ref<batch::Coalescer> calls);
void keep(Ref<batch::Leader> leader);
// At exit: nothing more is taken, and all that was has its answer, or the deadline has passed.
void end_all(Deadline deadline);

}  // namespace heddle::submissions
