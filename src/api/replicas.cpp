#include "api/replicas.h"

#include <algorithm>

#include "api/device_name.h"

namespace heddle {
namespace {

std::vector<Device> devices_of(const Device& first, const std::vector<Model>& others) {
  std::vector<Device> devices{first};
  for (const Model& model : others) devices.push_back(model.device());
  return devices;
}

int64_t rows_of(std::span<const Tensor> inputs) {
  if (inputs.empty()) return 1;
  const ir::Extents& extents = Internals::view(inputs[0]).extents;
  return extents.rank() == 0 ? 1 : std::max<int64_t>(extents[0], 1);
}

bool lies_on(const Tensor& tensor, const Device& device) {
  const device::View& view = Internals::view(tensor);
  return view.buffer != nullptr &&
         view.buffer->memory().maker() == Internals::runtime(device).device().maker();
}

}  // namespace

Replicas::Replicas(const Device& first, std::vector<Model> others)
    : others_(std::move(others)),
      devices_(devices_of(first, others_)),
      occupied_(std::make_unique<Occupied[]>(devices_.size())) {}

Replicas::Taken Replicas::take(std::span<const Tensor> inputs, const Stream* stream) const {
  return {*this, named_or_least(inputs, stream), rows_of(inputs)};
}

Replicas::Taken Replicas::take(std::span<const Tensor> inputs, int64_t requests) const {
  return {*this, named_or_least(inputs, nullptr), rows_of(inputs) * requests};
}

std::optional<size_t> Replicas::device_of(std::span<const Tensor> inputs) const {
  for (const Tensor& input : inputs) {
    for (size_t i = 0; i < devices_.size(); ++i) {
      if (lies_on(input, devices_[i])) return i;
    }
  }
  return std::nullopt;
}

size_t Replicas::named_or_least(std::span<const Tensor> inputs, const Stream* stream) const {
  for (size_t i = 0; i < devices_.size(); ++i) {
    if (stream != nullptr ? Internals::is_on(*stream, devices_[i]) : guarded_stream(devices_[i]).has_value())
      return i;
  }
  if (stream != nullptr) return 0;  // which says that the stream is none of the model's
  const std::optional<size_t> named = device_of(inputs);
  return named.has_value() ? *named : least_occupied();
}

size_t Replicas::least_occupied() const {
  const auto answers = [&](size_t i) {
    const runtime::Runtime& runtime = Internals::runtime(devices_[i]);
    return runtime.usable().ok() && runtime.device().lost().ok();
  };
  size_t best = 0;
  int64_t fewest = INT64_MAX;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const int64_t rows = occupied_[i].rows.load_relaxed();
    if (rows >= fewest || !answers(i)) continue;
    best = i;
    fewest = rows;
  }
  return best;
}

void check_devices(std::span<const Device> devices) {
  const auto refuse = [](const std::string& what) { throw Error(ErrorCode::invalid, what); };
  const std::string kind = DeviceName::parse(devices[0].name()).driver;
  for (size_t i = 0; i < devices.size(); ++i) {
    if (const std::string other = DeviceName::parse(devices[i].name()).driver; other != kind) {
      refuse(text("a model's devices have to be of one kind, so that all answers come of the same kernels; '",
                  devices[i].name(), "' is no '", kind, "'"));
    }
    for (size_t j = 0; j < i; ++j) {
      if (&Internals::runtime(devices[i]) == &Internals::runtime(devices[j]))
        refuse(text("a model's devices name '", devices[i].name(),
                    "' twice; Device::open() makes another one on the same hardware"));
    }
  }
}

}  // namespace heddle
