"""Mistakes that the types of the library do not let pass the compiler, each beside what is right."""

import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# What the code below is compiled after.
GUARDED = '#include "base/sync.h"\nusing namespace heddle;\n'
ATOMIC = '#include "base/atomic.h"\nusing namespace heddle;\n'
STATUS = '#include "base/status.h"\nusing namespace heddle;\nStatus work();\nResult<int> number();\n'
LEASE = '#include "runtime/streams/stream_pool.h"\nusing namespace heddle;\n'

# What it needs, what is wrong, a part of what the compiler says, and what is right.
CODE = {
    "data without its lock": (
        GUARDED,
        "void f(Guarded<int, Rank::kBatch>& data) { *data = 1; }",
        "no match for 'operator*'",
        "void f(Guarded<int, Rank::kBatch>& data) { *data.lock() = 1; }",
    ),
    "data past its lock": (
        GUARDED,
        "int& f(Guarded<int, Rank::kBatch>& data) { return data.data_; }",
        "is private within this context",
        "int f(Guarded<int, Rank::kBatch>& data) { return *data.lock(); }",
    ),
    "an atomic without its order": (
        ATOMIC,
        "void f(Atomic<int>& word) { word = 1; }",
        "no match for 'operator='",
        "void f(Atomic<int>& word) { word.store_release(1); }",
    ),
    "an atomic read without its order": (
        ATOMIC,
        "int f(const Atomic<int>& word) { return word; }",
        "cannot convert",
        "int f(const Atomic<int>& word) { return word.load_acquire(); }",
    ),
    "a failure that nobody reads": (
        STATUS,
        "void f() { work(); }",
        "unused-result",
        "Status f() { return work(); }",
    ),
    "a result that nobody reads": (
        STATUS,
        "void f() { number(); }",
        "unused-result",
        "bool f() { return number().ok(); }",
    ),
    "a lease that is copied": (
        LEASE,
        "runtime::StreamLease f(const runtime::StreamLease& lease) { return lease; }",
        "use of deleted function",
        "runtime::StreamLease f(runtime::StreamLease& lease) { return std::move(lease); }",
    ),
}


def compiled(source: str) -> tuple[int, str]:
    options = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-Isrc", "-Iinclude"]
    command = ["g++", *options, "-x", "c++", "-"]
    done = subprocess.run(
        command, cwd=ROOT, input=source, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )  # fmt: skip
    return done.returncode, done.stderr


@pytest.mark.parametrize(("needs", "wrong", "said", "right"), CODE.values(), ids=CODE.keys())
def test_code_is_refused_and_its_right_form_is_not(needs: str, wrong: str, said: str, right: str) -> None:
    status, output = compiled(needs + right)
    assert status == 0, output
    status, output = compiled(needs + wrong)
    assert status != 0
    assert said in output
