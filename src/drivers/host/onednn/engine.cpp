#include "drivers/host/onednn/engine.h"

#include <memory>
#include <utility>

#include "drivers/host/onednn/row_bits.h"

namespace heddle::host {

Status onednn_status(dnnl_status_t status, std::string_view what) {
  switch (status) {
    case dnnl_success:
      return {};
    case dnnl_unimplemented:
      return Status::unsupported(what, ": oneDNN has no implementation for this processor");
    case dnnl_out_of_memory:
      return Status::exhausted(what, ": there is no memory left");
    default:
      return Status::internal(what, ": oneDNN failed with status ", static_cast<int>(status));
  }
}

bool Engine::multiplies_bf16() {
  const auto isa = static_cast<unsigned>(dnnl::get_effective_cpu_isa());
  const auto wanted = static_cast<unsigned>(dnnl::cpu_isa::avx512_core_bf16);
  return (isa & wanted) == wanted;
}

Result<Ref<const Engine>> make_engine(bool bf16, bool exact, Ref<ProductTuning> tuning, int runs_at_once) {
  if (bf16 && !Engine::multiplies_bf16()) {
    return Status::unsupported(
        "precision 'bf16' needs a processor with AVX512-BF16 or AMX, which this one is not; use 'f32'");
  }
  HEDDLE_TRY_ASSIGN(const auto made, caught("making the engine", [&] {
                      // oneDNN keeps 1024 primitives of its own accord, whatever the budget for executables
                      // is: with ragged shapes that was half of the process. So many serve the equal layers
                      // of a model that is being compiled.
                      dnnl::set_primitive_cache_capacity(kCachedPrimitives);
                      return std::make_shared<Engine>(dnnl::engine(dnnl::engine::kind::cpu, 0), bf16, exact,
                                                      std::move(tuning), nullptr, runs_at_once);
                    }));
  if (!exact) return Ref<const Engine>(made);
  HEDDLE_TRY_ASSIGN(const bool mixes, mixes_rows(*made));
  if (mixes) made->row_bits = std::make_shared<RowBits>();
  return Ref<const Engine>(made);
}

}  // namespace heddle::host
