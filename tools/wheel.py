"""Build wheels of heddle and heddle-torch, and run each in an empty environment: what `make wheel` does.

usage: wheel.py [--out FOLDER] [--only heddle] [--nvcc FILE]

A wheel of heddle is made for Python 3.10, for 3.11, and for the stable ABI of 3.12, which later versions use,
by the interpreters that are on this machine. heddle-torch is made for the interpreter that runs this program,
against its torch and heddle. With --nvcc heddle's wheels hold kernels for NVIDIA's GPUs; without it they hold
none, whether or not the machine has an nvcc. Neither needs a package of NVIDIA's. auditwheel puts oneDNN,
protobuf and libgomp into heddle's wheel under names of their own, and names the lowest manylinux policy that
the result keeps.

Each wheel is then installed into an environment that holds nothing but what it declares. There the README's
first Python example (for heddle-torch: its PyTorch example) is run, and every library that ours need must
come from that environment or be on manylinux's list.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from examples import extract

ROOT = Path(__file__).resolve().parent.parent
WORK = ROOT / "build" / "wheels"
VERSIONS = ("3.10", "3.11", "3.12", "3.13")
STABLE_FROM = "3.12"
# heddle-torch gets these from the packages that it depends on.
FROM_PACKAGES = ("libheddle.so.0", "libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so")
# The part of manylinux's list that we use: glibc and GCC's two run times.
OF_THE_SYSTEM = ("ld-linux", "libc.", "libm.", "libpthread.", "libdl.", "librt.", "libutil.", "libgcc_s.",
                 "libstdc++.")  # fmt: skip


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path = ROOT) -> str:
    words = [str(word) for word in command]
    done = subprocess.run(words, env=env, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)  # fmt: skip
    if done.returncode != 0:
        sys.exit(
            f"'{' '.join(words)}' failed with {done.returncode}:\n{done.stdout[-6000:]}{done.stderr[-6000:]}"
        )
    return done.stdout


def interpreters() -> dict[str, Path]:
    """By version: those in PATH, of pyenv, and the one that runs this program."""
    found: dict[str, Path] = {}
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    for version in VERSIONS:
        in_path = shutil.which(f"python{version}")
        places = [*sorted(pyenv.glob(f"{version}.*/bin/python")), *([Path(in_path)] if in_path else [])]
        if sys.version_info[:2] == tuple(map(int, version.split("."))):
            places.append(Path(sys.executable))
        if places:
            found[version] = places[0]
    return found


def environment(name: str, python: Path, *requirements: str | Path) -> Path:
    """A virtual environment of that name with these packages; its interpreter."""
    folder = WORK / name
    shutil.rmtree(folder, ignore_errors=True)
    run(python, "-m", "venv", folder)
    own = folder / "bin" / "python"
    run(own, "-m", "pip", "install", "-q", "--disable-pip-version-check", *requirements, env=clean(own))
    return own


def clean(python: Path) -> dict[str, str]:
    """The variables that pip and a program get: nothing that leads to this checkout."""
    kept = {key: value for key, value in os.environ.items() if key.startswith("PIP_")}
    return kept | {"PATH": f"{python.parent}:/usr/bin:/bin", "HOME": str(WORK)}


def build(python: Path, source: Path, *settings: str) -> Path:
    """The wheel as the build makes it."""
    folder = Path(tempfile.mkdtemp(dir=WORK))
    path = f"{python.parent}:{os.environ['PATH']}"
    run(python, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-build-isolation",
        "--no-deps", *(f"--config-settings={setting}" for setting in settings), "-w", folder, source,
        env=os.environ | {"PATH": path, "HEDDLE_PYTHON": sys.executable, "CXX": os.environ.get("CXX", "c++")},
        )  # fmt: skip
    return next(folder.glob("*.whl"))


def repair(tools: Path, wheel: Path, out: Path, *options: str) -> Path:
    """The wheel with what it needs inside, and with the name of the lowest policy that it keeps."""
    folder = Path(tempfile.mkdtemp(dir=WORK))
    libraries = Path(run(sys.executable, "tools/find_file.py", "onednn-cpu-gomp", "lib/libdnnl.so.3").strip())
    env = os.environ | {
        "PATH": f"{tools.parent}:{os.environ['PATH']}",
        "LD_LIBRARY_PATH": str(libraries.parent),
    }
    run(tools, "-m", "auditwheel", "repair", "-w", folder, *options, wheel, env=env)
    repaired = next(folder.glob("*.whl"))
    shutil.copy(repaired, out)
    return out / repaired.name


def check(name: str, python: Path, example: str, *wheels: Path) -> None:
    """Runs the example where nothing is installed but the wheels and what they declare."""
    own = environment(name, python, *wheels)
    run(own, "-m", "pip", "check", env=clean(own))
    program = WORK / f"{name}.py"
    program.write_text(example, encoding="utf-8")
    run(own, "-I", program, env=clean(own), cwd=WORK)
    found = sorted((WORK / name).glob("lib/*/site-packages/heddle*/**/*.so*"))
    for library in [path for path in found if path.suffix != ".txt"]:
        strange = from_outside(library, clean(own))
        if strange:
            sys.exit(f"{library.name} needs libraries of this system: {'; '.join(strange)}")
    shutil.rmtree(WORK / name)


def from_outside(library: Path, env: dict[str, str]) -> list[str]:
    """What the loader finds neither in an environment of ours nor on manylinux's list, or not at all."""
    strange = []
    for line in run("ldd", library, env=env).splitlines():
        name, _, place = line.strip().partition(" => ")
        allowed = name.startswith(OF_THE_SYSTEM) or name in FROM_PACKAGES or place.startswith(str(WORK))
        if place and not allowed:
            strange.append(line.strip())
    return strange


def first_example(of: str) -> str:
    found = [
        each.text for each in extract(ROOT / "README.md") if each.language == "python" and of in each.text
    ]
    return found[0]


def make_heddle(tools: Path, pythons: dict[str, Path], out: Path, nvcc: str) -> dict[str, Path]:
    """The wheel for each version."""
    wheels: dict[str, Path] = {}
    for version, python in pythons.items():
        if STABLE_FROM in wheels and version > STABLE_FROM:
            wheels[version] = wheels[STABLE_FROM]
            continue
        stable = ["wheel.py-api=cp312"] if version >= STABLE_FROM else []
        builder = environment(f"build-{version}", python, "-r", ROOT / "requirements" / "wheel.txt")
        made = build(
            builder,
            ROOT,
            f"build-dir={ROOT / 'build' / 'wheel-any'}",
            "cmake.define.HEDDLE_INSTALL_BESIDE=OFF",
            f"cmake.define.HEDDLE_NVCC={nvcc}",
            *stable,
        )
        wheels[version] = repair(tools, made, out)
        print(wheels[version].name, flush=True)
    return wheels


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", choices=["heddle"], help="without heddle-torch")
    parser.add_argument("--nvcc", default="", help="compiler of the kernels for NVIDIA's GPUs")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    WORK.mkdir(parents=True, exist_ok=True)
    pythons = interpreters()
    here = f"{sys.version_info[0]}.{sys.version_info[1]}"
    tools = environment("tools", Path(sys.executable), "-r", ROOT / "requirements" / "wheel.txt")
    wheels = make_heddle(tools, pythons, arguments.out, arguments.nvcc)
    for version, wheel in wheels.items():
        check(f"heddle-{version}", pythons[version], first_example("import heddle\n"), wheel)
        print(f"{wheel.name}: the example runs on Python {version}", flush=True)
    if arguments.only is None:
        made = build(Path(sys.executable), ROOT / "torch_backend", f"build-dir={ROOT / 'build' / 'torch'}")
        torch = repair(tools, made, arguments.out, *(f"--exclude={name}" for name in FROM_PACKAGES))
        check("heddle-torch", Path(sys.executable), first_example("import heddle.torch"), wheels[here], torch)
        print(f"{torch.name}: the example runs on Python {here}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
