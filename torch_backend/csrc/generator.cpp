// generator.cpp: seeds, offsets and their serialised form.
#include "generator.h"
#include "private_names.h"

#include <ATen/ops/empty.h>

#include <cstring>

namespace heddle::torch_backend {

Generator::Generator(c10::DeviceIndex index)
    : c10::GeneratorImpl(c10::Device(kType, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)) {}

Generator::Draw Generator::take(int64_t stream, uint64_t numbers) {
  const auto sequence = static_cast<size_t>(stream);
  const std::lock_guard lock(lock_);
  const uint64_t offset = state_.offsets.at(sequence);
  state_.offsets[sequence] += (numbers + 3) / 4;
  return {state_.seed, sequence, offset};
}

void Generator::set_current_seed(uint64_t seed) {
  const std::lock_guard lock(lock_);
  state_ = {seed, {}};
}

uint64_t Generator::current_seed() const {
  const std::lock_guard lock(lock_);
  return state_.seed;
}

uint64_t Generator::seed() {
  const uint64_t chosen = getNonDeterministicRandom();
  set_current_seed(chosen);
  return chosen;
}

void Generator::set_offset(uint64_t offset) {
  const std::lock_guard lock(lock_);
  state_.offsets.fill(offset);
}

uint64_t Generator::get_offset() const {
  const int64_t stream = current_stream_number(device().index());
  const std::lock_guard lock(lock_);
  return state_.offsets.at(static_cast<size_t>(stream));
}

void Generator::set_state(const c10::TensorImpl& state) {
  TORCH_CHECK(state.dtype() == caffe2::TypeMeta::Make<uint8_t>() && state.numel() == sizeof(State) &&
                  state.device().is_cpu() && state.is_contiguous(),
              "the state of a generator of device heddle is a contiguous uint8 CPU tensor of ", sizeof(State),
              " bytes, as get_state() returns it");
  const std::lock_guard lock(lock_);
  std::memcpy(&state_, state.data(), sizeof state_);
}

c10::intrusive_ptr<c10::TensorImpl> Generator::get_state() const {
  const at::Tensor bytes = at::empty({sizeof(State)}, at::TensorOptions().dtype(at::kByte).device(at::kCPU));
  const std::lock_guard lock(lock_);
  std::memcpy(bytes.mutable_data_ptr(), &state_, sizeof state_);
  return bytes.getIntrusivePtr();
}

Generator* Generator::clone_impl() const {
  auto* copy = new Generator(device().index());  // the caller takes it into an intrusive_ptr
  const std::lock_guard lock(lock_);
  copy->state_ = state_;
  return copy;
}

const at::Generator& default_generator(c10::DeviceIndex index) {
  if (index < 0) index = current_device();
  device_at(index);  // before the generators: they wait for each other with the GIL
  static const std::vector<at::Generator>& all = *new std::vector<at::Generator>([] {
    std::vector<at::Generator> made;
    for (c10::DeviceIndex i = 0; i < device_count(); ++i) made.push_back(at::make_generator<Generator>(i));
    return made;
  }());
  return all[static_cast<size_t>(index)];
}

at::Generator new_generator(c10::DeviceIndex index) {
  return at::make_generator<Generator>(index < 0 ? current_device() : index);
}

}  // namespace heddle::torch_backend
