// soak_test.cpp: random operations of random numbers of threads for as long as HEDDLE_SOAK_SECONDS says. Each
// is answered once, rightly; no memory is gained.
//
// Rounds on one device that lives as long as the soak take turns with rounds on simulated devices, each of
// which meets one fault at a random call. HEDDLE_SOAK_SEED names the choices; HEDDLE_SOAK_JSON is a file for
// figures.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "api/internals.h"
#include "drivers/host/host_device.h"
#include "drivers/sim/sim_device.h"
#include "soak_fixture.h"
#include "tests/sanitized_fixture.h"

namespace stress {
namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
using heddle::ErrorCode;

constexpr uint64_t kThreadsMost = 12;
// However long it takes: malloc keeps some memory for threads, and resident memory has the pages that it
// does not give back. A leak of 16 bytes an operation passes the second bound after 260,000 operations.
constexpr LevelBounds kBounds = {.books = 4096, .heap = uint64_t{4} << 20, .rss = uint64_t{32} << 20};
constexpr size_t kRoundsLeast = 8;
// What waits longer is lost: an operation's own patience ends before.
constexpr std::chrono::seconds kLost{90};

double number_of(const char* variable, double otherwise) {
  const char* const value = std::getenv(variable);
  return value == nullptr ? otherwise : std::atof(value);
}

// One line of a JSON array for each round.
class Figures {
 public:
  Figures(uint64_t seed, const std::string& device) {
    const char* const path = std::getenv("HEDDLE_SOAK_JSON");
    if (path == nullptr) return;
    file_.emplace(path);
    *file_ << "{\"seed\": " << seed << ", \"device\": \"" << device << "\",\n\"rounds\": [";
  }
  void round(double at_s, double took_s, uint64_t operations, size_t threads, const Level& level,
             const std::string& fault) {
    if (!file_) return;
    *file_ << (is_first_ ? "\n" : ",\n") << "{\"at_s\": " << at_s << ", \"took_s\": " << took_s
           << ", \"operations\": " << operations << ", \"threads\": " << threads
           << ", \"books\": " << level.books << ", \"heap\": " << level.heap << ", \"rss\": " << level.rss
           << ", \"fault\": \"" << fault << "\"}";
    is_first_ = false;
  }
  void end(const Ledger& ledger, const Levels& levels, const std::string& failed) {
    if (!file_) return;
    *file_ << "\n],\n\"ends\": {";
    const char* comma = "\n";
    for (const auto& [kind, sum] : ledger.sums()) {
      *file_ << comma << '"' << kind << "\": {\"asked\": " << sum.asked << ", \"right\": " << sum.right;
      for (const auto& [error, count] : sum.errors) *file_ << ", \"" << error << "\": " << count;
      *file_ << '}';
      comma = ",\n";
    }
    const Level usual = levels.usual(), recent = levels.recent();
    const auto written = [&](const char* name, uint64_t first, uint64_t last, uint64_t bound) {
      *file_ << '"' << name << "\": {\"usual\": " << first << ", \"last\": " << last
             << ", \"bound\": " << bound << '}';
    };
    *file_ << "\n},\n\"memory\": {";
    written("books", usual.books, recent.books, kBounds.books);
    *file_ << ", ";
    written("heap", usual.heap, recent.heap, kBounds.heap);
    *file_ << ", ";
    written("rss", usual.rss, recent.rss, kBounds.rss);
    *file_ << "},\n\"failed\": " << (failed.empty() ? "false" : "true") << "}\n";
  }

 private:
  std::optional<std::ofstream> file_;
  bool is_first_ = true;
};

// Lets go what hangs in a device, again and again, until the round is over.
class LettingGo {
 public:
  explicit LettingGo(heddle::sim::SimDevice& device) : device_(device), thread_([this] { watch(); }) {}
  ~LettingGo() {
    {
      const std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    over_.notify_all();
    thread_.join();
  }
  LettingGo(const LettingGo&) = delete;
  LettingGo& operator=(const LettingGo&) = delete;

 private:
  void watch() {
    std::unique_lock lock(mutex_);
    while (!over_.wait_for(lock, std::chrono::milliseconds(400), [&] { return is_over_; }))
      device_.deliver_lost();
  }
  heddle::sim::SimDevice& device_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;
};

class Soak {
 public:
  Soak(uint64_t seed, double seconds)
      : seed_(seed),
        seconds_(seconds),
        least_(seconds < 60 ? 5 : 20),
        world_(small_cache(), true),
        figures_(seed, world_.device.name()) {
    std::ignore = heddle::Device("sim").name();  // what the process makes once
  }

  // The first thing that went wrong; empty: nothing did.
  std::string run() {
    const auto begin = Clock::now();
    const auto at = [&] { return Seconds(Clock::now() - begin).count(); };
    for (size_t round = 0; at() < seconds_ || round < kRoundsLeast; ++round) {
      const bool is_warm_up = at() < seconds_ / 4 || round < kRoundsLeast / 2;
      Random random(seed_ * 1'000'003 + round);
      const bool is_faulted = round % 8 == 3;
      const auto started = Clock::now();
      const uint64_t before = ledger_->ended();
      const size_t threads = 1 + random.below(kThreadsMost);
      std::string fault;
      if (is_faulted) {
        fault = on_faulted_device(round, random, 1 + threads / 2);
      } else {
        work_together(world_, random, threads, least_ + random.below(4 * least_));
      }
      see_none_lost(round, fault);
      const Seconds took = Clock::now() - started;
      if (!ledger_->faults().empty()) return failure(round, fault);
      const Level level = level_of(world_.device);
      levels_.add(level, is_warm_up);
      figures_.round(at(), took.count(), ledger_->ended() - before, threads, level, fault);
      if (const std::string grown = levels_.grown(); !grown.empty() && !is_warm_up) {
        ledger_->fault("memory has grown: " + grown);
        return failure(round, fault);
      }
      ++rounds_;
      faulted_ += is_faulted ? 1 : 0;
    }
    figures_.end(*ledger_, levels_, "");
    return "";
  }

  const Ledger& ledger() const { return *ledger_; }
  size_t rounds() const { return rounds_; }
  size_t faulted() const { return faulted_; }
  const Levels& levels() const { return levels_; }

 private:
  // Compiled shapes fill it within the warm-up.
  static heddle::Device small_cache() {
    heddle::DeviceOptions options;
    options.executable_bytes = uint64_t{1} << 20;
    return fresh_device(options);
  }

  void work_together(const World& world, Random& random, size_t threads, uint64_t each) {
    Round round(random.below(uint64_t{1} << 60));
    const auto errors = run_threads(static_cast<int>(threads), [&](int thread) {
      Random own(round.seed + static_cast<uint64_t>(thread));
      work(world, *ledger_, round, static_cast<size_t>(thread), own, each);
    });
    for (const std::string& error : errors) ledger_->fault("escaped: " + error);
  }

  // A world of its own, which meets one fault; and gives all its memory back. Returns the fault.
  std::string on_faulted_device(size_t round, Random& random, size_t threads) {
    heddle::sim::SimOptions options;
    options.name = "soak-sim";
    options.seed = 1 + random.below(1'000'000);
    options.lanes = 1 + static_cast<int>(random.below(3));
    options.longest = std::chrono::microseconds(20);
    const auto driver =
        *heddle::sim::make_sim_device(*heddle::host::make_host_device({.threads = 2}), options);
    const heddle::sim::PlannedFault fault = some_fault(random);
    {
      const auto runtime = heddle::runtime::Runtime::make(driver);
      World world(heddle::Internals::make_device(std::make_shared<heddle::Internals::DeviceRep>(
                      heddle::Internals::DeviceRep{"soak-sim", *runtime, 2})),
                  false);
      may_end_so(world, fault.fault);
      fault.arm(driver->faults());
      {
        const LettingGo letting_go(*driver);
        work_together(world, random, threads, 5 + random.below(25));
        see_none_lost(round, to_string(fault));
      }
      driver->faults().reset();
      driver->deliver_lost();
      see_that_it_is_told(world, *driver);
    }
    driver->await_idle();
    for (const auto& each : driver->violations()) ledger_->fault("against the rules: " + to_string(each));
    if (driver->stats().bytes != 0)
      ledger_->fault(std::to_string(driver->stats().bytes) +
                     " bytes of the driver's memory are not given back");
    return to_string(fault);
  }

  static heddle::sim::PlannedFault some_fault(Random& random) {
    using enum heddle::sim::Fault;
    const auto fault = static_cast<heddle::sim::Fault>(random.below(std::size(heddle::sim::kFaultLines)));
    // What hangs each time would take a round of minutes.
    const bool may_last = fault != kHang && fault != kLostCompletion && random.one_in(3);
    return {fault, 1 + static_cast<int64_t>(random.below(40)), may_last};
  }

  static void may_end_so(World& world, heddle::sim::Fault fault) {
    const auto error = static_cast<ErrorCode>(heddle::sim::line_of(fault).error);
    if (heddle::sim::line_of(fault).error != heddle::Code::ok) world.may = code_bit(error);
    if (error == ErrorCode::deadline) world.patience = std::chrono::milliseconds(300);  // it hangs
  }

  // Afterwards a call is right, or says that the device is lost.
  void see_that_it_is_told(World& world, heddle::sim::SimDevice& driver) {
    world.may = driver.lost().ok() ? kNoError : code_bit(ErrorCode::device_lost);
    world.patience = std::chrono::seconds(60);
    answered(*ledger_, "call after a fault", world.may, [&] {
      const Tensor x = Tensor::of<float>({1, 8}, {1, 2, 3, 4, 5, 6, 7, 8});
      heddle::CallOptions options;
      options.timeout = world.patience;
      return world.affine({x}, options).at(0).values<float>()[7] == 17.0F;
    });
  }

  // Else the process ends: the destructors would wait for what is lost.
  void see_none_lost(size_t round, const std::string& fault) {
    if (ledger_->wait_for_all(kLost)) return;
    ledger_->fault(std::to_string(ledger_->open()) + " operations were lost");
    std::fprintf(stderr, "%s\n", failure(round, fault).c_str());
    std::_Exit(1);
  }

  std::string failure(size_t round, const std::string& fault) {
    std::string said = "seed " + std::to_string(seed_) + ", round " + std::to_string(round);
    if (!fault.empty()) said += ", fault " + fault;
    for (const std::string& each : ledger_->faults()) said += "\n  " + each;
    figures_.end(*ledger_, levels_, said);
    return said;
  }

  const uint64_t seed_;
  const double seconds_;
  const uint64_t least_;  // operations of a thread in a round
  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  World world_;
  Figures figures_;
  Levels levels_{kBounds};
  size_t rounds_ = 0, faulted_ = 0;
};

std::shared_ptr<Ledger> some_ledger() { return std::make_shared<Ledger>(); }

}  // namespace

TEST_CASE("a soak: each operation of random threads is answered once and rightly, and no memory is gained") {
  const double seconds = number_of("HEDDLE_SOAK_SECONDS", heddle::test::kSanitized ? 2 : 4);
  const auto seed = static_cast<uint64_t>(number_of("HEDDLE_SOAK_SEED", 1));
  keep_arenas_few();
  Soak soak(seed, seconds);
  const std::string failed = soak.run();
  CHECK_MESSAGE(failed.empty(), failed);
  uint64_t asked = 0, ended = 0;
  for (const auto& [kind, sum] : soak.ledger().sums()) {
    asked += sum.asked;
    ended += sum.right;
    for (const auto& [error, count] : sum.errors) ended += count;
    const bool never = kind == "look-up out of range" || kind == "more memory than there is";
    CHECK_MESSAGE((sum.right > 0 || never || sum.asked < 20), kind, " never ended rightly");
  }
  CHECK(asked == ended);
  CHECK(asked > 200);
  CHECK(soak.faulted() > 0);
  MESSAGE("seed ", seed, ": ", asked, " operations in ", soak.rounds(), " rounds, ", soak.faulted(),
          " of them with a fault");
}

TEST_CASE("the books of a soak notice an operation that is lost, ends twice, wrongly or with another error") {
  const auto lost = some_ledger();
  lost->ask("a", kNoError)->end(true);
  CHECK(lost->wait_for_all(std::chrono::seconds(0)));
  const auto open = lost->ask("a", kNoError);
  CHECK_FALSE(lost->wait_for_all(std::chrono::seconds(0)));
  CHECK(lost->open() == 1);
  CHECK(lost->faults().empty());
  open->end(true);
  open->end(true);
  REQUIRE(lost->faults().size() == 1);
  CHECK(lost->faults()[0] == "a ended twice");

  const auto wrong = some_ledger();
  wrong->ask("b", kNoError)->end(false);
  wrong->ask("b", code_bit(ErrorCode::deadline))->end(ErrorCode::cancelled, "why");
  wrong->ask("b", code_bit(ErrorCode::deadline))->end(ErrorCode::deadline, "late");
  const auto cancelled = wrong->ask("b", kNoError);
  cancelled->must_end_with(code_bit(ErrorCode::cancelled));
  cancelled->end(true);
  CHECK(wrong->faults() == std::vector<std::string>{"b gave a wrong value", "b ended with cancelled: why",
                                                    "b ended with a value after it had been cancelled"});
  CHECK(wrong->sums().at("b").asked == 4);
  CHECK(wrong->sums().at("b").errors.at("deadline") == 1);
}

TEST_CASE("the levels of a soak notice a leak in each of their books, and pass over a peak") {
  const LevelBounds bounds = {.books = 0, .heap = 100, .rss = 1000};
  for (uint64_t Level::* which : {&Level::books, &Level::heap, &Level::rss}) {
    Levels levels(bounds);
    Level level{5000, 5000, 5000};
    for (int i = 0; i < 8; ++i) levels.add(level, true);
    Level peak = level;
    peak.*which += 5000;
    levels.add(peak, false);
    CHECK(levels.grown().empty());
    for (int i = 0; i < 16; ++i) {
      level.*which += 300;
      levels.add(level, false);
    }
    CHECK_FALSE(levels.grown().empty());
  }
}

}  // namespace stress
