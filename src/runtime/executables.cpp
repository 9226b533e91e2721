#include "runtime/executables.h"

#include <algorithm>

#include "base/no_memory.h"

namespace heddle::runtime {

namespace {

class Mixer {
 public:
  explicit Mixer(ModelId model) : hash_(static_cast<uint64_t>(model)) {}
  void add(ir::DType dtype, const ir::Extents& extents) {
    mix(static_cast<uint64_t>(dtype) << 8 | extents.rank());
    for (const int64_t dim : extents) mix(static_cast<uint64_t>(dim));
  }
  size_t value() const { return static_cast<size_t>(hash_ ^ hash_ >> 32); }

 private:
  void mix(uint64_t word) { hash_ = (hash_ ^ word) * 0x9E3779B97F4A7C15ull + (hash_ >> 29); }
  uint64_t hash_;
};

}  // namespace

Executables::Key::Key(const Views& views) : model(views.model) {
  inputs.reserve(views.inputs.size());
  for (const device::View& view : views.inputs) inputs.push_back({view.dtype, view.extents});
}

bool operator==(const Executables::Key& a, const Executables::Views& b) {
  return a.model == b.model && std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(),
                                          [](const ir::ConcreteType& type, const device::View& view) {
                                            return type.dtype == view.dtype && type.extents == view.extents;
                                          });
}

std::string to_string(const Executables::Key& key) {
  std::string types;
  for (const ir::ConcreteType& type : key.inputs)
    types += text(types.empty() ? "" : ", ", type.dtype, type.extents);
  return text("program for model ", static_cast<uint64_t>(key.model), " with inputs ", types);
}

size_t Executables::Hash::operator()(const Key& key) const {
  Mixer mixer(key.model);
  for (const ir::ConcreteType& type : key.inputs) mixer.add(type.dtype, type.extents);
  return mixer.value();
}

size_t Executables::Hash::operator()(const Views& views) const {
  Mixer mixer(views.model);
  for (const device::View& view : views.inputs) mixer.add(view.dtype, view.extents);
  return mixer.value();
}

std::vector<ir::Extents> Executables::extents_of(std::span<const device::View> views) {
  std::vector<ir::Extents> extents;
  extents.reserve(views.size());
  for (const device::View& view : views) extents.push_back(view.extents);
  return extents;
}

Result<Executables::Made> Executables::compile(const device::Module& module,
                                               std::span<const ir::Extents> inputs, uint64_t bytes_max) {
  HEDDLE_TRY_ASSIGN(Ref<const device::Program> program,
                    or_exhausted(text("compiling model '", module.graph().name, "'"),
                                 [&] { return module.compile(inputs, bytes_max, NoLocksHeld{}); }));
  const uint64_t bytes = program->resident_bytes();
  return Made(std::move(program), bytes);
}

Result<Ref<const device::Program>> Executables::find_or_compile(ModelId model, const device::Module& module,
                                                                std::span<const ir::Extents> inputs,
                                                                uint64_t bytes_max, Deadline deadline) {
  std::vector<ir::ConcreteType> types;
  for (size_t i = 0; i < inputs.size(); ++i) types.push_back({module.inputs()[i].type.dtype, inputs[i]});
  bool made = false;
  const auto make = [&] {
    made = true;
    return compile(module, inputs, bytes_max);
  };
  auto program = programs_.get_or_make(Key(model, std::move(types)), make, deadline);
  if (made) note_change();
  return program;
}

void Executables::note_change() {
  changes_.add_seq_cst(1);
  told_();
}

void Executables::forget(ModelId model) {
  programs_.erase_if([model](const Key& key) { return key.model == model; });
  note_change();
}

}  // namespace heddle::runtime
