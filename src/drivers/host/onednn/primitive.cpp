#include "drivers/host/onednn/primitive.h"

#include "base/seam.h"

namespace heddle::host {

struct Primitive::Set {
  dnnl::stream stream;
  std::vector<dnnl::memory> memories;
  std::vector<dnnl_exec_arg_t> arguments;
};

Result<Ref<const Primitive>> Primitive::make(const Engine& engine, const dnnl::primitive& primitive,
                                             const dnnl::memory::desc& scratchpad,
                                             std::vector<Argument> arguments, std::string implementation) {
  const uint64_t scratch = scratchpad.get_size();
  if (scratch > 0) arguments.push_back({DNNL_ARG_SCRATCHPAD, scratchpad});
  return Ref<const Primitive>(std::make_shared<Primitive>(engine, primitive, std::move(arguments), scratch,
                                                          std::move(implementation)));
}

Primitive::~Primitive() {
  while (take() != nullptr) {
  }
}

size_t Primitive::begin_of_this_thread() {
  constexpr uint32_t kLine = 64 / sizeof(void*);
  if (seam::simulated()) return 1;  // equal seeds, equal looks
  if (begin_ == 0) [[unlikely]]
    begin_ = threads_.add_relaxed(1) * kLine + 1;
  return begin_;
}

template <class Look>
void Primitive::look_around(Look look) const {
  const size_t most = kept_.size() - 1, begin = begin_of_this_thread() - 1;
  for (size_t i = 0; i <= most; ++i) {
    if (look(kept_[(begin + i) & most])) return;
  }
}

std::unique_ptr<Primitive::Set> Primitive::take() const {
  Set* found = nullptr;
  look_around([&](Atomic<Set*>& kept) {
    if (kept.load_relaxed() != nullptr) found = kept.exchange_acq_rel(nullptr);
    return found != nullptr;
  });
  return std::unique_ptr<Set>(found);
}

void Primitive::give(std::unique_ptr<Set> set) const {
  look_around([&](Atomic<Set*>& kept) {
    Set* empty = nullptr;
    if (kept.load_relaxed() != nullptr || !kept.cas_strong_acq_rel(empty, set.get())) return false;
    static_cast<void>(set.release());
    return true;
  });
}

Result<std::unique_ptr<Primitive::Set>> Primitive::make_set() const {
  return caught("preparing a primitive's operands", [&] {
    auto set = std::make_unique<Set>(Set{dnnl::stream(engine_), {}, {}});
    for (const Argument& argument : arguments_) {
      set->memories.emplace_back(argument.desc, engine_, static_cast<void*>(nullptr));
      set->arguments.push_back({argument.name, set->memories.back().get()});
    }
    return set;
  });
}

Status Primitive::run(std::span<const void* const> addresses) const {
  std::unique_ptr<Set> set = take();
  if (set == nullptr) {
    HEDDLE_TRY_ASSIGN(set, make_set());
  }
  for (size_t i = 0; i < arguments_.size(); ++i) {
    const dnnl_status_t status =
        dnnl_memory_set_data_handle(set->arguments[i].memory, const_cast<void*>(addresses[i]));
    if (status != dnnl_success) return onednn_status(status, "binding an operand");
  }
  const dnnl_status_t status = dnnl_primitive_execute(
      primitive_.get(), set->stream.get(), static_cast<int>(set->arguments.size()), set->arguments.data());
  give(std::move(set));
  return onednn_status(status, "running a primitive");
}

}  // namespace heddle::host
