// placement.h: in which memory every value of a specialised graph lies during a run.
//
//   What       A Place by value id, the copies that remain at the end, and the arena's size. Operators that
//              only rename a shape (Reshape and its like) share their input's place.
//   Invariant  Two values that are alive at once never overlap, unless one is a renaming of the other. A
//              value that is an output of the graph is written in place; one that is an output twice, an
//              input or a constant is copied.
//   Threads    Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "ir/graph.h"

namespace heddle::plan {

struct Place {
  enum class Kind : uint8_t { kNone, kArena, kInput, kOutput, kConstant };
  Kind kind = Kind::kNone;  // kNone: no run touches it
  uint64_t offset = 0;      // kArena: bytes; kInput, kOutput: index
};

struct Placement {
  std::vector<Place> places;      // by value id
  std::vector<ir::ValueId> root;  // by value id: the value whose bytes it names, itself for most
  struct Copy {
    ir::ValueId from;
    size_t output;  // of the graph
  };
  std::vector<Copy> copies;  // after the last node
  uint64_t arena_bytes = 0;
  uint64_t arena_bytes_apart = 0;  // if no byte were used twice
};

bool renames(const ir::Node& node);  // makes no bytes of its own

// By value id, the value whose bytes each one names.
std::vector<ir::ValueId> roots_of(const ir::Graph& graph);

// `bytes_of`: what a value takes in the arena.
Placement place_values(const ir::Graph& graph, const std::function<uint64_t(ir::ValueId)>& bytes_of);

}  // namespace heddle::plan
