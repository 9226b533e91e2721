// record_stream is for work that Heddle does not see. Here that is a kernel which reads a tensor's memory
// without naming the tensor, and stays in it until the test lets it go.
#include "on_test_device_fixture.h"

namespace heddle::api_test {
namespace {

constexpr int64_t kRows = 64;  // more than any other tensor here has: its memory serves no other

// Foreign work for one stream: the n-th start() reads when the n-th latch opens.
class Foreign {
 public:
  Foreign(const OnTestDevice& f, const std::string& name, size_t most = 1)
      : on_(f), unrelated_(filled(f, default_stream(f.device), 0)), jobs_(most) {
    f.driver->set_kernel(name, [this](const device::Run& run) {
      Job& job = jobs_[ran_++];
      job.latch.wait();
      job.saw.assign(job.memory, job.memory + kRows * 4);
      return runtime::test::copy_through(run);
    });
    model_ = f.model(name);
    default_stream(f.device).synchronize();
  }
  ~Foreign() {  // of a test that failed, too: the kernels are this object's
    for (Job& job : jobs_) job.latch.open();
    static_cast<void>(on_.runtime().synchronize());
  }
  Foreign(const Foreign&) = delete;
  Foreign& operator=(const Foreign&) = delete;
  void start(const Stream& stream, const Tensor& tensor) {
    jobs_[started_++].memory = static_cast<const float*>(tensor.address());
    results_.push_back((*model_)({unrelated_}, on(stream))[0]);
  }
  void let_go(size_t job = 0) { jobs_[job].latch.open(); }
  // When the stream was synchronised.
  bool saw(float value, size_t job = 0) const {
    return !jobs_[job].saw.empty() &&
           std::ranges::all_of(jobs_[job].saw, [&](float v) { return v == value; });
  }

 private:
  struct Job {
    Latch latch;
    const float* memory = nullptr;
    std::vector<float> saw;
  };
  const OnTestDevice& on_;
  Tensor unrelated_;
  std::vector<Job> jobs_;
  size_t started_ = 0, ran_ = 0;  // of the caller, of the queue's thread
  std::optional<Model> model_;
  std::vector<Tensor> results_;
};

Tensor written(const OnTestDevice& f, const Stream& stream, float value) {
  Tensor tensor = filled(f, stream, value, kRows);
  stream.synchronize();
  return tensor;
}

// Lets go of the last reference, and returns when the allocator has the memory. One thread at a time.
void let_go(const OnTestDevice& f, Tensor& tensor) {
  const auto allocated = [&] { return f.runtime().allocator().stats().allocated; };
  const uint64_t before = allocated();
  tensor = Tensor();
  wait_until([&] { return allocated() < before; });
}

// Overwrites whatever memory the allocator hands out now.
std::vector<Tensor> overwrite(const OnTestDevice& f, const Stream& stream) {
  std::vector<Tensor> next;
  for (int i = 0; i < 3; ++i) next.push_back(written(f, stream, -1));
  return next;
}

bool lies_among(const void* memory, const std::vector<Tensor>& tensors) {
  return std::ranges::any_of(tensors, [&](const Tensor& t) { return t.address() == memory; });
}

uint64_t pending(const OnTestDevice& f) { return f.runtime().allocator().stats().pending; }

}  // namespace

TEST_CASE("a recorded tensor's memory is not handed out while foreign work runs, and is when it is over") {
  const OnTestDevice f(true);
  Foreign foreign(f, "foreign");
  const Stream a(f.device), b(f.device);
  Tensor x = written(f, a, 7);
  const void* const memory = x.address();
  foreign.start(b, x);
  x.record_stream(b);
  let_go(f, x);
  const std::vector<Tensor> meanwhile = overwrite(f, a);
  CHECK_FALSE(lies_among(memory, meanwhile));
  foreign.let_go();
  b.synchronize();
  CHECK(foreign.saw(7));
  wait_until([&] { return pending(f) == 0; });
  CHECK(lies_among(memory, overwrite(f, a)));
}

TEST_CASE("memory recorded on five streams comes back when the last one is over") {
  const OnTestDevice f(true);
  std::vector<std::unique_ptr<Foreign>> foreign;
  std::vector<Stream> streams;
  const Stream a(f.device);
  Tensor x = written(f, a, 7);
  const void* const memory = x.address();
  for (int i = 0; i < 5; ++i) {
    foreign.push_back(std::make_unique<Foreign>(f, text("foreign", i)));
    streams.emplace_back(f.device);
    foreign.back()->start(streams.back(), x);
    x.record_stream(streams.back());
  }
  let_go(f, x);
  std::vector<std::vector<Tensor>> meanwhile;
  for (size_t i = 0; i < 5; ++i) {
    meanwhile.push_back(overwrite(f, a));
    CHECK_FALSE(lies_among(memory, meanwhile.back()));
    foreign[i]->let_go();
    streams[i].synchronize();
    CHECK(foreign[i]->saw(7));
    f.runtime().allocator().reap_pending();
  }
  CHECK(pending(f) == 0);
  CHECK(lies_among(memory, overwrite(f, a)));
}

TEST_CASE("another thread's foreign work sees the recorded values, though the owner has let go and goes on") {
  const OnTestDevice f(true);
  Foreign foreign(f, "foreign");
  const Stream a(f.device);
  Tensor x = written(f, a, 7);
  Latch recorded, overwritten;
  Thread other("other", [&, theirs = x]() mutable {
    const Stream b(f.device);
    foreign.start(b, theirs);
    theirs.record_stream(b);
    theirs = Tensor();
    recorded.open();
    overwritten.wait();
    foreign.let_go();
    b.synchronize();
  });
  recorded.wait();
  let_go(f, x);
  const std::vector<Tensor> meanwhile = overwrite(f, a);
  overwritten.open();
  other.join();
  CHECK(foreign.saw(7));
}

TEST_CASE("work that writes a recorded tensor is given to run after the foreign work") {
  const OnTestDevice f(true);
  Foreign foreign(f, "foreign");
  const Stream a(f.device), b(f.device);
  const Tensor x = written(f, a, 7), nines = written(f, a, 9);
  foreign.start(b, x);
  x.record_stream(b);
  std::vector<device::Point> waits;
  Internals::view(x).buffer->collect_waits(true, Internals::stream(a).timeline().get(), waits);
  CHECK(waits.size() == 1);
  CHECK(std::ranges::any_of(
      waits, [&](const device::Point& p) { return p.timeline == Internals::stream(b).timeline(); }));
  a.copy(nines, x);
  CHECK_FALSE(a.query());
  foreign.let_go();
  b.synchronize();
  CHECK(foreign.saw(7));
  CHECK(holds(x, 9));
}

TEST_CASE("recording a tensor of the caller's memory changes nothing") {
  const OnTestDevice f(true);
  const float values[] = {1, 2, 3, 4, 5, 6, 7, 8};
  const Tensor x = Tensor::borrow(values, DType::f32, {2, 4});
  const Stream stream(f.device);
  x.record_stream(stream);
  CHECK(x.ready());
  CHECK(is_affine(x, f.model("affine")({x}, on(stream))[0]));
}

TEST_CASE("memory freed a hundred times while foreign work reads it is not damaged once") {
  constexpr size_t kTimes = 100;
  const OnTestDevice f(true);
  const Model model = f.model("affine");
  Foreign foreign(f, "foreign", kTimes);
  const Stream a(f.device), b(f.device);
  size_t right = 0;
  for (size_t i = 0; i < kTimes; ++i) {
    const auto value = static_cast<float>(i);
    Tensor y = model({written(f, a, value)}, on(a))[0];
    a.synchronize();
    foreign.start(b, y);
    y.record_stream(b);
    let_go(f, y);
    const std::vector<Tensor> meanwhile = overwrite(f, a);
    foreign.let_go(i);
    b.synchronize();
    right += foreign.saw(value * 2 + 1, i) ? 1 : 0;
  }
  CHECK(right == kTimes);
}

TEST_CASE(
    "eight threads free recorded tensors twenty times each, and no foreign work sees another's values") {
  constexpr size_t kTimes = 20;
  const OnTestDevice f(true);
  std::vector<std::unique_ptr<Foreign>> foreign;
  for (int i = 0; i < 8; ++i) foreign.push_back(std::make_unique<Foreign>(f, text("foreign", i), kTimes));
  Atomic<size_t> right{0};
  run_together(8, [&](int thread) {
    Foreign& mine = *foreign[static_cast<size_t>(thread)];
    const Stream a(f.device), b(f.device);
    for (size_t i = 0; i < kTimes; ++i) {
      const auto value = static_cast<float>(static_cast<size_t>(thread) * kTimes + i);
      Tensor x = written(f, a, value);
      mine.start(b, x);
      x.record_stream(b);
      const std::weak_ptr<device::Buffer> buffer = Internals::view(x).buffer;
      x = Tensor();
      wait_until([&] { return buffer.expired(); });
      const std::vector<Tensor> meanwhile = overwrite(f, a);
      mine.let_go(i);
      b.synchronize();
      right.add_relaxed(mine.saw(value, i) ? 1 : 0);
    }
  });
  CHECK(right.load_acquire() == 8 * kTimes);
}

}  // namespace heddle::api_test
