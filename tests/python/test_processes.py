"""How Python processes begin and end: exit while busy, fork, spawn, atexit, Ctrl-C.

Each scenario is a program of its own.
"""

import subprocess
import sys
import textwrap

import pytest

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import heddle
sys.path.insert(0, {here!r})
from conftest import build_affine, build_mlp

# A job that a shell script starts in the background has SIGINT ignored; Python then installs no handler.
inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
model = build_mlp()
x = np.random.default_rng(1).standard_normal((4, 512)).astype(np.float32)
expected = model(x)

def busy(calls):
    while True:
        try:
            if not np.allclose(model(x), expected, atol=1e-4):
                os._exit(3)
        except heddle.UnavailableError:
            return
        calls.release()

def start_eight():
    calls = threading.Semaphore(0)
    for _ in range(8):
        threading.Thread(target=busy, args=(calls,), daemon=True).start()
    for _ in range(32):
        calls.acquire()
"""


def run(program: str, timeout: float = 60, launcher: tuple[str, ...] = ()) -> subprocess.CompletedProcess:
    here = str(__import__("pathlib").Path(__file__).parent)
    text = BEGIN.format(here=here) + textwrap.dedent(program)
    command = [*launcher, sys.executable, "-c", text]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def test_a_python_process_exits_with_eight_threads_busy_ten_times():
    for _ in range(10):
        done = run("start_eight(); sys.exit(42)")
        assert done.returncode == 42, done.stderr


def test_a_model_may_be_called_from_atexit():
    done = run("""
        import atexit
        def last():
            assert np.allclose(model(x), expected, atol=1e-4)
            print("called at exit", flush=True)
        atexit.register(last)
    """)
    assert done.returncode == 0, done.stderr
    assert "called at exit" in done.stdout


def test_a_forked_child_is_refused_and_the_parent_goes_on():
    done = run("""
        start_eight()
        child = os.fork()
        if child == 0:
            try:
                model(x)
            except heddle.UnavailableError as error:
                os._exit(0 if "spawn" in str(error) else 5)
            os._exit(6)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        for _ in range(100):
            assert np.allclose(model(x), expected, atol=1e-4)
        print("parent did 100")
    """)
    assert done.returncode == 0, done.stderr
    assert "parent did 100" in done.stdout


def test_a_spawned_child_runs_a_model_of_its_own(tmp_path):
    program = tmp_path / "spawning.py"
    program.write_text(
        textwrap.dedent(f"""
        import multiprocessing, sys
        import numpy as np
        sys.path.insert(0, {str(__import__("pathlib").Path(__file__).parent)!r})
        from conftest import build_affine

        def child(queue):
            queue.put(build_affine()(np.ones((2, 8), np.float32)).sum().item())

        if __name__ == "__main__":
            parent = build_affine()
            assert parent(np.ones((2, 8), np.float32)).sum() == 48
            context = multiprocessing.get_context("spawn")
            queue = context.Queue()
            process = context.Process(target=child, args=(queue,))
            process.start()
            assert queue.get(timeout=60) == 48
            process.join()
            assert process.exitcode == 0
        """)
    )
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "wait",
    [
        "model(x)",
        "heddle.Stream().device.synchronize() or model(x)",
        "hold_again()",
    ],
)
def test_ctrl_c_ends_a_wait(wait):
    done = run(f"""
        held, leave = threading.Event(), threading.Event()
        def hold():
            with heddle.exclusive():
                held.set()
                leave.wait(30)
        def hold_again():
            with heddle.exclusive():
                pass
        threading.Thread(target=hold, daemon=True).start()
        held.wait()
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        begin = time.monotonic()
        try:
            {wait}
        except KeyboardInterrupt:
            print("interrupted after", time.monotonic() - begin, flush=True)
            os._exit(42 if time.monotonic() - begin < 5 else 7)
        os._exit(8)
    """)
    assert done.returncode == 42, (done.stdout, done.stderr)


def test_a_wait_goes_on_after_ctrl_c_in_a_process_that_ignores_it():
    background = ("sh", "-c", 'trap "" INT; exec "$@"', "sh")
    done = run(
        """
        assert inherited == signal.SIG_IGN
        signal.signal(signal.SIGINT, inherited)
        held, sent = threading.Event(), threading.Event()
        def waits():
            return heddle.Device().stats()["waits_for_lane"]
        before = waits()
        def hold():
            with heddle.exclusive():
                held.set()
                while waits() == before:
                    os.sched_yield()
                os.kill(os.getpid(), signal.SIGINT)
                sent.set()
        holder = threading.Thread(target=hold)
        holder.start()
        held.wait()
        assert np.allclose(model(x), expected, atol=1e-4)
        assert sent.is_set()
        holder.join()
        sys.exit(42)
        """,
        launcher=background,
    )
    assert done.returncode == 42, (done.stdout, done.stderr)


@pytest.mark.parametrize("wait", ["slow(rows)", "slow.compile([rows.shape])"])
def test_ctrl_c_ends_the_wait_for_another_threads_compilation_which_is_kept(wait):
    done = run(f"""
        from conftest import build_slow_to_compile
        slow = build_slow_to_compile()
        rows = np.ones((3, 16), np.float32)
        def locked():
            return next(lock["acquisitions"] for lock in heddle.lock_stats() if lock["name"] == "cache")
        def compiled():
            return heddle.Device().stats()["compiles"]
        before = compiled()
        heddle.count_locks(True)
        maker = threading.Thread(target=lambda: slow.compile([rows.shape]))
        maker.start()
        while locked() < 2:  # the second is of the cache of weights: it is inside the compilation
            os.sched_yield()
        threading.Timer(0.05, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            {wait}
            os._exit(8)
        except KeyboardInterrupt:
            assert compiled() == before
        maker.join()
        assert np.allclose(slow(rows), 1, rtol=1e-3)
        assert compiled() == before + 1
        os._exit(42)
    """)
    assert done.returncode == 42, (done.stdout, done.stderr)
