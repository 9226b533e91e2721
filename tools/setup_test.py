"""What tools/setup.sh would install: run on a system of our own making, whose commands only note."""

import os
import subprocess
from pathlib import Path

import pytest

SETUP = Path(__file__).with_name("setup.sh")

# Every command that asks the system or changes it. `python` stands for all interpreters of the virtual
# environment.
STUBS = {
    "uname": 'case "$1" in -m) echo "${FAKE_MACHINE:-arm64}" ;; *) echo "$FAKE_SYSTEM" ;; esac',
    "sw_vers": 'echo "${FAKE_RELEASE:-14.5}"',
    "xcode-select": "exit ${FAKE_XCODE:-0}",
    "brew": 'case "$1" in list) printf "%s\\n" $FAKE_BREW ;; --prefix) echo "$FAKE_PREFIX" ;; '
    '*) echo "brew $*" >>"$NOTES" ;; esac',
    "dpkg-query": "exit 1",
    "dpkg-deb": 'echo "dpkg-deb $*" >>"$NOTES"',
    "apt-get": 'echo "apt-get $*" >>"$NOTES"; case "$*" in download*) : >one.deb ;; esac',
    "id": "echo 0",
    "shasum": 'shift 2; cat "$@" | cksum',
    "python3": 'case "$*" in *version_info*) exit ${FAKE_OLD_PYTHON:-0} ;; --version) echo Python 3 ;; '
    '*) echo "python3 $*" >>"$NOTES" ;; esac',
}
# What is the same on both systems: taken from this one. Neither sha256sum nor realpath is.
BASICS = ("bash", "cat", "cksum", "dirname", "env", "find", "grep", "head", "ln", "mkdir", "rm", "sort",
          "tail", "xargs")  # fmt: skip


class System:
    """A checkout and a PATH with the stubs and the basics, nothing else."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.notes, commands = folder, folder / "notes", folder / "commands"
        self.notes.touch()
        commands.mkdir()
        for name, body in STUBS.items():
            (commands / name).write_text(f"#!/bin/bash\n{body}\n")
            (commands / name).chmod(0o755)
        for name in BASICS:
            (commands / name).symlink_to(
                next(p for p in map(Path, ("/bin", "/usr/bin")) if (p / name).exists()) / name
            )
        python312 = folder / "prefix" / "bin" / "python3.12"
        python312.parent.mkdir(parents=True)
        python312.write_text('#!/bin/bash\ncase "$*" in --version) echo Python 3.12 ;; *-m*) '
                             'echo "python3.12 $*" >>"$NOTES" ;; esac\n')  # fmt: skip
        python312.chmod(0o755)
        for name in ("tools", "requirements"):
            (folder / name).mkdir()
        (folder / "tools" / "setup.sh").write_text(SETUP.read_text())
        (folder / "tools" / "setup.sh").chmod(0o755)
        (folder / "requirements" / "demo.txt").write_text("numpy\n")
        # The virtual environment exists, unless a test wants to see it made.
        interpreter = folder / "venv" / "bin" / "python"
        interpreter.parent.mkdir(parents=True)
        interpreter.write_text((commands / "python3").read_text().replace("python3 $*", "python $*"))
        interpreter.chmod(0o755)

    def setup(self, what: str, **environment: str) -> subprocess.CompletedProcess[str]:
        folder = self.folder
        known = {"PATH": f"{folder}/commands", "NOTES": f"{folder}/notes", "FAKE_SYSTEM": "Linux",
                 "FAKE_PREFIX": f"{folder}/prefix", "HEDDLE_VENV": f"{folder}/venv"}  # fmt: skip
        command = ["/bin/bash", str(self.folder / "tools" / "setup.sh"), what]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60,
                              env=known | environment)  # fmt: skip

    def noted(self, first: str) -> list[str]:
        return [line for line in self.notes.read_text().splitlines() if line.startswith(first + " ")]


@pytest.fixture
def system(tmp_path: Path) -> System:
    return System(tmp_path)


BUILD = "cmake ninja ccache protobuf onednn fortune"


@pytest.mark.parametrize(("what", "there", "installed"), [
    ("demo", "", BUILD),
    ("demo", "cmake ninja onednn-extra", "ccache protobuf onednn fortune cmake ninja"),
    ("demo", BUILD, ""),
    ("test", "", BUILD + " doctest"),
    ("test", BUILD, "doctest"),
    ("long", "", BUILD + " doctest"),
])  # fmt: skip
def test_a_mac_gets_what_homebrew_lacks(system: System, what: str, there: str, installed: str) -> None:
    done = system.setup(what, FAKE_SYSTEM="Darwin", FAKE_BREW=there)
    assert done.returncode == 0, done.stderr
    asked = [set(line.removeprefix("brew install --quiet ").split()) for line in system.noted("brew")]
    wanted = set(installed.split()) - set(there.split())
    assert asked[:1] == ([wanted] if wanted else [])
    assert not system.noted("apt-get")
    assert any("-r requirements/" in line for line in system.noted("python"))


@pytest.mark.parametrize(("environment", "words"), [
    ({"FAKE_MACHINE": "x86_64"}, "Apple silicon"),
    ({"FAKE_RELEASE": "13.6.1"}, "macOS 13.6.1; Heddle needs 14"),
    ({"FAKE_XCODE": "2"}, "xcode-select --install"),
])  # fmt: skip
def test_a_mac_that_cannot_do_is_told_why(system: System, environment: dict[str, str], words: str) -> None:
    done = system.setup("demo", FAKE_SYSTEM="Darwin", **environment)
    assert done.returncode == 1
    assert words in done.stderr
    assert not system.notes.read_text()


def test_a_mac_whose_python_is_too_old_gets_homebrews(system: System) -> None:
    (system.folder / "venv" / "bin" / "python").unlink()
    done = system.setup("demo", FAKE_SYSTEM="Darwin", FAKE_BREW=BUILD, FAKE_OLD_PYTHON="1")
    assert system.noted("brew") == ["brew install --quiet python@3.12"]
    assert system.noted("python3.12") == [f"python3.12 -m venv {system.folder}/venv"]
    assert "Python 3.12" in done.stdout


def test_the_python_packages_are_installed_once(system: System) -> None:
    for _ in range(2):
        assert system.setup("demo", FAKE_SYSTEM="Darwin", FAKE_BREW=BUILD).returncode == 0
    assert len([line for line in system.noted("python") if "requirements/demo.txt" in line]) == 1


def test_torchvision_is_installed_where_only_its_test_looks(system: System) -> None:
    assert system.setup("test", FAKE_SYSTEM="Darwin", FAKE_BREW=BUILD + " doctest").returncode == 0
    (asked,) = [line for line in system.noted("python") if "requirements/test_apart.txt" in line]
    assert f"--no-deps --upgrade --target {system.folder}/venv/apart" in asked


def test_the_torch_package_is_built_once_and_after_the_package(system: System) -> None:
    for _ in range(2):
        done = system.setup("torch")
        assert done.returncode == 0, done.stderr
    assert [line.split()[-1] for line in system.noted("python")] == [".", "./torch_backend"]
    source = system.folder / "torch_backend" / "csrc" / "a.cpp"
    source.parent.mkdir(parents=True)
    source.write_text("int a;\n")
    assert system.setup("torch").returncode == 0
    assert [line.split()[-1] for line in system.noted("python")][2:] == ["./torch_backend"]


def test_debian_lays_out_the_other_machines_libraries_for_long_only(system: System) -> None:
    (system.folder / "commands" / "sha256sum").symlink_to("/usr/bin/sha256sum")
    assert system.setup("test").returncode == 0
    assert not system.noted("dpkg-deb")
    for _ in range(2):
        done = system.setup("long")
        assert done.returncode == 0, done.stderr
    assert any("g++-aarch64-linux-gnu qemu-user" in line for line in system.noted("apt-get"))
    downloads = [line for line in system.noted("apt-get") if " download " in line]
    assert len(downloads) == 1
    assert "libdnnl-dev libdnnl3.6" in downloads[0]
    assert len(system.noted("dpkg-deb")) == 1
    assert os.readlink(system.folder / "build" / "aarch64-root" / "lib") == "usr/lib"
