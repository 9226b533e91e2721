// model_making.h: a Model from a graph of any origin.
#pragma once

#include <heddle/heddle.h>

#include "ir/graph.h"

namespace heddle {

Model make_model(ir::Graph graph, const ModelOptions& options);

}  // namespace heddle
