"""tools/metal_headers.py: what it says of an SDK of our own making, which is the double but for one thing."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).with_name("metal_headers.py")
DOUBLE = TOOL.parent.parent / "tests" / "metal_double" / "include"
CLANG = shutil.which("clang++-16") or shutil.which("clang++") or ""

# What Apple's usr/include gives them, as far as they need it.
C_LIBRARY = {
    "objc/objc.h": "typedef signed char BOOL; typedef id (*IMP)(id, SEL, ...);\n",
    "objc/message.h": "",
    "limits.h": "",
    "stdint.h": "typedef __INT64_TYPE__ int64_t; typedef __UINT64_TYPE__ uint64_t;\n"
    "typedef __INT32_TYPE__ int32_t; typedef __UINT32_TYPE__ uint32_t;\n"
    "typedef __UINT16_TYPE__ uint16_t; typedef __UINT8_TYPE__ uint8_t;\n"
    "typedef __INTPTR_TYPE__ intptr_t; typedef __INT8_TYPE__ int8_t; typedef __INT16_TYPE__ int16_t;\n",
}
FRAMEWORKS = ("Foundation", "Metal", "MetalPerformanceShaders", "MetalPerformanceShadersGraph")
ROW = "| `newFence` | [MTLDevice](https://developer.apple.com/documentation/metal/mtldevice) | 10.13 |\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    sdk = tmp_path_factory.mktemp("sdk")
    for name in FRAMEWORKS:
        headers = sdk / "System" / "Library" / "Frameworks" / f"{name}.framework" / "Headers"
        shutil.copytree(DOUBLE / name, headers)
    include = sdk / "usr" / "include"
    shutil.copytree(DOUBLE / "dispatch", include / "dispatch")
    shutil.copy(DOUBLE / "Block.h", include)
    for name, text in C_LIBRARY.items():
        (include / name).parent.mkdir(exist_ok=True)
        (include / name).write_text(text)
    return sdk


def run(
    sdk: Path, folder: Path, *more: str, source: str = "", row: str = ROW
) -> subprocess.CompletedProcess[str]:
    (folder / "api.md").write_text(row)
    (folder / "one.mm").write_text(f"#import <Metal/Metal.h>\n{source}\n")
    command = [sys.executable, str(TOOL), str(sdk), "--compiler", CLANG, "--list", str(folder / "api.md"),
               "--source", str(folder / "one.mm"), *more]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)


def changed(whole: Path, folder: Path, name: str, old: str, new: str) -> Path:
    sdk = folder / "sdk"
    shutil.copytree(whole, sdk)
    framework, header = name.split("/")
    path = sdk / "System" / "Library" / "Frameworks" / f"{framework}.framework" / "Headers" / header
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    return sdk


def test_an_sdk_that_has_all_as_the_double_has_it_differs_in_nothing(whole: Path, tmp_path: Path) -> None:
    done = run(whole, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("0 differ; 0 versions differ; 1 of 1 files compile without a warning\n")
    assert int(done.stdout.split(" types, ")[1].split(" ")[0]) > 400


@pytest.mark.parametrize(
    ("header", "old", "new", "told"),
    [
        ("Metal/MTLDevice.h", "- (nullable id<MTLFence>)newFence NS_RETURNS_RETAINED;", "",
         "MTLDevice: -newFence is not in the SDK"),
        ("Metal/MTLBlitCommandEncoder.h", "value:(uint8_t)value", "value:(uint32_t)value",
         "MTLBlitCommandEncoder: -fillBuffer:range:value: is void(id<MTLBuffer>, "),
        ("Metal/MTLCommandBuffer.h", "ErrorTimeout = 2,", "ErrorTimeout = 12,",
         "MTLCommandBufferErrorTimeout is 2, in the SDK 12"),
        ("Metal/MTLCommandBuffer.h", "MTLCommandBufferErrorTimeout = 2,", "",
         "MTLCommandBufferErrorTimeout: the SDK has no such enumerator"),
        ("Metal/MTLEvent.h", "(readonly) dispatch_queue_t", "(readonly, nonatomic) dispatch_queue_t",
         "MTLSharedEventListener: property dispatchQueue is atomic readonly, in the SDK nonatomic readonly"),
        ("Metal/MTLTypes.h", "NSUInteger width, height, depth;", "NSUInteger width, height; uint32_t depth;",
         "struct MTLSize is"),
        ("MetalPerformanceShaders/MetalPerformanceShaders.h", "@interface MPSMatrixCopy : MPSKernel {",
         "@interface MPSMatrixCopy : NSObject {",
         "MPSMatrixCopy: descends from MPSKernel, in the SDK from NSObject"),
        ("MetalPerformanceShaders/MetalPerformanceShaders.h",
         "(id<MTLCommandBuffer>)commandBuffer NS_DESIGNATED_INITIALIZER;",
         "(id<MTLCommandBuffer>)commandBuffer;",
         "MPSCommandBuffer: -initWithCommandBuffer: is designated, in the SDK the contrary"),
    ],
)  # fmt: skip
def test_what_the_sdk_has_otherwise_is_named(
    whole: Path, tmp_path: Path, header: str, old: str, new: str, told: str
) -> None:
    done = run(changed(whole, tmp_path, header, old, new), tmp_path)
    assert done.returncode == 1
    assert told in done.stdout, done.stdout + done.stderr
    assert "1 differ" in done.stdout or "dispatchQueue" in told


def test_a_version_that_the_sdk_gives_otherwise_is_named(whole: Path, tmp_path: Path) -> None:
    declared = "- (nullable id<MTLFence>)newFence NS_RETURNS_RETAINED"
    later = "__attribute__((availability(macos, introduced=12.3)))"
    sdk = changed(whole, tmp_path, "Metal/MTLDevice.h", f"{declared};", f"{declared} {later};")
    done = run(sdk, tmp_path)
    assert done.returncode == 1
    assert "newFence of MTLDevice is there since macOS 10.13, by the SDK since 12.3" in done.stdout
    assert run(sdk, tmp_path, row=ROW.replace("10.13", "12.3")).returncode == 0


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("id f(id<MTLDevice> device) { return [device newFenc]; }", "newFenc"),
        ("int f(int x) { if (true) { int x = 1; return x; } return x; }", "-Wshadow"),
        ("void g() __attribute__((availability(macos, introduced=15.0)));\nvoid f() { g(); }",
         "-Wunguarded-availability"),
    ],
)  # fmt: skip
def test_a_source_that_does_not_compile_against_it_is_named(
    whole: Path, tmp_path: Path, source: str, told: str
) -> None:
    done = run(whole, tmp_path, "--json", source=source)
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["names_that_differ"] == []
    assert result["sources_that_compile"] == 0
    assert told in "\n".join(result["diagnostics"][str(tmp_path / "one.mm")])


def test_a_header_beside_a_source_does_not_stand_in_for_the_systems(whole: Path, tmp_path: Path) -> None:
    (tmp_path / "limits.h").write_text("#error not the system's\n")
    done = run(whole, tmp_path, source="#include <limits.h>")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_folder_that_is_no_sdk_is_refused_by_name(tmp_path: Path) -> None:
    done = run(tmp_path, tmp_path)
    assert done.returncode == 2
    assert "it has no System/Library/Frameworks" in done.stderr
