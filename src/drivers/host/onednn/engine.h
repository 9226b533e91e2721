// engine.h: the one place where oneDNN's objects are made, and where its exceptions end.
//
//   What       Engine: oneDNN's handle for this processor, and what was measured on it. caught(): runs code
//              that may throw dnnl::error, and returns a Status instead.
//   Threads    The handle may be used by any thread.
//   Errors     oneDNN's own: unimplemented -> unsupported, out_of_memory -> exhausted, the rest -> internal.
#pragma once

#include <dnnl.hpp>
#include <new>
#include <string_view>
#include <type_traits>

#include "base/status.h"
#include "drivers/host/onednn/weight_store.h"

namespace heddle::host {

// In oneDNN's cache, unless the user's environment says how many.
inline constexpr int kCachedPrimitives = 64;

class ProductTuning;  // product_tuning.h
class RowBits;        // row_bits.h

struct Engine {
  dnnl::engine cpu;
  bool bf16;           // products take bf16 operands and add up in f32 (narrow_values.h says which)
  bool exact = false;  // device::LoadOptions: a row's bits do not depend on the batch
  Ref<ProductTuning> tuning = nullptr;  // the device's; null: products are cut by rule
  // Of exact models, where a row's bits depend on how many rows oneDNN computes at once; null: they do not.
  Ref<RowBits> row_bits = nullptr;
  int runs_at_once = 16;  // threads that may run one primitive at the same time without making what it keeps

  static bool multiplies_bf16();  // the processor does, faster than f32

  dnnl::primitive_attr attributes() const {  // what every primitive starts with
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    return attr;
  }
};

Status onednn_status(dnnl_status_t status, std::string_view what);

template <class Make>
Result<std::invoke_result_t<Make>> caught(std::string_view what, Make&& make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    return onednn_status(error.status, what);
  } catch (const std::bad_alloc&) {
    return onednn_status(dnnl_out_of_memory, what);
  }
}

}  // namespace heddle::host
