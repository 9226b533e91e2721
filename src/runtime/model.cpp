#include "runtime/model.h"

#include "base/fork.h"
#include "runtime/registry.h"

namespace heddle::runtime {

namespace {

std::string names_of(const std::vector<device::Signature>& all) {
  std::string names;
  for (const device::Signature& each : all) names += text(names.empty() ? "'" : ", '", each.name, "'");
  return names;
}

Status check_one(const std::string& model, const device::Signature& expected, const ir::Extents& given) {
  bool fits = given.rank() == expected.type.rank();
  for (size_t axis = 0; fits && axis < given.rank(); ++axis) {
    const ir::Dim& dim = expected.type.shape[axis];
    fits = !dim.is_static() || dim.value() == given[axis];
  }
  if (!fits) {
    return Status::invalid("input '", expected.name, "' of model '", model, "' has shape ", given,
                           "; it must be ", ir::to_string(expected.type.shape));
  }
  const auto elements = ir::checked_elements(given.span(), expected.type.dtype);
  if (elements.ok()) return {};
  return elements.status().with_context(text("input '", expected.name, "' of model '", model, "'"));
}

}  // namespace

Model::Model(Ref<const device::Module> module, Ref<const ModelSource> source, ModelId id,
             Ref<Governor> governor, Ref<Executables> executables)
    : module_(std::move(module)),
      source_(std::move(source)),
      id_(id),
      governor_(std::move(governor)),
      executables_(std::move(executables)),
      generation_(fork_generation()) {}

Model::~Model() {
  if (fork_generation() != generation_) return;
  executables_->forget(id_);
  governor_->forget(id_);
}

Status Model::closed_status() const { return Status::unavailable("model '", name(), "' is closed"); }

Status Model::close(Deadline deadline) {
  if (fork_generation() != generation_) return forked();
  refuse();
  Status over = gate_.wait_empty(deadline);
  if (over.ok()) over = governor_->await_no_lone(id_, deadline);
  if (!over.ok()) return over.with_context(text("model '", name(), "' is closed to new calls"));
  executables_->forget(id_);
  return {};
}

void Model::refuse() {
  gate_.close();
  governor_->refuse_parked(id_, closed_status());
}

Status Model::check(std::span<const device::View> given) const {
  const auto& expected = inputs();
  if (given.size() != expected.size()) [[unlikely]] {
    return Status::invalid("model '", name(), "' got ", given.size(), " inputs; it takes ", expected.size(),
                           ": ", names_of(expected));
  }
  for (size_t i = 0; i < given.size(); ++i) {
    if (given[i].dtype != expected[i].type.dtype) [[unlikely]] {
      return Status::invalid("input '", expected[i].name, "' of model '", name(), "' is ", given[i].dtype,
                             "; it must be ", expected[i].type.dtype);
    }
  }
  for (size_t i = 0; i < given.size(); ++i) HEDDLE_TRY(check_one(name(), expected[i], given[i].extents));
  return {};
}

Status Model::check_extents(std::span<const ir::Extents> given) const {
  if (given.size() != inputs().size()) {
    return Status::invalid("model '", name(), "' got ", given.size(), " shapes; it takes ", inputs().size(),
                           ": ", names_of(inputs()));
  }
  for (size_t i = 0; i < given.size(); ++i) HEDDLE_TRY(check_one(name(), inputs()[i], given[i]));
  return {};
}

}  // namespace heddle::runtime
