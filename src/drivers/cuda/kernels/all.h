// all.h: every struct that list.inc names.
#pragma once

#include "drivers/cuda/kernels/index.h"    // IWYU pragma: export
#include "drivers/cuda/kernels/map.h"      // IWYU pragma: export
#include "drivers/cuda/kernels/product.h"  // IWYU pragma: export
#include "drivers/cuda/kernels/reduce.h"   // IWYU pragma: export
#include "drivers/cuda/kernels/rows.h"     // IWYU pragma: export
