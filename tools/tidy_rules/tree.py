"""The files that tidy judges, and C++ text with comments and literals blanked so that rules see code only."""

import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath

SUFFIXES = {".cpp", ".h", ".mm", ".py", ".md", ".cmake", ".sh", ".txt", ".toml", ".supp", ".pml"}
LITERAL = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*.*?\*/)
    | (?P<raw>R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<char>(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+')
    | (?P<directive>^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*)
    """,
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, order=True)
class Finding:
    path: str
    line: int
    rule: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.message}"


def blank(text: str, directives: bool) -> str:
    """The same layout with comments and literals (and preprocessor directives) replaced by spaces."""

    def spaces(match: re.Match[str]) -> str:
        if match.lastgroup == "directive" and not directives:
            return match.group()
        gap = re.sub(r"[^\n]", " ", match.group())
        # A string stays a string, so that `extern ""` and TEST_CASE("") keep their shape.
        return '"' + gap[1:-1] + '"' if match.lastgroup in ("string", "raw", "mark") else gap

    return LITERAL.sub(spaces, text)


@dataclass
class File:
    path: str
    text: str

    @cached_property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @cached_property
    def suffix(self) -> str:
        return PurePosixPath(self.path).suffix

    @property
    def is_cpp(self) -> bool:
        return self.suffix in (".cpp", ".h", ".mm")

    @property
    def is_test(self) -> bool:
        where = r"^(torch_backend/)?tests/|_test\.(cpp|mm|py)$|_fixture\.h$|(^|/)test_[^/]*\.py$"
        return bool(re.search(where, self.path))

    @property
    def is_bench(self) -> bool:
        return bool(re.search(r"(^bench/|_bench\.(cpp|mm|py)$)", self.path))

    @cached_property
    def code(self) -> str:
        """C++ without comments, literals and directives."""
        return blank(self.text, directives=True)

    @cached_property
    def includes(self) -> list[tuple[int, str]]:
        pattern = r'^[ \t]*#[ \t]*(?:include|import)[ \t]*[<"]([^>"]+)[>"]'
        found = re.finditer(pattern, self.text, re.MULTILINE)
        return [(self.line_of(match.start(1)), match.group(1)) for match in found]

    def line_of(self, offset: int) -> int:
        return self.text.count("\n", 0, offset) + 1

    def below(self, *folders: str) -> bool:
        return any(self.path.startswith(folder.rstrip("/") + "/") for folder in folders)


@dataclass
class Tree:
    root: Path
    files: dict[str, File] = field(default_factory=dict)

    @staticmethod
    def read(root: Path) -> "Tree":
        tree = Tree(root)
        for path in list_files(root):
            known = path.suffix in SUFFIXES or path.name in ("Makefile", "CMakeLists.txt")
            if known and path.is_file() and not path.is_symlink():
                name = path.relative_to(root).as_posix()
                tree.files[name] = File(name, path.read_text(encoding="utf-8"))
        return tree

    def cpp(self) -> Iterator[File]:
        return (file for file in self.files.values() if file.is_cpp)

    def python(self) -> Iterator[File]:
        return (file for file in self.files.values() if file.suffix == ".py")

    def documents(self) -> Iterator[File]:
        return (file for file in self.files.values() if file.suffix == ".md")


def list_files(root: Path) -> list[Path]:
    command = ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard"]
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode == 0 and (root / ".git").exists():
        return [root / name for name in sorted(set(listed.stdout.splitlines()))]
    return sorted(path for path in root.rglob("*") if not {"build", ".venv", ".git"} & set(path.parts))
