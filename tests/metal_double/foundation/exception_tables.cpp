#include "exception_tables.h"

#include <cstring>

namespace heddle::foundation {
namespace {

enum Encoding : uint8_t {  // DWARF's
  kAbsolute = 0x00,
  kUleb = 0x01,
  kUnsigned2 = 0x02,
  kUnsigned4 = 0x03,
  kUnsigned8 = 0x04,
  kSleb = 0x09,
  kSigned2 = 0x0a,
  kSigned4 = 0x0b,
  kSigned8 = 0x0c,
  kFormat = 0x0f,
  kPcRelative = 0x10,
  kRelativity = 0x70,
  kIndirect = 0x80,
  kOmitted = 0xff,
};

uint64_t read_uleb(const uint8_t*& at) {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const uint8_t byte = *at++;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (!(byte & 0x80)) return value;
  }
}

int64_t read_sleb(const uint8_t*& at) {
  uint64_t value = 0;
  for (int shift = 0;;) {
    const uint8_t byte = *at++;
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte & 0x80) continue;
    if (shift < 64 && (byte & 0x40)) value |= ~uint64_t{0} << shift;
    return static_cast<int64_t>(value);
  }
}

template <class T>
uintptr_t read(const uint8_t*& at) {
  T value;
  memcpy(&value, at, sizeof value);
  at += sizeof value;
  return static_cast<uintptr_t>(static_cast<intptr_t>(value));
}

uintptr_t read_encoded(uint8_t encoding, const uint8_t*& at) {
  if (encoding == kOmitted) return 0;
  const auto place = reinterpret_cast<uintptr_t>(at);
  uintptr_t value = 0;
  switch (encoding & kFormat) {
    case kUleb:
      value = read_uleb(at);
      break;
    case kSleb:
      value = static_cast<uintptr_t>(read_sleb(at));
      break;
    case kUnsigned2:
      value = read<uint16_t>(at);
      break;
    case kSigned2:
      value = read<int16_t>(at);
      break;
    case kUnsigned4:
      value = read<uint32_t>(at);
      break;
    case kSigned4:
      value = read<int32_t>(at);
      break;
    default:
      value = read<uint64_t>(at);
  }
  if (!value) return 0;
  if ((encoding & kRelativity) == kPcRelative) value += place;
  if (encoding & kIndirect) memcpy(&value, reinterpret_cast<const void*>(value), sizeof value);
  return value;
}

ptrdiff_t entry_size(uint8_t encoding) {
  switch (encoding & kFormat) {
    case kUnsigned2:
    case kSigned2:
      return 2;
    case kUnsigned4:
    case kSigned4:
      return 4;
    default:
      return 8;
  }
}

}  // namespace

ExceptionTables::ExceptionTables(_Unwind_Context* context)
    : begin_(static_cast<const uint8_t*>(_Unwind_GetLanguageSpecificData(context))) {
  if (!begin_) return;
  const uint8_t* at = begin_;
  uintptr_t pads = _Unwind_GetRegionStart(context);
  const uint8_t pad_encoding = *at++;
  if (pad_encoding != kOmitted) pads = read_encoded(pad_encoding, at);
  type_encoding_ = *at++;
  if (type_encoding_ != kOmitted) {
    const uint64_t offset = read_uleb(at);
    type_base_ = at + offset;
  }
  const uint8_t site_encoding = *at++;
  const uint64_t size = read_uleb(at);
  call_sites_ = at;
  find_call_site(context, at + size, site_encoding, pads);
}

void ExceptionTables::find_call_site(_Unwind_Context* context, const uint8_t* end, uint8_t encoding,
                                     uintptr_t pads) {
  int before_instruction = 0;
  uintptr_t here = _Unwind_GetIPInfo(context, &before_instruction);
  if (!before_instruction) --here;
  const uintptr_t start = _Unwind_GetRegionStart(context);
  for (const uint8_t* at = call_sites_; at < end;) {
    const uintptr_t first = read_encoded(encoding, at);
    const uintptr_t length = read_encoded(encoding, at);
    const uintptr_t pad = read_encoded(encoding, at);
    const uint64_t action = read_uleb(at);
    if (here < start + first) return;
    if (here >= start + first + length) continue;
    if (pad) landing_pad_ = pads + pad;
    if (pad && action) first_action_ = end + action - 1;
    return;
  }
}

Action ExceptionTables::action_at(const uint8_t* at) {
  Action action;
  action.filter = read_sleb(at);
  const uint8_t* const from = at;
  const int64_t distance = read_sleb(at);
  if (distance) action.next = from + distance;
  return action;
}

uintptr_t ExceptionTables::type(int64_t filter) const {
  const uint8_t* at = type_base_ - filter * entry_size(type_encoding_);
  return read_encoded(type_encoding_, at);
}

}  // namespace heddle::foundation
