#include "drivers/host/onednn/window_layout.h"

#include <algorithm>
#include <array>

namespace heddle::host {
namespace {

using Tag = dnnl::memory::format_tag;

// For one, two and three spatial axes.
constexpr std::array<std::array<Tag, 3>, 8> kTags = {{{Tag::Acb64a, Tag::Acdb64a, Tag::Acdeb64a},
                                                      {Tag::Acb48a, Tag::Acdb48a, Tag::Acdeb48a},
                                                      {Tag::Acb32a, Tag::Acdb32a, Tag::Acdeb32a},
                                                      {Tag::Acb16a, Tag::Acdb16a, Tag::Acdeb16a},
                                                      {Tag::Acb24a, Tag::Acdb24a, Tag::Acdeb24a},
                                                      {Tag::Acb8a, Tag::Acdb8a, Tag::Acdeb8a},
                                                      {Tag::ABc16b16a, Tag::ABcd16b16a, Tag::ABcde16b16a},
                                                      {Tag::ABc8b8a, Tag::ABcd8b8a, Tag::ABcde8b8a}}};

// A weight that does not lie in blocks is cut at multiples of this.
constexpr int64_t kPlainBlock = 16;

}  // namespace

WindowLayout::WindowLayout(const dnnl::memory::desc& whole, bool grouped) : whole_(whole) {
  const Dims dims = whole.get_dims(), blocks = whole.get_inner_blks(), axes = whole.get_inner_idxs();
  if (grouped || dims.size() < 3 || dims.size() > 5) return;
  channels_ = dims[0];
  int64_t together = 1;
  for (size_t i = 0; i < blocks.size(); ++i) together *= axes[i] == 0 ? blocks[i] : 1;
  for (const auto& tags : kTags) {
    const Tag tag = tags[dims.size() - 3];
    if (!tag_ && whole == dnnl::memory::desc(dims, whole.get_data_type(), tag)) tag_ = tag;
  }
  if (!tag_ && channels_ % together != 0) return;
  block_ = together == 1 ? kPlainBlock : together;
  const auto element = static_cast<int64_t>(dnnl::memory::data_type_size(whole.get_data_type()));
  block_bytes_ = whole.get_strides()[0] * (block_ / together) * element;
}

dnnl::memory::desc WindowLayout::panel(int64_t channels) const {
  if (channels == channels_ || block_ == 0) return whole_;
  Dims dims = whole_.get_dims();
  dims[0] = channels;
  if (tag_) return {dims, whole_.get_data_type(), *tag_};
  return whole_.submemory_desc(dims, Dims(dims.size(), 0));
}

int64_t WindowLayout::bytes_to(int64_t channel) const {
  return block_ == 0 ? 0 : channel / block_ * block_bytes_;
}

std::vector<dnnl::memory::desc> known_layouts(const Dims& weight) {
  std::vector<dnnl::memory::desc> layouts;
  for (const auto& tags : kTags)
    layouts.emplace_back(weight, dnnl::memory::data_type::f32, tags[weight.size() - 3]);
  return layouts;
}

}  // namespace heddle::host
