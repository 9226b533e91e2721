"""The rules of tools/tidy.py. Each module has RULES: functions from a Tree to findings."""
