// model.h: a loaded model: the driver's module, a name for the governor and the caches, and a door that can
// be shut.
//
//   States     open -> closed. close() refuses new calls, wakes those that are parked, and waits for those in
//              flight.
//   Threads    Any.
//   Blocks     close(), until its deadline: calls in flight may then go on, but the model stays closed.
//   Lifetime   Shared. The weights live as long as the model or a program of it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "device/device.h"
#include "runtime/admission/gate.h"
#include "runtime/admission/governor.h"
#include "runtime/executables.h"
#include "runtime/memory/model_source.h"

namespace heddle::runtime {

class Model {
 public:
  Model(Ref<const device::Module> module, Ref<const ModelSource> source, ModelId id, Ref<Governor> governor,
        Ref<Executables> executables);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  ModelId id() const { return id_; }
  const device::Module& module() const { return *module_; }
  const std::string& name() const { return module_->graph().name; }
  const std::vector<device::Signature>& inputs() const { return module_->inputs(); }
  const std::vector<device::Signature>& outputs() const { return module_->outputs(); }

  bool closed() const { return gate_.closed(); }
  Status close(Deadline deadline);

  // For the runtime.
  const ModelSource& source() const { return *source_; }
  void refuse();  // close() without the wait
  Gate::Pass enter() { return Gate::Pass(gate_); }
  Status closed_status() const;
  // invalid, naming the input, what was given and what is expected.
  Status check(std::span<const device::View> inputs) const;
  Status check_extents(std::span<const ir::Extents> inputs) const;

 private:
  const Ref<const device::Module> module_;
  const Ref<const ModelSource> source_;
  const ModelId id_;
  const Ref<Governor> governor_;
  const Ref<Executables> executables_;
  const uint32_t generation_;  // fork_generation() of the maker
  Gate gate_;
};

}  // namespace heddle::runtime
