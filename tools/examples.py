"""The C++ and Python examples of README.md, docs/*.md and heddle.h, as programs that are compiled and run.

usage: examples.py FOLDER      writes every example to FOLDER as a file of its own

A block fenced with ```cpp or ```python is an example; in heddle.h the fence stands in a comment. A C++ block
with main() and a Python block that imports heddle are whole programs. Any other block is a fragment: it finds
`model` (model.onnx beside it: input "x" f32[batch, 4], output "y" f32[batch, 3]) and `x` (two rows of it).
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^```(cpp|c\+\+|python|py)\n(.*?)^```", re.MULTILINE | re.DOTALL)
CPP_PRELUDE = """\
  [[maybe_unused]] heddle::Model model = heddle::Model::load("model.onnx");
  [[maybe_unused]] heddle::Tensor x = heddle::Tensor::of<float>({2, 4}, {1, 2, 3, 4, 5, 6, 7, 8});
"""
PYTHON_PRELUDE = """\
import numpy as np
import heddle
model = heddle.load("model.onnx")
x = np.arange(1, 9, dtype=np.float32).reshape(2, 4)
"""


@dataclass(frozen=True)
class Example:
    name: str  # file and line: README_md_12
    language: str  # "cpp" | "python"
    text: str

    @property
    def program(self) -> str:
        if self.language == "cpp":
            return self.text if re.search(r"\bint main\(", self.text) else cpp_fragment(self.text)
        return self.text if re.search(r"^(?:import|from) heddle\b", self.text, re.MULTILINE) else (
            PYTHON_PRELUDE + self.text
        )  # fmt: skip

    @property
    def suffix(self) -> str:
        return ".cpp" if self.language == "cpp" else ".py"


def cpp_fragment(text: str) -> str:
    """The includes first, the rest in a scope of its own inside main(), where it may use any name."""
    lines = text.splitlines()
    includes = [line for line in lines if line.startswith("#include")]
    body = ["    " + line for line in lines if not line.startswith("#include")]
    head = ["#include <heddle/heddle.h>", *includes, "", "int main() {", CPP_PRELUDE.rstrip(), "  {"]
    return "\n".join([*head, *body, "  }", "}", ""])


def extract(path: Path) -> list[Example]:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".h":
        # Only comment lines can hold a fence; the others keep their place for the line numbers.
        text = "\n".join(
            re.sub(r"^\s*//[ ]{0,3}", "", x) if re.match(r"\s*//", x) else "" for x in text.split("\n")
        )
    stem = path.relative_to(ROOT).as_posix().replace("/", "_").replace(".", "_")
    examples = []
    for match in FENCE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        language = "cpp" if match.group(1).startswith("c") else "python"
        examples.append(Example(f"{stem}_{line}", language, match.group(2)))
    return examples


def all_examples() -> list[Example]:
    """docs/design.md is the plan: it sketches."""
    places = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), ROOT / "include" / "heddle" / "heddle.h"]
    places = [path for path in places if path.exists() and path.name != "design.md"]
    return [example for path in places for example in extract(path)]


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for example in all_examples():
        (folder / (example.name + example.suffix)).write_text(example.program, encoding="utf-8")
