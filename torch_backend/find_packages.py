"""For CMake, as a list with semicolons: the folder of this interpreter's PyTorch, whether its C++ library has
the newer ABI (1 or 0), and the libheddle of its heddle package (empty: there is none)."""

import importlib.util
from pathlib import Path

import torch

heddle = importlib.util.find_spec("heddle")
folders = heddle.submodule_search_locations if heddle else None
libraries = [path for folder in folders or [] for path in Path(folder).glob("libheddle.*")]
print(Path(torch.__file__).parent, int(torch.compiled_with_cxx11_abi()), *libraries[:1] or [""], sep=";")
