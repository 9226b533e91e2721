"""The phases of tools/gpu_check.sh, which says how to run this: beside each other, each with a time-out.

What measures time runs alone, after the rest. A phase's findings are the JSON of its last line, or what its
kind of program says at its end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

ROOT = Path(__file__).resolve().parent.parent
PARTS = ("programs", "libraries", "models")
AT_ONCE = 12  # phases; a GPU serves several processes in turns
RESERVE = 125.0  # seconds that the phases alone get at the end
LOG_BYTES = 200_000  # of a log, its begin and its end
GRACE = 1.5  # seconds from SIGTERM, at which doctest says where it is, to SIGKILL
TAIL = 1500  # characters of the log in the result of a phase that is not ok
NOT_FOREIGN = "-tce=*foreign event*,*signalled event*"  # whose events are the double's


@dataclass
class Phase:
    name: str
    command: list[str | Path]
    limit: float
    findings: Callable[[str], dict[str, object]]
    needs: tuple[str, ...] = ()  # which have to be ok
    after: tuple[str, ...] = ()  # which have to have ended: it says itself what it misses of them
    alone: bool = False
    env: dict[str, str] = field(default_factory=dict)


def json_line(log: str) -> dict[str, object]:
    """The last line that is a JSON object."""
    for line in reversed(log.splitlines()):
        if line.startswith("{"):
            try:
                return json.loads(line)
            except json.JSONDecodeError:
                return {}
    return {}


def facts_of(log: str) -> dict[str, object]:
    """What heddle doctor says, and the version of NVIDIA's driver."""
    driver = re.search(r"Driver Version: (\S+)", log)
    kept = ("device", "versions", "facts", "risks", "missing_devices", "verdict")
    told = {name: value for name, value in json_line(log).items() if name in kept}
    return told | ({"driver": driver[1]} if driver else {})


def doctest(log: str) -> dict[str, object]:
    found: dict[str, object] = {}
    for kind in ("test cases", "assertions"):
        counted = re.search(rf"{kind}: +(\d+) \| +(\d+) passed \| +(\d+) failed", log)
        if counted:
            total, passed, failed = map(int, counted.groups())
            found[kind] = {"total": total, "passed": passed, "failed": failed}
    ended = re.findall(r"^\d+\.\d+ s: (.+)$", log, re.MULTILINE)
    if ended:
        found["ended"] = ended
    failed_cases = list(dict.fromkeys(re.findall(r"^TEST CASE:  (.+)$", log, re.MULTILINE)))
    return found | ({"said something": failed_cases} if failed_cases else {})


def sanitizer(log: str) -> dict[str, object]:
    summary = re.findall(r"=+ (?:ERROR|RACECHECK) SUMMARY: (.+)", log)
    kinds = re.findall(r"^=+ ((?:Invalid|Uninitialized|Error|Program hit|Warning: Race|Race).{0,120})", log,
                       re.MULTILINE)  # fmt: skip
    return doctest(log) | {"summary": summary[-1:], "kinds": list(dict.fromkeys(kinds))[:10]}


def pytest_end(log: str) -> dict[str, object]:
    return {"pytest": (log.strip().splitlines() or [""])[-1].strip("= ")}


class Machine:
    """Where the programs and libraries are, and what the environment of a phase is."""

    def __init__(self, double: bool) -> None:
        self.double = double
        base = ROOT / "build" / ("release" if double else "gpu_card")
        if double:
            self.programs = base
            folder = base / "cuda_double"
            if not (folder / "libcuda.so.1").exists():
                sys.exit("gpu_check: --double needs cmake --build --preset cuda")
            self.env = {
                "LD_LIBRARY_PATH": str(folder),
                "HEDDLE_CUDA_IMAGE": str(folder / "kernels"),
                "HEDDLE_TEST_NARROWER": "4",
            }
        else:
            self.unpack(base)
            self.programs = base / "bin"
            self.env = self.environment_there(base)
        self.env |= {"HEDDLE_TUNE": "off", "HEDDLE_DEVICE": "cuda", "PYTHONUNBUFFERED": "1",
                     "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip

    @staticmethod
    def unpack(base: Path) -> None:
        shutil.rmtree(base, ignore_errors=True)
        for part in PARTS:
            archive = ROOT / ".gpu" / f"{part}.tar.xz"
            if not archive.exists():
                print(f"gpu_check: there is no {archive}; tools/gpu_pack.sh makes it", file=sys.stderr)
                sys.exit(2)
            with tarfile.open(archive) as opened:
                opened.extractall(base / "models" if part == "models" else base)
        for library in (base / "lib").iterdir():  # where the wheel has them
            (base / "site" / "heddle" / library.name).symlink_to(library)

    @staticmethod
    def environment_there(base: Path) -> dict[str, str]:
        """cuBLASLt is looked for as beside a wheel: the packages that PyTorch brought are linked there."""
        places = [base / "lib"]
        for folder in map(Path, sys.path):
            if (folder / "nvidia").is_dir():
                (base / "site" / "nvidia").symlink_to(folder / "nvidia")
                places += sorted({path.parent for path in folder.glob("nvidia/*/lib/libcublasLt.so.*")})
                break
        before = os.environ.get("LD_LIBRARY_PATH")
        joined = [*map(str, places), *([before] if before else [])]
        return {"LD_LIBRARY_PATH": ":".join(joined), "PYTHONPATH": str(base / "site")}


def setup_commands() -> str:
    """Of a shell: the model files that are made there, from what was carried."""
    python, models = sys.executable, "build/models"
    carried = "build/gpu_card/models"
    return " && ".join(
        (
            f"mkdir -p {models}/packages/rapidocr-onnxruntime {models}/packages/silero-vad",
            f"cp {carried}/ch_*.onnx {models}/packages/rapidocr-onnxruntime",
            f"cp {carried}/silero*.onnx {models}/packages/silero-vad",
            f"{{ [ -e {models}/minilm.onnx ] || "
            f"{python} tools/gpu_models.py unpack {carried}/minilm.f16 {models}/minilm.onnx; }}",
            f"{python} tools/models/minilm.py --out {models}/minilm.onnx --values {models}/minilm_values.bin",
        )
    )


def facts(machine: Machine) -> Phase:
    doctor = f"{sys.executable} -m heddle doctor --json | {sys.executable} -m json.tool --compact"
    if machine.double:
        return Phase("facts", ["bash", "-c", f"set -o pipefail; uname -a && {doctor}"], 60, facts_of)
    words = "nvidia-smi; nvcc --version; gcc --version; uname -a; nproc; free -g; "
    words += f"{sys.executable} -c 'import torch; print(torch.__version__, torch.cuda.get_device_name())'; "
    return Phase("facts", ["bash", "-c", f"set -o pipefail; {words} {doctor}"], 60, facts_of)


def program(machine: Machine, name: str, limit: float, after: tuple[str, ...] = ()) -> Phase:
    words: list[str | Path] = [sys.executable, ROOT / "tests" / "gpu" / f"{name}.py"]
    return Phase(name, words + ["--double"] * machine.double, limit, json_line, ("module",), after)


def suites(machine: Machine) -> list[Phase]:
    """The programs in C++, and compute-sanitizer over chosen cases of conformance."""
    double = machine.double
    conformance, stress = machine.programs / "cuda_conformance", machine.programs / "stress_test"
    env = {"HEDDLE_TEST_DRIVER": "cuda"} | ({} if double else {"HEDDLE_TEST_CARD": "1"})
    one_case = "-tc=a queue does its commands in order"
    stressed = "-tce=warm calls on thirty-one streams*,*memory pressure*,*memory-pressure*"
    if double:
        stressed = "-tc=two threads call one model and both get right values"
    checks = {
        "memcheck": ("-tc=a queue does*,one module*,many threads*,what only*,outputs*,an output*,copies*,"
                     "convolutions*,a row*"),
        "racecheck": "-tc=a queue does*,one module*,copies*,outputs*,an output*,what only*",
        "racecheck_windows": "-tc=convolutions*,a row*,what a convolution*",
        "initcheck": "-tc=a queue does*,one module*,outputs*,an output*,copies*,convolutions*,a row*",
    }  # fmt: skip
    made = [
        Phase("conformance", [conformance, one_case if double else NOT_FOREIGN], 150, doctest, env=env),
        Phase("stress", [stress, stressed], 150, doctest, ("setup",),
              env={"HEDDLE_TEST_MODELS": str(ROOT / "build" / "models")}),
    ]  # fmt: skip
    for name, cases in checks.items():
        words = ["compute-sanitizer", "--tool", name.split("_")[0], "--error-exitcode", "9", conformance,
                 one_case if double else cases, NOT_FOREIGN, "-d"]  # fmt: skip
        made.append(Phase(name, words, 130, sanitizer, env=env))
    return made


def phases(machine: Machine, out: Path) -> list[Phase]:
    """What others wait for comes first."""
    double = machine.double
    setup = Phase("setup", ["bash", "-c", "true" if double else setup_commands()], 60, json_line)
    export: list[str | Path] = [sys.executable, "tools/models/export_torch.py", "--jobs", "5"]
    export += ["--out", "build/models/torch", "resnet18", "minilm_torch", "mlp", "encoder", "conv1d"]
    exported = [] if double else [Phase("export", export, 120, json_line)]
    test_cuda: list[str | Path] = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    test_cuda += ["tests/python/test_cuda.py", *(["-k", "dlpack"] * double)]
    card = {} if double else {"HEDDLE_TEST_CARD": "1"}
    programs = [program(machine, name, 90) for name in ("mixed_shapes", "coalesced", "ragged", "lost")]
    module = "import heddle; print(heddle.Device('cuda').description)"
    return [
        facts(machine),
        Phase("module", [sys.executable, "-c", module], 60, json_line),
        setup,
        *exported,
        *suites(machine),
        Phase("python", test_cuda, 100, pytest_end, ("module",), env=card),
        *programs,
        program(machine, "exits", 120),
        program(machine, "real_models", 110, ("setup", "export")),
        *([] if double else beside_torch(machine, out)),
    ]


def beside_torch(machine: Machine, out: Path) -> list[Phase]:
    """What needs PyTorch on the same GPU. What is timed chooses algorithms by measurement, as is usual."""
    tuned = {"HEDDLE_TUNE": "on", "HEDDLE_CACHE_DIR": str(ROOT / "build" / "gpu_card" / "cache")}
    start = program(machine, "start", 40, ("export",))
    start.alone, start.env = True, tuned
    return [
        program(machine, "torch_tensors", 60),
        program(machine, "capture", 60),
        bench(out, "bench", 75, tuned),
        bench(out, "bench_bf16", 45, tuned, "--dtype", "bf16", "--batches"),
        start,
    ]


def bench(out: Path, name: str, limit: float, env: dict[str, str], *words: str) -> Phase:
    figures = out / f"gpu_{name}.json"
    command: list[str | Path] = [sys.executable, "bench/models/gpu_bench.py", "--rounds", "3"]
    command += ["--seconds", "0.1", "--json", figures, *words]
    return Phase(name, command, limit, lambda _: read_json(figures), ("module",), ("export",), True, env=env)


def read_json(path: Path) -> dict[str, object]:
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


class Run:
    """All phases of one call: which have ended, and how."""

    def __init__(
        self, machine: Machine, chosen: list[Phase], out: Path, begin: float, seconds: float
    ) -> None:
        self.machine, self.chosen, self.out, self.begin = machine, chosen, out, begin
        self.end = self.begin + seconds
        alone = any(phase.alone for phase in chosen)
        self.end_of_together = max(self.begin + 1, self.end - (RESERVE if alone else 0))
        self.results: dict[str, dict[str, object]] = {}
        self.turn = threading.Condition()
        self.running = 0

    def note(self, phase: Phase, status: str, **more: object) -> None:
        with self.turn:
            self.results[phase.name] = {"phase": phase.name, "status": status, **more}
            self.write()
            self.turn.notify_all()
        print(f"{phase.name}: {status}, at {time.monotonic() - self.begin:.0f} s", flush=True)

    def write(self) -> None:
        ordered = [self.results[phase.name] for phase in self.chosen if phase.name in self.results]
        done = {
            "commit": commit(self.machine.double),
            "double": self.machine.double,
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "seconds": round(time.monotonic() - self.begin, 1),
            "phases": ordered,
        }
        (self.out / "result.json").write_text(json.dumps(done, indent=1) + "\n", encoding="utf-8")

    def execute(self, phase: Phase) -> None:
        log = self.out / "logs" / f"{phase.name}.log"
        end = self.end if phase.alone else self.end_of_together
        begin = time.monotonic()
        limit = min(phase.limit, end - begin)
        if limit <= 0:
            self.note(phase, "not run", needs="time")
            return
        try:
            with log.open("wb") as said:
                code = self.code_of(phase, said, limit)
            self.judge(phase, log, code, round(time.monotonic() - begin, 1))
        except Exception as error:  # what is wrong with one phase must not stop the others
            self.note(phase, "failed", error=f"{type(error).__name__}: {error}")

    def code_of(self, phase: Phase, said: BinaryIO, limit: float) -> int | None:
        """The exit code; None: it had to be ended."""
        started = subprocess.Popen(
            [str(word) for word in phase.command],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            env=os.environ | self.machine.env | phase.env,
            start_new_session=True,
        )
        try:
            return started.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(started.pid, signal.SIGTERM)
            time.sleep(GRACE)
            return None
        finally:  # and what it left behind
            with contextlib.suppress(ProcessLookupError):
                os.killpg(started.pid, signal.SIGKILL)
            started.wait()

    def judge(self, phase: Phase, log: Path, code: int | None, seconds: float) -> None:
        said = log.read_text(encoding="utf-8", errors="replace")
        status = "out of time" if code is None else "ok" if code == 0 else "failed"
        findings = phase.findings(said)
        more: dict[str, object] = {"exit": code, "seconds": seconds, "findings": findings}
        if status != "ok":
            more["tail"] = said[-TAIL:]
        if len(said) > LOG_BYTES:
            log.write_text(
                f"{said[: LOG_BYTES // 4]}\n[...]\n{said[-3 * LOG_BYTES // 4 :]}", encoding="utf-8"
            )
        self.note(phase, status, **more)

    def refusal(self, phase: Phase) -> str:
        """What it needs that is not ok; waits for all that it comes after, and for its turn."""
        chosen = {each.name for each in self.chosen}
        needs = [name for name in phase.needs if name in chosen]
        before = {*needs, *phase.after} & chosen
        if phase.alone:
            before |= {each.name for each in self.chosen if not each.alone}
        with self.turn:
            self.turn.wait_for(lambda: before <= self.results.keys())
            for name in needs:
                if self.results[name]["status"] != "ok":
                    return name
            self.turn.wait_for(lambda: self.running < (1 if phase.alone else AT_ONCE))
            self.running += 1
        return ""

    def run(self, phase: Phase) -> None:
        refused = self.refusal(phase)
        if refused:
            self.note(phase, "not run", needs=refused)
            return
        try:
            self.execute(phase)
        finally:
            with self.turn:
                self.running -= 1
                self.turn.notify_all()

    def run_all(self) -> bool:
        (self.out / "logs").mkdir(parents=True, exist_ok=True)
        threads = [threading.Thread(target=self.run, args=(phase,)) for phase in self.chosen]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        with tarfile.open(self.out / "logs.tar.gz", "w:gz") as archive:
            archive.add(self.out / "logs", "logs")
        shutil.rmtree(self.out / "logs")
        return all(result["status"] == "ok" for result in self.results.values())


def commit(double: bool) -> str:
    """Of the pack, which holds what runs, or of this checkout, whose double runs."""
    carried = ROOT / ".gpu" / "commit"
    if not double and carried.exists():
        return carried.read_text(encoding="utf-8").strip()
    words = ["git", "rev-parse", "HEAD"]
    found = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() if found.returncode == 0 else ""


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(description="see tools/gpu_check.sh")
    parser.add_argument("--double", action="store_true")
    parser.add_argument("out", type=Path)
    parser.add_argument("phases", nargs="*")
    options = parser.parse_args()
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    if any(out.iterdir()):
        parser.error(f"{out} is not empty; it needs a folder of its own")
    machine = Machine(options.double)
    every = phases(machine, out)
    unknown = [name for name in options.phases if name not in {phase.name for phase in every}]
    if unknown:
        parser.error(f"no phase is called {unknown[0]}; there are {' '.join(phase.name for phase in every)}")
    chosen = [phase for phase in every if not options.phases or phase.name in options.phases]
    seconds = float(os.environ.get("GPU_CHECK_SECONDS", "270"))
    right = Run(machine, chosen, out, begin, seconds).run_all()
    print(f"{out / 'result.json'}: {'all phases are ok' if right else 'not all phases are ok'}", flush=True)
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
