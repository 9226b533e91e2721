"""What tools/gpu_pack.sh refuses before it builds anything."""

import os
import shutil
import subprocess
from pathlib import Path

TOOL = Path(__file__).with_name("gpu_pack.sh")


def packed(folder: Path, **environment: str) -> str:
    """What the script says in a repository of its own, whose build fails."""
    (folder / "tools").mkdir(exist_ok=True)
    shutil.copy(TOOL, folder / "tools")
    env = os.environ | {"HEDDLE_NVCC": "nvcc", "GPU_PYTHON": "python", "HOME": str(folder)} | environment
    done = subprocess.run(
        [folder / "tools" / TOOL.name], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    return done.stderr


def test_a_probe_that_is_no_program_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for name in ("none", "text"):
        probe = str(tmp_path / name)
        assert f"GPU_PROBE names no program: {probe}" in packed(tmp_path, GPU_PROBE=probe)


def test_a_tree_with_changes_is_packed_only_where_that_is_asked_for(tmp_path: Path) -> None:
    for words in (("init", "-q"), ("-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty",
                                   "-m", "first")):  # fmt: skip
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    told = "there are changes that no commit has; GPU_PACK_DIRTY=1 packs them"
    assert told in packed(tmp_path)
    assert "the build failed" in packed(tmp_path, GPU_PACK_DIRTY="1")
    (tmp_path / ".git" / "info" / "exclude").write_text("*\n")
    assert "the build failed" in packed(tmp_path)
