#include "onnx/names.h"

#include <cstdint>

namespace heddle::onnx {
namespace {

// Bytes of the UTF-8 character that begins here, 0 when there is none or it is a control character.
size_t character_size(std::string_view s) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(s[i]); };
  const uint8_t first = byte(0);
  if (first < 0x80) return first >= 0x20 && first != 0x7f ? 1 : 0;
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || s.size() < size) return 0;
  uint32_t point = first & (0xffu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3f);
  }
  static constexpr uint32_t kLeast[] = {0, 0, 0xa0, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point <= 0xdfff;
  return point >= kLeast[size] && point <= 0x10ffff && !surrogate ? size : 0;
}

}  // namespace

bool is_clean(std::string_view name) {
  while (!name.empty()) {
    const size_t size = character_size(name);
    if (size == 0) return false;
    name.remove_prefix(size);
  }
  return true;
}

std::string printable(std::string_view name) {
  static constexpr char kHex[] = "0123456789abcdef";
  std::string out;
  while (!name.empty()) {
    if (out.size() >= kNameBytes) return out + "...";
    const size_t size = character_size(name);
    if (size > 0) {
      out += name.substr(0, size);
      name.remove_prefix(size);
    } else {
      const auto byte = static_cast<uint8_t>(name.front());
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
      name.remove_prefix(1);
    }
  }
  return out;
}

std::string in_quotes(std::string_view name) { return "'" + printable(name) + "'"; }

}  // namespace heddle::onnx
