"""For CMake: the folder of this interpreter's PyTorch, whether its C++ library has the newer ABI (1 or 0), and
the folder of its heddle package (empty: not installed), as a list with semicolons."""

import importlib.util
from pathlib import Path

import torch

heddle = importlib.util.find_spec("heddle")
folders = list(heddle.submodule_search_locations or []) if heddle else []
print(Path(torch.__file__).parent, int(torch.compiled_with_cxx11_abi()), *folders[:1] or [""], sep=";")
