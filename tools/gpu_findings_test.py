"""What is read from the output of the phases of tools/gpu_check.sh."""

import gpu_findings
import pytest

INVALID = """========= COMPUTE-SANITIZER
0.250000 s: a queue does its commands in order
========= Invalid __global__ write of size 4 bytes
=========     at heddle_map_1+0x40 in image.cu
=========     by thread (0,0,0) in block (0,0,0)
========= Invalid __global__ write of size 4 bytes
=========     at heddle_map_1+0x40 in image.cu
TEST CASE:  copies between strided views move each element to its place

[doctest] test cases:  2 |  1 passed | 1 failed | 22 skipped
========= ERROR SUMMARY: 2 errors
"""
RACE = """========= Error: Race reported between Write access at heddle_b+0x1 and Read access at heddle_b+0x2
=========     and Write access at heddle_b+0x30 [4 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
# As CUDA 13 names templates, and as older versions name any kernel.
OF_OTHERS = """========= Uninitialized __global__ memory read of size 4 bytes
=========     at void gemmSN_NN_kernel<float, (int)128, cublasStrided<const float>>(T12)+0x8b0
=========     by thread (96,0,0) in block (0,0,0)
=========         Host Frame: heddle_of_a_frame [0x10] in libheddle.so.0
========= Uninitialized __global__ memory read of size 4 bytes
=========     at 0x00000140 in cudnn_pad(float*)
[doctest] test cases:  2 |  2 passed | 0 failed | 22 skipped
========= ERROR SUMMARY: 2 errors
"""
OURS_TOO = """========= Uninitialized __global__ memory read of size 2 bytes
=========     at 0x00000140 in image.cu:12:heddle_move_2
========= Program hit CUDA_ERROR_INVALID_VALUE (error 1) due to "invalid argument" on CUDA API call to cuX.
=========     Saved host backtrace up to driver entry point at error
"""


def test_what_compute_sanitizer_says_is_found_with_the_kernel_it_is_of() -> None:
    assert gpu_findings.sanitizer(INVALID) == {
        "test cases": {"total": 2, "passed": 1, "failed": 1},
        "ended": ["a queue does its commands in order"],
        "said something": ["copies between strided views move each element to its place"],
        "summary": ["2 errors"],
        "ours": ["Invalid __global__ write of size 4 bytes in heddle_map_1, 2 x"],
        "of others": [],
    }
    race = gpu_findings.sanitizer(RACE)
    assert race["summary"] == ["1 hazard displayed (1 error, 0 warnings)"]
    assert race["ours"] == ["Error: Race reported in heddle_b, 1 x"]
    uninitialized = "Uninitialized __global__ memory read of size"
    assert gpu_findings.sanitizer(OF_OTHERS)["of others"] == [
        f"{uninitialized} 4 bytes in gemmSN_NN_kernel, 1 x",
        f"{uninitialized} 4 bytes in cudnn_pad, 1 x",
    ]
    ours = gpu_findings.sanitizer(OURS_TOO)["ours"]
    assert ours[0] == f"{uninitialized} 2 bytes in heddle_move_2, 1 x"
    assert ours[1].startswith("Program hit CUDA_ERROR_INVALID_VALUE")
    assert ours[1].endswith(" in no kernel, 1 x")


@pytest.mark.parametrize(
    ("log", "code", "passes"),
    [
        (OF_OTHERS, 0, True),
        (OF_OTHERS, 9, True),
        (OF_OTHERS, 1, False),
        (OF_OTHERS, None, False),
        (OF_OTHERS + OURS_TOO, 9, False),
        (OF_OTHERS.replace("0 failed", "1 failed"), 9, False),
        (OF_OTHERS.replace("test cases", "assertions"), 9, False),
        (OF_OTHERS + "========= ERROR SUMMARY: 7 errors were not printed. Use --print-limit", 9, False),
        (RACE, 9, False),
        ("", 9, False),
    ],
)
def test_findings_in_kernels_of_others_alone_do_not_fail_a_phase(
    log: str, code: int | None, passes: bool
) -> None:
    assert gpu_findings.sanitizer_passes(code, gpu_findings.sanitizer(log)) is passes
