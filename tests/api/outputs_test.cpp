// Results written to memory that the call names, which may be an input's.
#include <heddle/heddle.h>

#include <doctest/doctest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <initializer_list>
#include <numeric>
#include <string>
#include <vector>

namespace heddle::api_test {
namespace {

Model built_for(GraphBuilder& graph, const Device& device) {
  ModelOptions options;
  options.device = device;
  return graph.build(options);
}

// cache[index] = rows
Model row_writer(const Device& device) {
  GraphBuilder graph("row_writer");
  const auto cache = graph.input("cache", DType::f32, {"rows", "width"});
  const auto index = graph.input("index", DType::i64, {"places", 1});
  const auto rows = graph.input("rows", DType::f32, {"places", "width"});
  graph.output(graph.add("ScatterND", {cache, index, rows}), "written");
  return built_for(graph, device);
}

// y = 2 x + c
Model doubler(const Device& device) {
  GraphBuilder graph("doubler");
  const auto x = graph.input("x", DType::f32, {"n"});
  const auto c = graph.input("c", DType::f32, {"n"});
  graph.output(graph.add("Add", {graph.add("Add", {x, x}), c}), "y");
  return built_for(graph, device);
}

Tensor counted_up(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), 1.0F);
  return Tensor::of<float>({count}, std::span<const float>(values));
}

Tensor placed_on(const Device& device, const Tensor& values) {
  Tensor there = Tensor::empty(values.dtype(), values.shape(), device);
  default_stream(device).copy(values, there);
  return there;
}

CallOptions writing_to(std::initializer_list<Tensor> outputs) {
  CallOptions options;
  options.outputs = outputs;
  return options;
}

std::vector<float> floats_of(const Tensor& tensor) {
  const Tensor host = tensor.to_host();
  const auto values = host.values<float>();
  return {values.begin(), values.end()};
}

// Pages of which all but one cannot be touched while a Closed lives.
class Pages {
 public:
  explicit Pages(size_t count)
      : count_(count),
        data_(mmap(nullptr, count * size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    REQUIRE(data_ != MAP_FAILED);
  }
  ~Pages() { munmap(data_, count_ * size_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;

  size_t size() const { return size_; }
  void* data() const { return data_; }
  void protect(int how, size_t but) const {
    auto* const bytes = static_cast<std::byte*>(data_);
    REQUIRE(mprotect(bytes, but * size_, how) == 0);
    REQUIRE(mprotect(bytes + (but + 1) * size_, (count_ - but - 1) * size_, how) == 0);
  }

 private:
  const size_t size_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t count_;
  void* const data_;
};

}  // namespace

TEST_CASE("a scatter into its own operand touches nothing but the places that it writes") {
  const Model model = row_writer(Device("host"));
  const Pages pages(64);
  const auto width = static_cast<int64_t>(pages.size() / sizeof(float));
  const Tensor cache = Tensor::borrow_mutable(pages.data(), DType::f32, {64, width});
  const std::vector<float> row(static_cast<size_t>(width), 7.0F);
  const Tensor rows = Tensor::of<float>({1, width}, std::span<const float>(row));
  pages.protect(PROT_NONE, 41);
  model({cache, Tensor::of<int64_t>({1, 1}, {41}), rows}, writing_to({cache}));  // else it ends the process
  pages.protect(PROT_READ, 41);
  const auto values = cache.values<float>();
  CHECK(values[static_cast<size_t>(41 * width)] == 7);
  CHECK(std::accumulate(values.begin(), values.end(), 0.0) == 7.0 * static_cast<double>(width));
}

TEST_CASE("a refused index leaves the memory that the call was to write to as it was") {
  const Device device("host");
  const Tensor cache = placed_on(device, counted_up(4)).view(DType::f32, {4, 1}, {1, 1}, 0);
  const Model model = row_writer(device);
  CHECK_THROWS_WITH_AS(model({cache, Tensor::of<int64_t>({2, 1}, {1, 4}), Tensor::of<float>({2, 1}, {9, 9})},
                             writing_to({cache})),
                       doctest::Contains("index 4 is outside"), Error);
  CHECK(floats_of(cache) == std::vector<float>{1, 2, 3, 4});
}

TEST_CASE("results go to the memory that a call names, beside its inputs or over them, on any device") {
  for (const char* name : {"host", "sim"}) {
    CAPTURE(name);
    const Device device(name);
    const Model model = doubler(device);
    const Tensor c = placed_on(device, Tensor::of<float>({3}, {10, 20, 30}));
    const std::vector<float> wanted = {12, 24, 36};

    const Tensor apart = placed_on(device, counted_up(3));
    const Tensor x = placed_on(device, counted_up(3));
    const std::vector<Tensor> results = model({x, c}, writing_to({apart}));
    CHECK(results.at(0).address() == apart.address());
    CHECK(floats_of(apart) == wanted);
    CHECK(floats_of(x) == std::vector<float>{1, 2, 3});

    model({x, c}, writing_to({x}));
    CHECK(floats_of(x) == wanted);

    Tensor callers = Tensor::zeros(DType::f32, {3});
    model({placed_on(device, counted_up(3)), c}, writing_to({callers}));
    CHECK(floats_of(callers) == wanted);
  }
}

TEST_CASE("an output that overlaps a part of an input is what it would be apart from it") {
  for (const char* name : {"host", "sim"}) {
    CAPTURE(name);
    const Device device(name);
    const Model model = doubler(device);
    const int64_t n = 5000;
    for (const int64_t shift : {-1, 1}) {
      CAPTURE(shift);
      const Tensor memory = placed_on(device, counted_up(n + 2));
      const Tensor x = memory.view(DType::f32, {n}, {1}, 4);
      const Tensor y = memory.view(DType::f32, {n}, {1}, 4 + 4 * shift);
      const Tensor c = placed_on(device, counted_up(n));
      const std::vector<float> wanted = floats_of(model({x, c})[0]);
      model({x, c}, writing_to({y}));
      CHECK(floats_of(y) == wanted);
    }
  }
}

TEST_CASE("a value that is read after the output is written keeps the output apart") {
  GraphBuilder graph("two_outputs");
  const auto x = graph.input("x", DType::f32, {"n"});
  const auto minus = graph.add("Neg", {x});
  graph.output(minus, "minus");
  graph.output(graph.add("CumSum", {graph.add("Exp", {x}), graph.constant(Tensor::of<int64_t>({}, {0}))}),
               "s");
  graph.output(graph.add("Softmax", {x}, {{"axis", int64_t{0}}}), "softmax");
  const Device device("host");
  const Model model = built_for(graph, device);
  const Tensor plain = Tensor::of<float>({4}, {0, 1, 2, 3});
  const std::vector<Tensor> wanted = model({plain});
  for (size_t over = 0; over < wanted.size(); ++over) {
    CAPTURE(over);
    const Tensor memory = placed_on(device, plain);
    CallOptions options;
    for (size_t i = 0; i < wanted.size(); ++i)
      options.outputs.push_back(i == over ? memory : Tensor::empty(DType::f32, {4}, device));
    const std::vector<Tensor> made = model({memory}, options);
    for (size_t i = 0; i < wanted.size(); ++i) CHECK(floats_of(made.at(i)) == floats_of(wanted.at(i)));
  }
}

TEST_CASE("memory that does not fit the outputs is refused by name") {
  const Device device("host");
  const Model model = doubler(device);
  const Tensor x = counted_up(4);
  const auto refusal = [&](std::initializer_list<Tensor> outputs) -> std::string {
    try {
      model({x, x}, writing_to(outputs));
    } catch (const Error& error) {
      return error.what();
    }
    return "taken";
  };
  CHECK(refusal({x, x}).find("2 arrays") != std::string::npos);
  CHECK(refusal({counted_up(5)}).find("must be f32[4]") != std::string::npos);
  const std::vector<float> kept(8);
  CHECK(refusal({Tensor::borrow(kept.data(), DType::f32, {4})}).find("to be read") != std::string::npos);
  CHECK(refusal({counted_up(8).view(DType::f32, {4}, {2}, 0)}).find("contiguous") != std::string::npos);
  CHECK_THROWS_WITH_AS(model.submit(std::vector{x, x}, writing_to({counted_up(4)}),
                                    [](const std::vector<Tensor>&, const std::exception_ptr&) {}),
                       doctest::Contains("no memory of the caller's"), Error);
}

}  // namespace heddle::api_test
