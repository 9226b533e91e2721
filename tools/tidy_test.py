"""Every rule of tidy fires on a bad sample and stays quiet on a good one."""

import ast
import re
from pathlib import Path

import pytest
import tidy
from tidy_rules import documents, globals_and_locks, layers, scopes
from tidy_rules.tree import File, Tree

MANUAL = "// what it is\n#pragma once\n"
LONG_BODY = "int f() {\n" + "  g();\n" * 80 + "}\n"
SHORT_BODY = "int f() {\n" + "  g();\n" * 20 + "}\n"
SPLIT_BODY = "namespace a {\nclass B {\n" + "  int f() { return 1; }\n" * 90 + "};\n}\n"
PYTHON_LONG = "def f():\n" + "    g()\n" * 80


def of(tmp_path: Path, files: dict[str, str]) -> Tree:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Tree.read(tmp_path)


def rules(tmp_path: Path, files: dict[str, str]) -> set[str]:
    return {finding.rule for finding in tidy.findings(of(tmp_path, files))}


# Metal's API: a header of the double, a driver that uses it, and the list that must name what is used.
METAL_HEADER = (
    MANUAL + "@protocol MTLDevice\n- (id)newBufferWithLength:(int)n options:(int)o;\n"
    "- (id)reverseTensor:(id)t name:(id)n;\n@end\n"
)
METAL_DRIVER = "id f(id<MTLDevice> d) { return [d newBufferWithLength:g(1 ? 2 : 3) options:[d h]]; }\n"
METAL_PAGE = "[MTLDevice](https://developer.apple.com/documentation/metal/mtldevice) | 10.11 |\n"
METAL_ROWS = f"| `MTLDevice` | {METAL_PAGE}| `newBufferWithLength:options:` | {METAL_PAGE}"
METAL_OPERATION = f"{METAL_ROWS}| `reverseTensor:name:` | {METAL_PAGE}"


def metal_api(document: str) -> dict[str, str]:
    header = "tests/metal_double/include/Metal/MTLDevice.h"
    return {header: METAL_HEADER, "src/drivers/metal/a.mm": METAL_DRIVER, "docs/metal-api.md": document}


# rule, what breaks it, the nearest thing that does not
SAMPLES = [
    ("arrows", {"src/base/a.cpp": '#include "ir/graph.h"\n'}, {"src/ir/a.cpp": '#include "base/a.h"\n'}),
    ("arrows", {"src/onnx/a.cpp": '#include "device/a.h"\n'}, {"src/onnx/a.cpp": '#include "ir/a.h"\n'}),
    ("arrows", {"src/runtime/a.cpp": '#include "drivers/host/a.h"\n'},
     {"src/drivers/host/a.cpp": '#include "drivers/host/b.h"\n'}),
    ("arrows", {"src/drivers/host/a.cpp": '#include "drivers/metal/b.h"\n'},
     {"src/drivers/host/a.cpp": '#include "device/b.h"\n'}),
    ("arrows", {"src/ir/a.cpp": '#include "../base/a.h"\n'},
     {"src/api/a.cpp": '#include "drivers/host/a.h"\n'}),
    ("arrows", {"python/a.cpp": '#include "runtime/a.h"\n'},
     {"python/a.cpp": "#include <heddle/heddle.h>\n"}),
    ("arrows", {"src/ir/a.cpp": "#include <heddle/heddle.h>\n"},
     {"src/api/a.cpp": "#include <heddle/heddle.h>\n"}),
    ("arrows", {"tests/metal_double/graph/a.mm": '#include "ir/ops/walk.h"\n'},
     {"tests/metal_double/graph/a_test.mm": '#include "ir/op.h"\n'}),
    ("third-party", {"src/plan/a.cpp": "#include <dnnl.hpp>\n"},
     {"src/drivers/host/a.cpp": "#include <dnnl.hpp>\ndnnl::engine e();\n"}),
    ("third-party", {"src/api/a.cpp": "int n() { return dnnl_version()->major; }\n"},
     {"src/api/a.cpp": "// dnnl is the host's\nconst char* s() { return \"dnnl\"; }\n"}),
    ("third-party", {"src/ir/a.cpp": '#include "onnx.pb.h"\n'}, {"src/onnx/a.cpp": '#include "onnx.pb.h"\n'}),
    ("third-party", {"src/api/a.cpp": "#include <nanobind/nanobind.h>\n"},
     {"python/a.cpp": "#include <nanobind/nanobind.h>\n"}),
    ("third-party", {"python/a.cpp": "#include <ATen/ATen.h>\n"},
     {"torch_backend/csrc/a.cpp": "#include <ATen/ATen.h>\nat::Tensor f();\n"}),
    ("third-party", {"torch_backend/csrc/ops/a.cpp": "at::Tensor f();\n"},
     {"torch_backend/csrc/ops/a.cpp": '#include "call.h"\nheddle::torch_backend::Results f();\n'}),
    ("names", {"src/ir/utils/a.cpp": "\n"}, {"src/ir/ops/a.cpp": "\n"}),
    ("names", {"src/ir/graph_impl.cpp": "\n"}, {"src/ir/simple.cpp": "\n"}),
    ("headers", {"src/ir/a.h": "// what it is\n"}, {"src/ir/a.h": MANUAL}),
    ("headers", {"src/ir/a.h": "#pragma once\nint f();\n"}, {"src/ir/a.h": MANUAL + "int f();\n"}),
    ("file-size", {"src/ir/a.cpp": "\n" * 501}, {"src/ir/a.cpp": "\n" * 500}),
    ("file-size", {"include/heddle/heddle.h": MANUAL + "\n" * 934},
     {"include/heddle/heddle.h": MANUAL + "\n" * 933}),
    ("contract-size", {f"src/device/{c}.h": MANUAL + "\n" * 320 for c in "ab"},
     {f"src/device/{c}.h": MANUAL + "\n" * 290 for c in "ab"}),
    ("line-length", {"src/ir/a.cpp": "x" * 111}, {"src/ir/a.cpp": "x" * 110}),
    ("function-size", {"src/ir/a.cpp": LONG_BODY}, {"src/ir/a.cpp": SHORT_BODY}),
    ("metal-api", metal_api(METAL_ROWS.replace("options:", "")), metal_api(METAL_ROWS)),
    ("metal-api", metal_api(f"{METAL_ROWS}| `MTLOther` | {METAL_PAGE}"), metal_api(METAL_ROWS)),
    ("metal-api", metal_api(METAL_ROWS.replace("10.11", "")), metal_api(METAL_ROWS)),
    ("metal-api", metal_api(METAL_OPERATION),
     metal_api(f"{METAL_OPERATION}## What operations mean\n| reverseTensor | turns axes round |\n")),
    ("function-size", {"src/ir/a.cpp": "namespace a {\n" + LONG_BODY + "}\n"}, {"src/ir/a.cpp": SPLIT_BODY}),
    ("function-size", {"tools/a.py": PYTHON_LONG}, {"tools/a.py": "def f():\n    g()\n"}),
    ("locks", {"src/ir/a.cpp": "std::mutex m;\n"}, {"src/base/a.cpp": "std::mutex m;\n"}),
    ("locks", {"tests/host_runtime/a.cpp": "std::lock_guard g(m);\n"},
     {"tests/host_runtime/a.cpp": "auto h = g.lock();\n"}),
    ("locks", {"python/a.cpp": "void f() { std::recursive_mutex m; }\n"},
     {"python/a.cpp": "// no recursive_mutex\n"}),
    ("threads", {"src/ir/a_test.cpp": "void f() { std::thread t(g); }\n"},
     {"src/ir/a_test.cpp": "void f() { std::this_thread::yield(); Thread t(g); }\n"}),
    ("threads", {"src/ir/a.cpp": "std::stop_callback c(token, f);\n"},
     {"src/ir/a.cpp": "StopCallback c(token, f);\n"}),
    ("threads", {"python/a.cpp": "void f() { worker.detach(); }\n"},
     {"python/a.cpp": "void f() { worker.join(); }\n"}),
    ("atomics", {"src/ir/a.cpp": "void f() { x.load(std::memory_order_relaxed); }\n"},
     {"src/ir/a.cpp": "void f() { x.load_relaxed(); }\n"}),
    ("atomics", {"src/ir/a.cpp": "std::atomic<int> x;\n"},
     {"src/base/atomic.h": MANUAL + "class A { std::atomic<int> x; };\n"}),
    ("sleep", {"src/ir/a_test.cpp": "void f() { std::this_thread::sleep_for(1ms); }\n"},
     {"src/ir/a_test.cpp": "void f() { q.pop(Deadline::in(1ms)); }\n"}),
    ("sleep", {"tests/a_test.py": "time" + ".sleep(1)\n"}, {"demo/a.py": "time" + ".sleep(1)\n"}),
    ("environment", {"src/ir/a.cpp": 'auto* p() { return getenv("X"); }\n'},
     {"src/api/a.cpp": 'auto* p() { return getenv("X"); }\n'}),
    ("streams", {"src/ir/a.h": MANUAL + "class A {\n  Stream& stream_;\n};\n"},
     {"src/ir/a.h": MANUAL + "class A {\n  void f(Stream& stream);\n};\n"}),
    ("to-do", {"src/ir/a.cpp": "// TODO: later\n"}, {"src/ir/a.cpp": "// TODO(ada): later\n"}),
    ("process-state", {"src/ir/a.cpp": "namespace a {\nint count = 0;\n}\n"},
     {"src/ir/a.cpp": "namespace a {\nconst int count = 0;\nint f(int x = 0);\n}\n"}),
    ("process-state", {"src/ir/a.cpp": "int f() {\n  static int count = 0;\n  return ++count;\n}\n"},
     {"src/ir/a.cpp": "int f() {\n  static const int count = g();\n  return count;\n}\n"}),
    ("process-state", {"src/ir/a.cpp": "S f() {\n  static constinit MadeOnce<S> a;\n  return a.get();\n}\n"},
     {"src/ir/a.cpp": "S f() {\n  static constinit MadeOnce<const S> a;\n  return a.get();\n}\n"}),
    ("process-state", {"src/ir/a.cpp": "int f() {\n  static Map<const int, int> s;\n  return s[1];\n}\n"},
     {"src/ir/a.cpp": "const Map<int, int> kSeen{{1, 2}};\n"}),
    ("process-state", {"src/ir/a.cpp": "Map<const int, int> seen;\n"},
     {"src/ir/a.cpp": "static Map<const int, int> seen();\n"}),
    ("process-state", {"src/ir/a.cpp": "Cache g_cache{8};\n"},
     {"src/ir/a.cpp": "Cache make_cache(int n);\n"}),
    ("process-state", {"src/ir/a.cpp": "thread_local int depth = 0;\n"},
     {"src/api/a.cpp": "thread_local int depth = 0;\n"}),
    ("concurrency", {"src/ir/a.h": MANUAL + "class A {\n  Guarded<int, Rank::kLog> x_;\n};\n"},
     {"src/ir/a.h": MANUAL + "class A {\n  Guarded<int, Rank::kLog> x_;\n};\n",
      "docs/concurrency.md": "| file | member |\n|---|---|\n| `ir/a.h` | `x_` | why |\n"}),
    ("concurrency", {"torch_backend/csrc/a.cpp": "struct A {\n  std::mutex lock;\n};\n"},
     {"torch_backend/csrc/a.cpp": "struct A {\n  std::mutex lock;\n};\n",
      "docs/concurrency.md": "| f | m |\n|---|---|\n| `torch_backend/csrc/a.cpp` | `lock` | why |\n"}),
    ("concurrency", {"docs/concurrency.md": "| `ir/a.h` | `gone_` | why |\n"},
     {"src/ir/a.cpp": "int f(Atomic<int>& x) { Atomic<int> y; return g(x, y); }\n"}),
    ("scenarios", {"src/ir/a_test.cpp": 'void f() { explore({"pool", 2, 3}, body); }\n'},
     {"src/ir/a_test.cpp": 'void f() { explore({"pool", 2, 3}, body); }\n',
      "docs/concurrency.md": "| `pool` | 2 | 3 | 7 |\n"}),
    ("scenarios", {"docs/concurrency.md": "| `pool` | 2 | 3 | 7 |\n"},
     {"docs/concurrency.md": "| `pool` | 2 | 3 | 7 |\n", "src/ir/a_test.cpp": 'auto all = {"pool"};\n'}),
    ("syntax", {"tools/a.py": "def f(:\n"}, {"tools/a.py": "def f():\n    g()\n"}),
    ("links", {"README.md": "[a](docs/none.md)\n"},
     {"README.md": "[a](docs/a.md#top-part)\n", "docs/a.md": "# Top part\n"}),
    ("links", {"README.md": "[a](#none)\n# Some\n"}, {"README.md": "[a](#some)\n# Some\n\n`[x](y)`\n"}),
    ("named-tests", {"docs/parity.md": '| x | `"it holds"` |\n'},
     {"docs/parity.md": '| x | `"it holds"` |\n', "src/ir/a_test.cpp": 'TEST_CASE("it "\n  "holds") {}\n'}),
    ("named-tests", {"docs/metal-api.md": "| x | `test_it` |\n"},
     {"docs/metal-api.md": "| x | `a_test.py::test_it` |\n", "tests/a_test.py": "def test_it():\n    f()\n"}),
    ("parity", {"docs/parity.md": "| h |\n|---|\n| nothing said |\n"},
     {"docs/parity.md": "| h |\n|---|\n| not offered, because |\n"}),
    ("faults", {"docs/faults.md": "| C1 races | none |\n"},
     {"docs/faults.md": "| C1 races | open: no test |\n"}),
    ("faults", {"docs/faults.md": "| C1 races | `a_lock` |\n"},
     {"docs/faults.md": "| C1 races | `a_lock` |\n", "models/broken/a_lock.patch": "Removes: a\n"}),
    ("commands", {"Makefile": "demo:\n", "README.md": "```\nmake dmeo\n```\n"},
     {"Makefile": "demo:\n", "README.md": "```\nmake demo\n```\nwe make things\n"}),
    ("commands", {"README.md": "run `bench/none_bench.py`\n"},
     {"README.md": "run `bench/a_bench.py`\n", "bench/a_bench.py": "\n"}),
    ("examples", {"README.md": "```cpp ignore\n```\n"}, {"README.md": "```cpp\n```\n"}),
    ("suppressions", {"tests/a.supp": "race:heddle::host\n"}, {"tests/a.supp": "# why\nrace:^dnnl::x\n"}),
    ("suppressions", {"tests/a.supp": "race:^c10::TensorImpl::~TensorImpl\n"},
     {"tests/a.supp": "race:^std::__exception_ptr::exception_ptr::_M_release\n"}),
    ("version",
     {"CMakeLists.txt": "project(heddle VERSION 0.1.0)\n", "pyproject.toml": 'version = "0.2.0"\n'},
     {"CMakeLists.txt": "project(heddle VERSION 0.1.0)\n", "pyproject.toml": 'version = "0.1.0"\n'}),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "bad", "good"), SAMPLES)
def test_a_rule_fires_on_the_bad_sample_and_not_on_the_good_one(
    tmp_path: Path, rule: str, bad: dict[str, str], good: dict[str, str]
) -> None:
    assert rule in rules(tmp_path / "bad", bad)
    assert rule not in rules(tmp_path / "good", good)


def test_every_rule_has_a_sample() -> None:
    sources = (Path(__file__).parent / "tidy_rules").glob("*.py")
    text = "".join(path.read_text() for path in sources)
    known = set(re.findall(r'Finding\((?:[^()]|\([^()]*\))*?, "([\w-]+)"', text))
    known |= set(re.findall(r'Ban\("([\w-]+)"', text))
    assert len(known) > 15
    assert known == {rule for rule, _, _ in SAMPLES}


def test_every_folder_that_a_rule_names_exists() -> None:
    root = Path(__file__).resolve().parent.parent
    named = {f"src/{part}" for part in layers.ARROWS} | set(documents.FOLDERS.split("|"))
    for path in (Path(__file__).parent / "tidy_rules").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named |= set(re.findall(r"^(?:src|include|tests|bench|python|cli)(?:/[\w.]+)*$", node.value))
    assert len(named) > 20
    assert not {name for name in named if not (root / name).exists()}


def test_comments_and_literals_are_not_code() -> None:
    text = "int a = 1'000;  // std::mutex\nchar c = '\"';\n"
    text += 'auto s = R"(std::mutex ")";\n/* std::\nmutex */ int b;\n'
    code = File("src/ir/a.cpp", text).code
    assert "mutex" not in code
    assert "1'000" in code
    assert "int b;" in code
    assert code.count("\n") == text.count("\n")


def test_constructors_with_braced_members_are_one_function() -> None:
    code = "A::A(int x) : a_{x}, b_{std::move(x)} {\n  f();\n}\nint g() { return 1; }\n"
    found = [scope for scope in scopes.parse(code)[0] if scope.kind == "function"]
    assert [code[scope.end] for scope in found] == ["}", "}"]
    assert [scope.head.strip().split("(")[0] for scope in found] == ["A::A", "int g"]


@pytest.mark.parametrize(
    ("code", "kinds"),
    [
        ("void f(int a = 0, B b = {}) const {\n}\n", ["function"]),
        ("struct A {\n  void f(B b = {}) { g(); }\n};\n", ["type", "function"]),
        ("struct A {\n  A(B b = B(C(0))) : b_(f(b)) {}\n};\n", ["type", "function"]),
        ("enum class E : uint8_t { a, b };\n", ["type"]),
        ("const int table[] = {1, 2};\nint x{f(3)};\n", ["value", "value"]),
        ("bool operator==(const A& a, const A& b) { return true; }\n", ["function"]),
        ("namespace a::b {\ntemplate <class T>\nT f(T t) {\n}\n}\n", ["namespace", "function"]),
    ],
)
def test_scopes_are_told_apart(code: str, kinds: list[str]) -> None:
    assert [scope.kind for scope in scopes.parse(code)[0]][: len(kinds)] == kinds


@pytest.mark.parametrize(
    ("declaration", "name"),
    [
        ("Atomic<uint64_t> reached_{0};", "reached_"),
        ("mutable Guarded<std::map<int, std::pair<A, B>>, Rank::kLog> state_;", "state_"),
        ("std::array<Padded<Atomic<int>>, 8> stripes_;", "stripes_"),
        ("std::unique_ptr<Atomic<int>[]> words_;", "words_"),
        ("Atomic<int>& of(int x);", None),
        ("using Word = Atomic<int>;", None),
    ],
)
def test_locks_and_atomics_are_found_by_member(tmp_path: Path, declaration: str, name: str | None) -> None:
    tree = of(tmp_path, {"src/ir/a.h": MANUAL + f"class A {{\n  {declaration}\n}};\n"})
    assert [lock.name for lock in globals_and_locks.locks(tree)] == ([name] if name else [])
