"""The stages of check.py for heddle-torch: which tests of PyTorch's device run on which device."""

import sys
from collections.abc import Callable

import torch_choice
from counts import Count
from stage import WARNINGS_ARE_ERRORS, Log, build, run_pytest
from torch_choice import APART


def install_packages(log: Log) -> bool:
    """heddle and heddle-torch into .venv, with warnings as errors like the presets."""
    return log.run("env", f"CMAKE_ARGS={WARNINGS_ARE_ERRORS}", "tools/setup.sh", "torch")


def torch_stage(log: Log) -> Count:
    """The PyTorch device, of heddle-torch: on the host, and what runs threads on the doubles as well."""
    if not install_packages(log):
        return Count(0, 1)
    of_threads = torch_choice.tests(*torch_choice.OF_THREADS)
    elsewhere = of_threads + torch_choice.tests(torch_choice.SLOW)
    others = [name for name in torch_choice.tests("*") if name not in elsewhere]
    count = run_pytest(log, *others, *APART)
    count += run_pytest(log, *of_threads)
    count += torch_on_sim(log, torch_choice.SIM_SHARE)
    if sys.platform == "darwin":  # its Metal is Apple's, and there is no CUDA
        return count
    return count + torch_on_metal(log) + torch_on_cuda(log)


def torch_on_sim(log: Log, of: int) -> Count:
    shared = torch_choice.share(torch_choice.ON_SIM_SHARED, of)
    return run_pytest(log, *shared, launcher=torch_choice.on_sim())


def torch_on_metal(log: Log) -> Count:
    if not build(log, "metal-double", "release", "heddle_on_the_double"):
        return Count(0, 1)
    choice, newest, oldest = torch_choice, torch_choice.NEWEST_MAC, torch_choice.OLDEST_MAC
    also = choice.tests(*choice.ON_METAL, "modules", "compile", "dynamo")
    of_threads = [name for name in choice.ON_METAL if name in choice.OF_THREADS]
    others = [name for name in choice.ON_METAL if name not in choice.OF_THREADS]
    count = Count()
    for mac, selection in (
        (newest, choice.tests(*of_threads)),
        (newest, [*choice.tests(*others), *APART]),
        (newest, choice.share(choice.ON_METAL_SHARED, choice.METAL_SHARE)),
        (oldest, [*also, "-k", choice.ON_OLDEST, *APART]),
        (oldest, choice.share(("opinfo",), choice.METAL_SHARE)),
    ):
        count += run_pytest(log, *selection, launcher=choice.on_the_double(mac))
    return count


def torch_on_cuda(log: Log) -> Count:
    if not build(log, "cuda", "release", "cuda_in_its_place"):
        return Count(0, 1)
    launcher = torch_choice.on_cuda_double()
    alone = torch_choice.tests(*torch_choice.ON_CUDA)
    shared = torch_choice.share(torch_choice.ON_CUDA_SHARED, torch_choice.CUDA_SHARE)
    return run_pytest(log, *alone, *torch_choice.LEFT_OUT_ON_CUDA, launcher=launcher) + run_pytest(
        log, *shared, launcher=launcher
    )


def torch_whole_stage(log: Log) -> Count:
    """All that the stage torch runs a share of."""
    built = (
        log.run("tools/setup.sh", "torch")
        and build(log, "metal-double", "release", "heddle_on_the_double")
        and build(log, "cuda", "release", "cuda_in_its_place")
    )
    if not built:
        return Count(0, 1)
    on_metal = torch_choice.share(torch_choice.ON_METAL_SHARED, of=1)
    on_cuda = [*torch_choice.share(torch_choice.WHOLE_ON_CUDA, of=1), *torch_choice.LEFT_OUT_OF_WHOLE]
    count = run_pytest(log, *torch_choice.tests(torch_choice.SLOW))
    for mac in torch_choice.METAL_MACS:
        count += run_pytest(log, *on_metal, launcher=torch_choice.on_the_double(mac))
    count += torch_on_sim(log, of=1)
    return count + run_pytest(log, *on_cuda, launcher=torch_choice.on_cuda_double())


OTHER_VERSIONS = ("2.14.1", "2.15.0")


def torch_versions_stage(log: Log) -> Count:
    """Other PyTorchs than .venv's: ON_OTHER_VERSIONS, and a share of OpInfo's samples."""
    if not log.run("tools/setup.sh", "package"):
        return Count(0, 1)
    tests = torch_choice.tests(*torch_choice.ON_OTHER_VERSIONS)
    samples = torch_choice.share(("opinfo",), torch_choice.SIM_SHARE)
    count = Count()
    for version in OTHER_VERSIONS:
        if not log.run(sys.executable, "tools/other_torch.py", version):
            return count + Count(0, 1)
        python = (f"build/torch-{version}/venv/bin/python",)
        count += run_pytest(log, *tests, python=python) + run_pytest(log, *samples, python=python)
    return count


def torch_sanitizer_stage(name: str) -> Callable[[Log], Count]:
    """The PyTorch device under a sanitizer: on the host, and what runs threads also on the Metal double."""
    # A sanitizer does not survive the fork of a process with threads: docs/concurrency.md.
    without = ("-k", "not forked and not data_loader_workers")
    # The samples of OpInfo are run by one thread.
    on_host = [
        test for test in torch_choice.tests("*") if name == "asan" or not test.endswith("/test_opinfo.py")
    ]

    def stage(log: Log) -> Count:
        if not install_packages(log):
            return Count(0, 1)
        total = Count()
        for device, tests in (("host", on_host), ("metal", torch_choice.tests(*torch_choice.ON_METAL))):
            launcher = ("env", f"HEDDLE_DEVICE={device}", sys.executable, "tools/torch_sanitized.py", name)
            total += run_pytest(log, *tests, *without, launcher=launcher)
        return total

    return stage
