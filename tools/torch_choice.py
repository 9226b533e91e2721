"""Which tests of torch_backend run where: host, the doubles of Metal and CUDA, the simulated device."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASE = ROOT / "build" / "release"

# Idle processes take tests from busy ones: whole files would otherwise be left to one at the end.
APART = ("--numprocesses", str(os.cpu_count() or 2), "--dist", "worksteal")

# Tests of threads, which want the machine for themselves. The others run beside each other.
OF_THREADS = ("batching", "exclusive", "no_shared_lock", "on_the_double", "shared_submissions", "threads")
# Minutes each: `make test-long` runs them.
SLOW = "slow_models"

ON_METAL = ("on_the_double", "shared_submissions", "threads", "scripted", "overloads", "exclusive",
            "generate", "predecessor", "cpu_operators", "sorted_places", "two_devices",
            "lost_streams")  # fmt: skip
# One of so many cases of these files on the Metal double; `make test-long` runs them whole.
ON_METAL_SHARED = ("opinfo", "modules", "compile", "dynamo", "in_place", "half_weights")
METAL_SHARE = 24
# Macs as the field met them (tests/metal_double/control.h), and what runs on the oldest as well.
METAL_MACS = NEWEST_MAC, OLDEST_MAC = "26.0-M4", "14.0-M1"
ON_OLDEST = "names or predecessor or (eight_threads and not exits) or compile_it_once or decode or resnet"

ON_CUDA = ("on_cuda", "pinned_on_cuda", "shared_submissions", "threads", "scripted", "exclusive", "unique",
           "two_devices", "cpu_operators", "cpu_operators_on_cuda")  # fmt: skip
# Processes that end with work in flight take long there, and a program of tests/gpu has them on that double.
LEFT_OUT_ON_CUDA = ("-k", "not exits")
ON_CUDA_SHARED = ("opinfo", "overloads", "modules", "compile", "dynamo", "generate", "experts",
                  "sorted_places")  # fmt: skip
CUDA_SHARE = 24
# Of `make test-long`. Left out: PyTorch's fallback to the CPU copies results that nothing has written yet,
# which the double takes for a mistake.
WHOLE_ON_CUDA = (*ON_CUDA_SHARED, "api", "batching", "error_inputs", "examples", "exit", "leases",
                 "no_shared_lock", "predecessor", "random", "refusals", "refused_values")  # fmt: skip
LEFT_OUT_OF_WHOLE = ("-k", "not operator_that_is_not_there")

# The simulated device is asynchronous, its memory is out of the host's reach, and it objects to a submission
# that breaks the protocol or touches memory of another one without order. `make test-long` runs them whole.
ON_SIM_SHARED = ("opinfo", "threads", "in_place", "half_weights", "overloads", "scripted", "exclusive",
                 "generate", "leases", "random", "experts", "sorted_places", "two_devices",
                 "cpu_operators")  # fmt: skip
SIM_SHARE = 24

# With other PyTorchs than .venv's.
ON_OTHER_VERSIONS = ("threads", "api", "modules", "generate", "real_models", "dynamo", "in_place", "exit",
                     "refused_values", "error_inputs", "opinfo_later", "denominator", "overloads",
                     "cpu_operators", "private_names", "changed_weights", "strides")  # fmt: skip


def tests(*names: str) -> list[str]:
    found = [path for name in names for path in sorted(ROOT.glob(f"torch_backend/tests/test_{name}.py"))]
    return [str(path.relative_to(ROOT)) for path in found]


def share(names: tuple[str, ...], of: int) -> list[str]:
    return [*tests(*names), "--share", str(of), *APART]


def on_the_double(mac: str) -> tuple[str, ...]:
    double = RELEASE / "on_the_double" / "libheddle.so.0"
    return ("env", f"LD_PRELOAD={double}", "HEDDLE_DEVICE=metal", f"HEDDLE_METAL_DOUBLE_MAC={mac}")


def on_sim() -> tuple[str, ...]:
    return ("env", "HEDDLE_DEVICE=sim")


def on_cuda_double(release: Path = RELEASE) -> tuple[str, ...]:
    folder = release / "cuda_double"
    kernels = f"HEDDLE_CUDA_IMAGE={folder / 'kernels'}"
    return ("env", f"LD_LIBRARY_PATH={folder}", kernels, "HEDDLE_DEVICE=cuda")
