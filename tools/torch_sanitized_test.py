"""Which of ThreadSanitizer's reports are PyTorch's alone."""

import pytest
from torch_sanitized import is_pytorch_s

FREES = "    #0 free <null> (libclang_rt.tsan-x86_64.so+0x51ae5)\n"
LOCKS = "    #0 pthread_mutex_lock <null> (libclang_rt.tsan-x86_64.so+0x54d4b)\n"
COPIES = "    #0 memcpy <null> (libclang_rt.tsan-x86_64.so+0x5f0c0)\n"
COUNTS = (
    "    #0 fetch_sub /usr/bin/../include/c++/12/bits/atomic_base.h:628:16 (_C.so+0xb45c9)\n"
    "    #1 decrement /torch/include/c10/util/intrusive_ptr.h:102:28 (_C.so+0xb45c9)\n"
)
PYTORCH = "    #1 torch::autograd::Engine::execute() <null> (libtorch_cpu.so+0x5c3d2a0)\n"
OURS = "    #1 heddle::torch_backend::drop(void*) csrc/storage.cpp:21:3 (_C.so+0x1000)\n"
READS = "    #0 heddle::host::run() src/drivers/host/program.cpp:5:3 (libheddle.so.0+0x1000)\n"


WAITS = (
    "    #0 pthread_cond_wait <null> (libclang_rt.tsan-x86_64.so+0x53cde)\n"
    "    #1 std::condition_variable::wait(std::unique_lock<std::mutex>&) <null> (libstdc++.so.6+0xa741c)\n"
)


def report(last: str, former: str, kind: str = "atomic read", thread: str = "") -> str:
    return (
        "WARNING: ThreadSanitizer: data race (pid=1)\n"
        f"  Write of size 8 at 0x7b34 by thread T365:\n{last}\n"
        f"  Previous {kind} of size 8 at 0x7b34 by main thread:\n{former}\n"
        f"  Thread T365 {thread}(tid=20502, running) created by main thread at:\n"
        "    #0 pthread_create <null> (libclang_rt.tsan-x86_64.so+0x530bb)\n\n"
    )


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        (report(FREES + PYTORCH, LOCKS + PYTORCH), True),
        (report(FREES + PYTORCH, COUNTS + OURS, "atomic write"), True),
        (report(FREES + PYTORCH, COUNTS + OURS, "write"), False),
        (report(FREES + OURS, LOCKS + PYTORCH), False),
        (report(FREES + PYTORCH, LOCKS + OURS), False),
        (report(FREES + PYTORCH, READS, "read"), False),  # memory that PyTorch lent us
        (report(COPIES + PYTORCH, LOCKS + PYTORCH), False),
        (report(FREES + PYTORCH, COPIES + PYTORCH, "read"), False),
        (report(FREES + PYTORCH, WAITS, "read", "'PTThreadPool' "), True),
        (report(FREES + PYTORCH, COPIES + PYTORCH, "read", "'PTThreadPool' "), True),
        (report(FREES + PYTORCH, COPIES + OURS, "read", "'PTThreadPool' "), False),
        (report(FREES + PYTORCH, WAITS, "read"), False),
        (report(FREES + PYTORCH, "    [failed to restore the stack]\n"), False),
        ("ERROR: AddressSanitizer: heap-use-after-free\n" + FREES + PYTORCH, False),
    ],
)
def test_a_report_is_pytorch_s_alone_where_it_frees_what_it_has_locked_or_counted(
    text: str, alone: bool
) -> None:
    assert is_pytorch_s(text) == alone
