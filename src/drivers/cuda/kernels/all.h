// all.h: every struct that list.inc names.
#pragma once

#include "drivers/cuda/kernels/attention.h"           // IWYU pragma: export
#include "drivers/cuda/kernels/chain.h"               // IWYU pragma: export
#include "drivers/cuda/kernels/convolution.h"         // IWYU pragma: export
#include "drivers/cuda/kernels/convolution_direct.h"  // IWYU pragma: export
#include "drivers/cuda/kernels/convolution_tile.h"    // IWYU pragma: export
#include "drivers/cuda/kernels/few_rows.h"            // IWYU pragma: export
#include "drivers/cuda/kernels/held_rows.h"           // IWYU pragma: export
#include "drivers/cuda/kernels/index.h"               // IWYU pragma: export
#include "drivers/cuda/kernels/linear_attention.h"    // IWYU pragma: export
#include "drivers/cuda/kernels/map.h"                 // IWYU pragma: export
#include "drivers/cuda/kernels/matrix.h"              // IWYU pragma: export
#include "drivers/cuda/kernels/order.h"               // IWYU pragma: export
#include "drivers/cuda/kernels/pause.h"               // IWYU pragma: export
#include "drivers/cuda/kernels/pool.h"                // IWYU pragma: export
#include "drivers/cuda/kernels/product.h"             // IWYU pragma: export
#include "drivers/cuda/kernels/recurrent.h"           // IWYU pragma: export
#include "drivers/cuda/kernels/reduce.h"              // IWYU pragma: export
#include "drivers/cuda/kernels/rows.h"                // IWYU pragma: export
#include "drivers/cuda/kernels/sample.h"              // IWYU pragma: export
#include "drivers/cuda/kernels/scatter.h"             // IWYU pragma: export
#include "drivers/cuda/kernels/tell.h"                // IWYU pragma: export
#include "drivers/cuda/kernels/tensor_attention.h"    // IWYU pragma: export
#include "drivers/cuda/kernels/tensor_product.h"      // IWYU pragma: export
#include "drivers/cuda/kernels/tiled_product.h"       // IWYU pragma: export
#include "drivers/cuda/kernels/turn.h"                // IWYU pragma: export
