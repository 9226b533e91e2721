from typing import Any

def __getattr__(name: str) -> Any: ...  # csrc/module.cpp says what there is
