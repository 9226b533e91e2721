// batching.h: between the batching types of heddle.h and those of src/batch.
#pragma once

#include <heddle/heddle.h>

#include "batch/requests/request_queue.h"
#include "batch/requests/request_rows.h"

namespace heddle {

batch::Limits to_batch(const BatchLimits& limits);  // throws invalid, naming the limit
batch::QueueOptions to_batch(const BatchLimits& limits, int workers, const Timeout& hang_after,
                             bool replace_hung);
batch::Padding checked(batch::Padding padding);
BatchLimits to_public(const batch::Limits& limits, size_t capacity);
BatchHealth to_public(const batch::QueueHealth& health);
BatchMetrics to_public(const batch::QueueMetrics& metrics);

}  // namespace heddle
