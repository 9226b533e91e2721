"""For CMake, as a list with semicolons: the folder of this interpreter's PyTorch, whether its C++ library has
the newer ABI (1 or 0), its version, and the libheddle of its heddle package (empty: there is none)."""

import importlib.util
import os
from pathlib import Path

# An installed heddle-torch may be the one of another PyTorch.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"

import torch

heddle = importlib.util.find_spec("heddle")
folders = heddle.submodule_search_locations if heddle else None
libraries = [path for folder in folders or [] for path in Path(folder).glob("libheddle.*")]
print(
    Path(torch.__file__).parent,
    int(torch.compiled_with_cxx11_abi()),
    torch.__version__,
    *libraries[:1] or [""],
    sep=";",
)
