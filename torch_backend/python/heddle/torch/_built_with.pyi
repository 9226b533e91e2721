PYTORCH: str  # its version when this package was built; CMake writes _built_with.py
