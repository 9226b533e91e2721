// api_world_fixture.h: heddle.h on the simulated device, whose threads, time and choices are a simulation's.
//
//   What       Two models: "products" computes with floats (two_products_fixture.h), "lookup" takes row i of
//              a table, so that a request can be wrong by its data alone. Both are on each of the devices.
//   Threads    Made by the simulation's body, used by its threads.
//   Lifetime   Of one simulation.
#pragma once

#include <heddle/heddle.h>

#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "api/internals.h"
#include "world_fixture.h"

namespace heddle::simulated {

constexpr int64_t kTableRows = 5;

// Options name the process's own device before a test names another: it is made before the first simulation.
inline const Device process_device;

struct ApiWorld {
  explicit ApiWorld(Simulation& simulation, ModelOptions options = {}, size_t devices_made = 1)
      : drivers(make_drivers(simulation, devices_made)),
        devices(make_devices()),
        driver(drivers[0]),
        device(devices[0]),
        products(make_products(options)),
        lookup(make_lookup(options)) {}
  void expect_no_violation(Simulation& simulation) const {
    for (const auto& each_driver : drivers) {
      for (const sim::Found& each : each_driver->violations()) simulation.fail(to_string(each));
    }
  }

  std::vector<Ref<sim::SimDevice>> drivers;
  std::vector<Device> devices;
  Ref<sim::SimDevice> driver;  // the first
  Device device;
  Model products, lookup;

 private:
  // Of one kind, as a model's devices have to be; each has a governor of its own.
  static std::string name_of(size_t number) { return number == 0 ? "sim" : text("sim:", number); }
  static std::vector<Ref<sim::SimDevice>> make_drivers(Simulation& simulation, size_t count) {
    sim::SimOptions options = some_device(simulation);
    std::vector<Ref<sim::SimDevice>> made;
    for (size_t i = 0; i < count; ++i) {
      options.name = name_of(i);
      options.seed = i + 1;
      made.push_back(make_device(options));
    }
    return made;
  }
  std::vector<Device> make_devices() const {
    std::vector<Device> made;
    for (size_t i = 0; i < drivers.size(); ++i) {
      made.push_back(Internals::make_device(std::make_shared<Internals::DeviceRep>(
          Internals::DeviceRep{name_of(i), *runtime::Runtime::make(drivers[i]), 1})));
    }
    return made;
  }
  Model make_products(ModelOptions options) const {
    GraphBuilder graph("products");
    const auto x = graph.input("x", heddle::DType::f32, {"batch", 8});
    const auto weight = [&](double first) {
      std::vector<float> values(64);
      for (size_t i = 0; i < 64; ++i)
        values[i] = static_cast<float>(first + 0.01 * static_cast<double>(i % 7));
      return graph.constant(Tensor::of<float>({8, 8}, std::span<const float>(values)));
    };
    const auto inner = graph.add("Tanh", {graph.add("MatMul", {x, weight(0.1)})});
    graph.output(graph.add("MatMul", {inner, weight(-0.2)}), "y");
    options.devices = devices;
    return graph.build(options);
  }
  Model make_lookup(ModelOptions options) const {
    GraphBuilder graph("lookup");
    const auto at = graph.input("at", heddle::DType::i64, {"batch"});
    std::vector<float> values(kTableRows * 2);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 10.0F + static_cast<float>(i);
    const auto table = graph.constant(Tensor::of<float>({kTableRows, 2}, std::span<const float>(values)));
    graph.output(graph.add("Gather", {table, at}, {{"axis", int64_t{0}}}), "row");
    options.devices = devices;
    return graph.build(options);
  }
};

inline Tensor tensor_of(const Rows& rows) {
  return Tensor::of<float>({rows.extents[0], 8}, std::span<const float>(rows.values));
}
inline bool gives(const Rows& rows, const Tensor& result, int times = 1) {
  return result.shape() == Shape{rows.extents[0], 8} && rows.gives(result.values<float>().data(), times);
}

inline Tensor indices(const std::vector<int64_t>& rows) {
  return Tensor::of<int64_t>({static_cast<int64_t>(rows.size())}, std::span<const int64_t>(rows));
}
inline bool looked_up(const std::vector<int64_t>& rows, const Tensor& result) {
  if (result.shape() != Shape{static_cast<int64_t>(rows.size()), 2}) return false;
  const auto values = result.values<float>();
  for (size_t i = 0; i < rows.size(); ++i) {
    const float first = 10.0F + 2 * static_cast<float>(rows[i]);
    if (values[2 * i] != first || values[2 * i + 1] != first + 1) return false;
  }
  return true;
}

// What a call throws; nothing: it returned.
template <class Body>
std::optional<ErrorCode> error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.code();
  }
  return std::nullopt;
}
inline std::optional<ErrorCode> error_in(const std::exception_ptr& error) {
  if (error == nullptr) return std::nullopt;
  return error_of([&] { std::rethrow_exception(error); });
}

// Answers on their way to a test: each comes once.
class Arrivals {
 public:
  explicit Arrivals(size_t count) : times_(count) {}
  void add(Simulation& simulation, size_t which) {
    simulation.expect(times_[which].add_acq_rel(1) == 0, "an answer comes once");
    came_.add_release(1);
    came_.notify_all();
  }
  void wait(int count) const {
    for (int seen = came_.load_acquire(); seen < count; seen = came_.load_acquire()) came_.wait(seen);
  }
  int came() const { return came_.load_acquire(); }

 private:
  std::vector<Atomic<int>> times_;
  Atomic<int> came_{0};
};

// How requests ended, by kind.
struct Ends {
  Atomic<int> right{0}, late{0}, cancelled{0}, closed{0}, wrong_data{0};
  int all() const {
    return right.load_relaxed() + late.load_relaxed() + cancelled.load_relaxed() + closed.load_relaxed() +
           wrong_data.load_relaxed();
  }
  void add(Simulation& simulation, ErrorCode code) {
    switch (code) {
      case ErrorCode::deadline:
        late.add_relaxed(1);
        break;
      case ErrorCode::cancelled:
        cancelled.add_relaxed(1);
        break;
      case ErrorCode::unavailable:
        closed.add_relaxed(1);
        break;
      case ErrorCode::invalid:
        wrong_data.add_relaxed(1);
        break;
      default:
        simulation.fail(text("a request ended with code ", static_cast<int>(code)));
    }
  }
};

}  // namespace heddle::simulated
