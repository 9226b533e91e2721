#include <cstdlib>
#include <set>
#include <string>

#include "driver_fixture.h"
#ifdef HEDDLE_CUDA
#include "drivers/cuda/cuda_device.h"
#include "drivers/cuda/driver/driver_api.h"
#include "tests/cuda_double/cuda_double.h"
#endif
#include "drivers/host/host_device.h"
#ifdef HEDDLE_METAL
#include "drivers/metal/metal_device.h"
#endif
#include "drivers/sim/event.h"
#include "drivers/sim/sim_device.h"
#include "ir/op.h"
#include "session_fixture.h"

namespace heddle::conformance {
namespace {

struct Exemption {
  std::string_view driver;
  std::string_view test;
  std::string_view reason;
};

#define DRIVER_CANNOT(driver, test, reason) \
  Exemption { driver, test, reason }

constexpr Exemption kExemptions[] = {
    DRIVER_CANNOT("host", "op NonZero",
                  "its output's shape depends on the data, which no driver can plan for"),
    DRIVER_CANNOT("host", "a_foreign_event_orders_queues", "its work is over when submit() returns"),
    DRIVER_CANNOT("host", "a_foreign_event_is_signalled", "its work is over when submit() returns"),
    DRIVER_CANNOT("host", "a_refused_submission_waits", "its work is over when submit() returns"),
    DRIVER_CANNOT("sim", "op NonZero",
                  "its output's shape depends on the data, which no driver can plan for"),
#ifdef HEDDLE_CUDA
    DRIVER_CANNOT("cuda", "op NonZero",
                  "its output's shape depends on the data, which no driver can plan for"),
#endif
#ifdef HEDDLE_METAL
    DRIVER_CANNOT("metal", "op NonZero",
                  "its output's shape depends on the data, which no driver can plan for"),
    DRIVER_CANNOT("metal", "type f64", "Metal has no double precision"),
    DRIVER_CANNOT("metal", "type u16", "unsigned types above 8 bits are the host's only"),
    DRIVER_CANNOT("metal", "type u32", "unsigned types above 8 bits are the host's only"),
    DRIVER_CANNOT("metal", "type u64", "unsigned types above 8 bits are the host's only"),
#endif
};

Result<Ref<device::Device>> make_sim() {
  HEDDLE_TRY_ASSIGN(Ref<device::Device> host, host::make_host_device({.threads = 2}));
  HEDDLE_TRY_ASSIGN(Ref<sim::SimDevice> made, sim::make_sim_device(std::move(host)));
  return Ref<device::Device>(std::move(made));
}

VendorEvent make_sim_event() {
  const auto event = std::make_shared<sim::SimEvent>();
  return {event->foreign(), [event] { event->signal(); }, [event] { return event->reached(); }};
}

#ifdef HEDDLE_CUDA
// compute-sanitizer watches the kernels of NVIDIA's libraries too, which takes minutes.
bool without_libraries() {
  const char* const said = std::getenv("HEDDLE_TEST_LIBRARIES");
  return said != nullptr && std::string_view(said) == "off";
}

// On a real GPU. Libraries are looked for only where the driver's table is not given.
Result<Ref<device::Device>> make_card() {
  // Without measurements libraries compute all that they can, in every run of the suite. It has about a
  // thousand chains, and NVRTC takes some tenths of a second for each: HEDDLE_TEST_CHAINS for some of them.
  cuda::CudaOptions options{.compiles_chains = std::getenv("HEDDLE_TEST_CHAINS") != nullptr,
                            .tuning = {.on = false}};
  if (without_libraries()) {
    HEDDLE_TRY_ASSIGN(options.api, cuda::nvidia_driver());
  }
  return cuda::make_cuda_device(options);
}

// HEDDLE_TEST_CARD: on a real GPU; events of others are the double's only. HEDDLE_TEST_LIBRARIES=off: with
// kernels of ours alone.
Result<Ref<device::Device>> make_cuda() {
  if (std::getenv("HEDDLE_TEST_CARD") != nullptr) return make_card();
  cuda::CudaOptions options{.api = &cuda_double::api(),
                            .image = cuda_double::image(),
                            .blas = &cuda_double::blas_lt(),
                            .cudnn = &cuda_double::cudnn()};
  if (without_libraries()) options.blas = nullptr, options.cudnn = nullptr;
  return cuda::make_cuda_device(options);
}

VendorEvent make_cuda_event() {
  const cuda::EventHandle event = cuda_double::make_held_event();
  return {{event, 0, nullptr},
          [event] { cuda_double::reach(event); },
          [event] { return cuda_double::is_reached(event); }};
}
#endif

constexpr Driver kDrivers[] = {
    {"host", [] { return host::make_host_device({.threads = 2}); }},
    {"sim", make_sim, make_sim_event},
#ifdef HEDDLE_CUDA
    {"cuda", make_cuda, make_cuda_event},
#endif
#ifdef HEDDLE_METAL
    {"metal", [] { return metal::make_metal_device(); }, make_metal_event},
#endif
};

std::set<std::string, std::less<>>& tests() {
  static std::set<std::string, std::less<>> names;
  return names;
}

}  // namespace

std::span<const Driver> drivers() {
  const char* const only = std::getenv("HEDDLE_TEST_DRIVER");
  if (only == nullptr) return kDrivers;
  for (const Driver& driver : kDrivers) {
    if (std::string_view(only) == driver.name) return {&driver, 1};
  }
  FAIL("HEDDLE_TEST_DRIVER is '", only, "', which is no driver here");
  return {};
}

Registered::Registered(std::string_view test) { tests().emplace(test); }

bool cannot(std::string_view driver, std::string_view test) {
  for (const Exemption& e : kExemptions) {
    if (e.driver == driver && e.test == test) return true;
  }
  return false;
}

void check_exemptions() {
  for (const Exemption& e : kExemptions) {
    bool driver_known = false;
    for (const Driver& driver : kDrivers) driver_known = driver_known || e.driver == driver.name;
    const bool test_known = e.test.starts_with("op ")     ? ir::find_op(e.test.substr(3)) != nullptr
                            : e.test.starts_with("type ") ? ir::dtype_from_name(e.test.substr(5)).has_value()
                                                          : tests().contains(e.test);
    CHECK_MESSAGE(driver_known, "no driver is called ", e.driver);
    CHECK_MESSAGE(test_known, "no test is called ", e.test);
    CHECK_FALSE(e.reason.empty());
  }
}

void for_each_kind(const device::Device& device, const std::function<void()>& body) {
  for (const device::MemoryKind kind : {device::MemoryKind::device, device::MemoryKind::staging}) {
    if (kind == device::MemoryKind::staging && device.traits().unified_memory) break;  // the same
    CAPTURE(static_cast<int>(kind));
    put_operands_in(kind);
    body();
  }
  put_operands_in(device::MemoryKind::device);
}

void run_for_each_driver(std::string_view test, Test run) {
  for (const Driver& driver : drivers()) {
    CAPTURE(driver.name);
    Result<Ref<device::Device>> device = driver.make();
    REQUIRE_MESSAGE(device.ok(), to_string(device.status()));
    for_each_kind(**device, [&] {
      const Status status = run(**device, driver);
      if (cannot(driver.name, test)) {
        CHECK_MESSAGE(status.code() == Code::unsupported, "the exemption is stale: ", test, " gives ",
                      to_string(status));
      } else {
        CHECK_MESSAGE(status.ok(), to_string(status));
      }
    });
    const Status lost = (*device)->lost();
    CHECK_MESSAGE(lost.ok(), to_string(lost));
  }
}

}  // namespace heddle::conformance
