"""The device held until callers wait: neither the number of processors nor their speed makes a difference."""

from concurrent.futures import ThreadPoolExecutor, wait

import heddle


def run_held(extra: int, work, waiting):
    """The result of work(threads), for `extra` threads more than the default device takes calls at once.

    It runs on a thread of its own. The device is held until waiting() says that `extra` callers wait.
    """
    device = heddle.Device()
    with ThreadPoolExecutor(1) as pool:
        with heddle.exclusive(device):
            done = pool.submit(work, device.in_flight + extra)
            while waiting() < extra and not wait([done], 0.001).done:
                pass
        return done.result()
