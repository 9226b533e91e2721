"""Fuzz targets as tools/cores_pack.py lays them down. The stage `fuzz` runs this, and builds them before."""

import json
import subprocess
import sys
import tarfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FEW = ("dlpack", "environment", "external_data")


def test_targets_run_from_the_one_program_that_is_packed(tmp_path: Path) -> None:
    words: list[str | Path] = [tmp_path / "packed", "--built", "--only", ",".join(FEW), "--preset", "0"]
    subprocess.run([sys.executable, ROOT / "tools" / "cores_pack.py", *words], check=True)
    with tarfile.open(tmp_path / "packed" / "programs.tar.xz") as tar:
        names = set(tar.getnames())
        tar.extractall(tmp_path / "laid", filter="data")
    assert {"fuzz/all/fuzz_every", "lib/libprotobuf-lite.so.32"} <= names
    assert {name.rpartition("/")[2] for name in names if name.count("/") == 1 and "fuzz/" in name} == {
        "all",
        *FEW,
    }
    out = tmp_path / "out"
    words = [out, "fuzz", "--seconds", "3", "--workers", "2", "--packed", tmp_path / "packed"]
    subprocess.run([sys.executable, ROOT / "tools" / "cores_check.py", *words], check=True)
    targets = json.loads((out / "fuzz.json").read_text())["targets"]
    assert [target["name"] for target in targets] == list(FEW)
    for target in targets:
        assert target["runs"] > 0
        assert target["edges"] > 100  # of the library, whose counters are in the one program
        assert target["cpu_s"] > 0
    other = subprocess.run(
        [tmp_path / "laid" / "fuzz" / "all" / "fuzz_every"],
        env={"LD_LIBRARY_PATH": str(tmp_path / "laid" / "lib")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (other.returncode, other.stderr) == (2, "ERROR: there is no target of this program's name\n")
