// channel_layout.h: which values lie with their channels last, and how the nodes between them are lowered.
//
//   What       Convolutions and pools want [N, spatial.., C]. A value lies so when its maker and all its
//              readers can take it so: windows (convolutions, pools), and followers, which work in any order
//              of axes once they are told it (element-wise nodes, Concat, Split, Resize). So a chain of
//              windows with followers between turns at its ends only.
//   Invariant  A follower's values lie alike: all with channels last, or none, but for those whose bytes are
//              the same in both orders (one channel, or one place).
//   Threads    Pure.
#pragma once

#include <vector>

#include "drivers/host/lowering.h"
#include "drivers/host/step.h"
#include "ir/graph.h"

namespace heddle::host {

void choose_layouts(const ir::Graph& graph, std::vector<Operand>& operands);

// What a follower is lowered with: a node and operands whose axes are in the order of the bytes.
struct Follower {
  ir::Node node;
  std::vector<Operand> inputs;
  std::vector<Operand> outputs;
};
bool follows_channels_last(const Lowering& lowering);
Follower in_order_of_bytes(const Lowering& lowering);

// An axis of [N, C, spatial..] among [N, spatial.., C].
size_t turned_axis(size_t axis, size_t rank);

}  // namespace heddle::host
