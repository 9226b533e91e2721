// channels_last.h: which values of a program lie with their channels last, [N, plane.., C].
//
//   What       The kernels of cuDNN that compute 16-bit convolutions on tensor cores read and write channels
//              last. Given [N, C, plane..], it turns planes before and after each convolution. So bf16 and
//              f16 values between such convolutions lie channels last, also where pools and operators that
//              take any order are in between.
//   Turns      A Conv or pool computes in one order, and most other operators know [N, C, plane..] only. An
//              operand in the other order is copied for such a node (Emitter::node): any choice is correct.
//   Rule       Nodes that such values connect are a region. It is chosen if fewer elements are turned at its
//              edges, by copies and by operators that read one order and write the other, than cuDNN would
//              turn inside.
//   Entrance   cuDNN takes a filter that lies [M, plane.., C] only with inputs and outputs that lie so. So
//              the first convolution's input is turned, too, however few channels it has.
//   Threads    Pure.
#pragma once

#include <span>
#include <vector>

#include "ir/graph.h"

namespace heddle::cuda {

struct ChannelsLast {
  std::vector<char> values;  // by value id: lies channels last; only what a run keeps in the arena
  std::vector<char> nodes;   // by index: a Conv or pool that computes channels last
};

// `convolves`: by index of the specialised graph's nodes, those that cuDNN computes channels last.
ChannelsLast choose_channels_last(const ir::Graph& graph, std::span<const char> convolves);

// What a node does with any order of its operands: its inputs are read, its outputs written as they lie.
struct AnyOrder {
  bool reads = false, writes = false;
};
AnyOrder any_order(const ir::Node& node);

// The inputs of a Conv or pool that lie in the order in which it computes.
std::span<const size_t> planes_of(const ir::Node& node);

inline constexpr const char* kChannelsLast = "channels last";  // for people

// Whether the bytes are the same in both orders: there is one channel, or one place.
bool same_in_both_orders(const ir::Extents& extents);

}  // namespace heddle::cuda
