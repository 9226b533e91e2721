"""What dynamo compiles again, and why."""

import contextlib
import logging
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def recompilations() -> Iterator[list[str]]:
    """What dynamo says of each recompilation that is made within, in the order they began."""
    reasons: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: reasons.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("torch._dynamo.guards.__recompiles")
    torch._logging.set_logs(recompiles=True)
    log.addHandler(handler)
    try:
        yield reasons
    finally:
        log.removeHandler(handler)
        torch._logging.set_logs()


def needed(reasons: list[str]) -> list[str]:
    """Without those of graphs that dynamo has: it looks through a list that another thread's look reorders,
    and may miss the one that fits. It says so itself."""
    return [reason for reason in reasons if "passed during recompilation-reason analysis" not in reason]
