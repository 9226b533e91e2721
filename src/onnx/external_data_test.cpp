#include "onnx/external_data.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "ir/op.h"
#include "onnx/sample_model.h"

namespace heddle::onnx {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kCount = 5'000;  // large enough to stay in the map

// parent/model/ holds the model, parent/ a file that it must not reach.
struct Folder {
  fs::path parent = fs::temp_directory_path() / ("heddle_external_data_test_" + std::to_string(::getpid()));
  fs::path model = parent / "model";
  std::vector<float> values = std::vector<float>(kCount);

  Folder() {
    fs::create_directories(model / "sub");
    std::iota(values.begin(), values.end(), 0.0f);
    for (const fs::path& path : {model / "w.bin", model / "sub" / "w.bin", parent / "secret.bin"})
      write(path);
    fs::create_symlink(model / "w.bin", model / "inside");
    fs::create_symlink(parent / "secret.bin", model / "escape");
    fs::create_directory_symlink(parent, model / "up");
  }
  ~Folder() { fs::remove_all(parent); }
  void write(const fs::path& path) const {
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(values.data()), kCount * 4);
  }
};

using Entries = std::vector<std::pair<std::string, std::string>>;

SampleModel with_weight(const Entries& entries, int64_t count = kCount) {
  SampleModel m;
  m.input("x", {count});
  auto& w = m.floats("w", {count}, {});
  w.clear_raw_data();
  w.set_data_location(proto::TensorProto::EXTERNAL);
  for (const auto& [key, value] : entries) {
    auto* entry = w.add_external_data();
    entry->set_key(key);
    entry->set_value(value);
  }
  m.node("Add", {"x", "w"}, {"y"}, "add");
  m.output("y");
  return m;
}

}  // namespace

TEST_CASE("external weights are mapped, wherever in the folder they lie") {
  const Folder folder;
  for (const std::string location : {"w.bin", "sub/w.bin", "inside", "./w.bin"}) {
    CAPTURE(location);
    const auto graph = with_weight({{"location", location}}).read({}, folder.model.string());
    if (!graph.ok()) FAIL(to_string(graph.status()));
    const auto result =
        ir::evaluate(*graph, std::vector<ir::Tensor>{ir::Tensor::zeros(ir::DType::kF32, {kCount})});
    REQUIRE(result.ok());
    CHECK(result->front().get(0) == 0);
    CHECK(result->front().get(kCount - 1) == kCount - 1);
  }
}

TEST_CASE("offset and length choose the bytes, aligned or not") {
  const Folder folder;
  for (const int64_t offset : {4, 4096, 8}) {
    const auto graph = with_weight({{"location", "w.bin"},
                                    {"offset", std::to_string(offset)},
                                    {"length", "8000"},
                                    {"checksum", "?"}},
                                   2'000)
                           .read({}, folder.model.string());
    REQUIRE(graph.ok());
    const auto result =
        ir::evaluate(*graph, std::vector<ir::Tensor>{ir::Tensor::zeros(ir::DType::kF32, {2'000})});
    REQUIRE(result.ok());
    CHECK(result->front().get(0) == static_cast<double>(offset / 4));
  }
  const auto odd =
      with_weight({{"location", "w.bin"}, {"offset", "1"}}, 2'000).read({}, folder.model.string());
  CHECK(odd.ok());
}

TEST_CASE("two tensors of one file share one map, which outlives the reader") {
  const Folder folder;
  SampleModel m = with_weight({{"location", "w.bin"}}, 2'000);
  proto::TensorProto second = m.graph().initializer(0);
  second.set_name("v");
  auto* offset = second.add_external_data();
  offset->set_key("offset");
  offset->set_value("8000");
  *m.graph().add_initializer() = second;
  const auto graph = m.read({}, folder.model.string());
  REQUIRE(graph.ok());
  std::vector<ir::Tensor> weights;
  for (const ir::Value& value : graph->values) {
    if (value.is_constant()) weights.push_back(*value.constant);
  }
  REQUIRE(weights.size() == 2);
  CHECK(static_cast<const char*>(weights[1].data()) - static_cast<const char*>(weights[0].data()) == 8'000);
  fs::remove(folder.model / "w.bin");
  CHECK(weights[1].get(1'999) == 3'999);
}

TEST_CASE("external data that is missing, cut short or outside the folder is refused by name") {
  const Folder folder;
  REQUIRE(::mkfifo((folder.model / "pipe").c_str(), 0600) == 0);
  const std::string absolute = (folder.model / "w.bin").string();
  struct Case {
    Entries entries;
    std::string says;
  };
  const std::vector<Case> cases = {
      {{{"location", "gone.bin"}}, "'gone.bin' cannot be opened"},
      {{{"location", "../secret.bin"}}, "outside the model's folder"},
      {{{"location", "sub/../../secret.bin"}}, "outside the model's folder"},
      {{{"location", "sub/../w.bin"}}, "outside the model's folder"},
      {{{"location", absolute}}, "outside the model's folder"},
      {{{"location", "escape"}}, "'escape' leads outside"},
      {{{"location", "up/secret.bin"}}, "'up/secret.bin' leads outside"},
      {{{"location", std::string("w.bin\0x", 7)}}, "outside the model's folder"},
      {{{"location", "sub"}}, "not a regular file"},
      {{{"location", "pipe"}}, "not a regular file"},
      {{{"location", "w.bin"}, {"offset", "4"}}, "has 20000 bytes, but the tensor needs 20000 from offset 4"},
      {{{"location", "w.bin"}, {"offset", "18446744073709551615"}}, "from offset 18446744073709551615"},
      {{{"location", "w.bin"}, {"offset", "18446744073709551616"}}, "offset is '18446744073709551616'"},
      {{{"location", "w.bin"}, {"offset", "-4"}}, "offset is '-4'"},
      {{{"location", "w.bin"}, {"length", "19996"}}, "length is 19996 bytes, but the tensor has 20000"},
      {{{"location", "w.bin"}, {"length", "many"}}, "length is 'many'"},
      {{{"offset", "0"}}, "no location"},
  };
  for (const Case& c : cases) {
    CAPTURE(c.says);
    const auto graph = with_weight(c.entries).read({}, folder.model.string());
    REQUIRE_FALSE(graph.ok());
    CAPTURE(graph.status().message());
    CHECK(graph.status().code() == Code::invalid);
    CHECK(graph.status().message().find("initializer 'w'") != std::string::npos);
    CHECK(graph.status().message().find(c.says) != std::string::npos);
  }
}

}  // namespace heddle::onnx
