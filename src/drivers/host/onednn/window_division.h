// window_division.h: how a convolution is cut, and which of oneDNN's primitives compute the pieces.
//
//   What       A WindowDivider tries cuts, the cheapest by estimate first, with the layouts of the weight
//              that oneDNN would choose for the whole and for the pieces, and with layouts of smaller blocks
//              of channels. It prefers a division in which every piece keeps the implementation that it has
//              alone, then one in which none has the reference.
//   Invariant  Where a kernel takes the whole operation, no piece runs in the reference.
//   Errors     Those of the callbacks.
//   Threads    Any.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "drivers/host/onednn/division.h"
#include "drivers/host/onednn/engine.h"
#include "drivers/host/onednn/window_layout.h"
#include "drivers/host/onednn/window_pieces.h"

namespace heddle::host {

struct WindowDivision {
  WindowCut cut;
  std::vector<WindowPiece> pieces;
  std::vector<dnnl::primitive_desc> kinds;
  WindowLayout layout;
  int rank = 0;  // 2: every piece as alone; 1: none in the reference
};

struct WindowProblem {
  WindowPiece whole;
  WindowWork work;
  Dims weight;  // [group, M / group, C / group, k..], without the first when there are no groups
  bool grouped;
  dnnl::memory::data_type type;  // of the weight
  bool constant;                 // likewise: it may lie in any layout, in two if need be
  int width;
};

// `Pieces`: pieces_of(cut, block) -> std::vector<WindowPiece>, empty where there are none such. `Describe`:
// describe(piece, weight) -> Result<dnnl::primitive_desc>.
template <class Pieces, class Describe>
class WindowDivider {
 public:
  WindowDivider(const WindowProblem& problem, Pieces pieces_of, Describe describe)
      : p_(problem), pieces_of_(std::move(pieces_of)), describe_(std::move(describe)) {}

  Result<WindowDivision> divide() {
    HEDDLE_TRY_ASSIGN(dnnl::primitive_desc desc, alone(p_.whole));
    HEDDLE_TRY_ASSIGN(WindowLayout layout, layout_of(desc.weights_desc()));
    const bool fast = !is_reference(desc.impl_info_str());
    WindowDivision whole{{}, {p_.whole}, {std::move(desc)}, layout, fast ? 2 : 0};
    if (p_.width == 1) return whole;
    layouts_ = {layout};
    if (p_.constant && !p_.grouped && p_.type == dnnl::memory::data_type::f32) {
      HEDDLE_TRY_ASSIGN(const auto known, caught("naming layouts", [&] { return known_layouts(p_.weight); }));
      for (const dnnl::memory::desc& each : known) HEDDLE_TRY(add(each));
    }
    HEDDLE_TRY_ASSIGN(std::optional<WindowDivision> best, best_of(attempts(), fast));
    return best ? *std::move(best) : std::move(whole);
  }

 private:
  static constexpr size_t kCuts = 4;  // of each layout
  // By so much less is worth an implementation that is not the one that a piece would have alone.
  static constexpr double kOther = 1.15;
  // And so much less a layout that is not the whole's, which then has a packed weight of its own.
  static constexpr double kOtherLayout = 1.08;
  // For starting the other cores: some microseconds.
  static constexpr double kOfFork = 300'000;

  struct Attempt {
    size_t layout;
    WindowCut cut;
    double cost;
  };

  Result<WindowLayout> layout_of(const dnnl::memory::desc& whole) const {
    return caught("looking at a layout", [&] { return WindowLayout(whole, p_.grouped); });
  }
  Status add(const dnnl::memory::desc& layout) {
    for (const WindowLayout& known : layouts_) {
      if (known.whole() == layout) return {};
    }
    HEDDLE_TRY_ASSIGN(WindowLayout made, layout_of(layout));
    layouts_.push_back(std::move(made));
    return {};
  }

  // With the weight as oneDNN would have it.
  Result<dnnl::primitive_desc> alone(const WindowPiece& piece) {
    for (const auto& [known, desc] : alone_) {
      if (known.is_like(piece)) return desc;
    }
    HEDDLE_TRY_ASSIGN(const dnnl::memory::desc any, caught("describing a weight", [&] {
                        Dims dims = p_.weight;
                        if (!p_.grouped) dims[0] = piece.y[1];
                        return dnnl::memory::desc(dims, p_.type, dnnl::memory::format_tag::any);
                      }));
    HEDDLE_TRY_ASSIGN(dnnl::primitive_desc desc, describe_(piece, any));
    alone_.emplace_back(piece, desc);
    return desc;
  }

  std::vector<Attempt> attempts() const {
    const double most = cost_of(p_.work, {}, 0, 1) - kOfFork;
    std::vector<Attempt> all;
    const auto add_cuts = [&](size_t layout, int64_t block) {
      for (const WindowCut& cut : cuts_of(p_.work, block, p_.width, kCuts)) {
        const double cost = cost_of(p_.work, cut, block, p_.width) * (layout == 0 ? 1 : kOtherLayout);
        if (cut.pieces() > 1 && cost < most && (block == 0 || cut.panels > 1))
          all.push_back({layout, cut, cost});
      }
    };
    add_cuts(0, 0);  // of all channels
    for (size_t i = 0; i < layouts_.size(); ++i) {
      if (layouts_[i].block() > 0) add_cuts(i, layouts_[i].block());
    }
    std::ranges::stable_sort(all, {}, &Attempt::cost);
    return all;
  }

  // None: the whole is faster.
  Result<std::optional<WindowDivision>> best_of(const std::vector<Attempt>& attempts, bool whole_is_fast) {
    std::optional<WindowDivision> best;
    double best_cost = 0;
    std::vector<bool> refused(layouts_.size(), false);  // of panels, whatever the cut
    for (const Attempt& attempt : attempts) {
      if (best && attempt.cost >= best_cost) break;
      if (attempt.cut.panels > 1 && refused[attempt.layout]) continue;
      const WindowLayout layout = layouts_[attempt.layout];
      std::vector<WindowPiece> pieces = pieces_of_(attempt.cut, layout.block());
      if (pieces.empty()) continue;
      HEDDLE_TRY_ASSIGN(std::optional<WindowDivision> tried, try_layouts(pieces, attempt.cut, layout));
      if (!tried || (tried->rank == 0 && whole_is_fast)) {
        if (attempt.cut.panels > 1) refused[attempt.layout] = true;
        continue;
      }
      const double cost = attempt.cost * (tried->rank == 2 ? 1 : kOther);
      if (best && best_cost <= cost) continue;
      best_cost = cost;
      best = std::move(tried);
    }
    return best;
  }

  // With one layout, or, where all channels are computed at once, with those that the pieces have alone.
  Result<std::optional<WindowDivision>> try_layouts(const std::vector<WindowPiece>& pieces,
                                                    const WindowCut& cut, const WindowLayout& layout) {
    HEDDLE_TRY_ASSIGN(std::optional<WindowDivision> best, describe_pieces(pieces, cut, layout));
    if (cut.panels > 1 || (best && best->rank == 2)) return best;
    std::vector<WindowPiece> own = pieces;
    for (const WindowPiece* kind : find_kinds(own)) {
      HEDDLE_TRY_ASSIGN(const dnnl::primitive_desc desc, alone(*kind));
      HEDDLE_TRY_ASSIGN(const WindowLayout wish, layout_of(desc.weights_desc()));
      HEDDLE_TRY_ASSIGN(std::optional<WindowDivision> tried, describe_pieces(pieces, cut, wish));
      if (tried && (!best || tried->rank > best->rank)) best = std::move(tried);
      if (best && best->rank == 2) break;
    }
    return best;
  }

  // None: oneDNN does not take a piece with such a weight.
  Result<std::optional<WindowDivision>> describe_pieces(std::vector<WindowPiece> pieces, const WindowCut& cut,
                                                        const WindowLayout& layout) {
    WindowDivision made{cut, {}, {}, layout, 2};
    for (const WindowPiece* kind : find_kinds(pieces)) {
      const auto weight = caught("describing a part of a weight", [&] { return layout.panel(kind->y[1]); });
      if (!weight.ok()) return std::optional<WindowDivision>();
      Result<dnnl::primitive_desc> desc = describe_(*kind, *weight);
      if (desc.status().code() == Code::unsupported) return std::optional<WindowDivision>();
      if (!desc.ok()) return desc.status();
      HEDDLE_TRY_ASSIGN(const dnnl::primitive_desc as_alone, alone(*kind));
      const std::string_view name = desc->impl_info_str();
      const bool reference = is_reference(name);
      if (reference || name != as_alone.impl_info_str()) made.rank = std::min(made.rank, reference ? 0 : 1);
      made.kinds.push_back(*std::move(desc));
    }
    made.pieces = std::move(pieces);
    return std::optional<WindowDivision>(std::move(made));
  }

  const WindowProblem& p_;
  Pieces pieces_of_;
  Describe describe_;
  std::vector<WindowLayout> layouts_;  // the first as the kernel for the whole has it
  std::vector<std::pair<WindowPiece, dnnl::primitive_desc>> alone_;  // each kind asked for once
};

}  // namespace heddle::host
