// agreement_fixture.h: one graph on every way that computes it.
//
//   What       The host driver against the references; rows that ran as one batch against the same alone,
//              with their bits where the model is exact; the simulated device against the host, bit for bit;
//              and with factors rounded to bf16 within what that may do.
//   Threads    One thread; devices have their own.
#pragma once

#include <heddle/heddle.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "random_graph_fixture.h"

namespace heddle::differential {

struct Counts {
  uint64_t graphs = 0, nodes = 0, refused = 0, together = 0, on_sim = 0, in_bf16 = 0;
};

class Agreement {
 public:
  // sim: whether graphs run there, too.
  explicit Agreement(bool sim);

  // Empty, or what differs, on which way. Choices: of options, and of other callers' rows.
  std::string check(const RandomGraph& drawn, Choices& choices);
  const Counts& counts() const { return counts_; }
  bool has_bf16() const { return bf16_; }  // whether the processor computes products so
  const std::map<std::string, uint64_t>& refusals() const { return refusals_; }  // in words

 private:
  std::string check_host(const RandomGraph& drawn, Choices& choices);
  std::string check_together(const Model& model, const RandomGraph& drawn, bool exact, Choices& choices);
  std::string check_sim(const RandomGraph& drawn, const std::vector<ir::Tensor>& on_host);
  std::string check_bf16(const RandomGraph& drawn);

  Device host_;
  bool bf16_;
  std::optional<Device> sim_;
  Counts counts_;
  std::map<std::string, uint64_t> refusals_;
};

// In words: what a failure prints, beside the seed.
std::string described(const RandomGraph& drawn);

}  // namespace heddle::differential
