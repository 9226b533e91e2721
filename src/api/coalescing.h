// coalescing.h: whether the calls of a model are joined into batches, and how that is said.
#pragma once

#include "api/internals.h"

namespace heddle {

// Gives the model its coalescer, or the reason why it has none. Throws invalid when `options` names a ragged
// axis that cannot be one.
void set_up_coalescing(Internals::ModelRep& model, const ModelOptions& options);

}  // namespace heddle
