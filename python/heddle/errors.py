"""Exceptions by code. Each names the node or argument, what is wrong, and what would be right."""


class Error(Exception):
    """Base of all that Heddle raises; ``code`` says what kind it is."""

    code = "internal"


class InvalidError(Error, ValueError):
    """The argument or the file is wrong: the same call fails again."""

    code = "invalid"


class UnsupportedError(Error, NotImplementedError):
    """Right, but Heddle or this device does not do it."""

    code = "unsupported"


class ExhaustedError(Error, MemoryError):
    """Memory, streams or a queue are full: may work later."""

    code = "exhausted"


class UnavailableError(Error, RuntimeError):
    """Closed, forked or shutting down."""

    code = "unavailable"


class DeadlineError(Error, TimeoutError):
    """The timeout passed first."""

    code = "deadline"


class CancelledError(Error):
    """The caller withdrew."""

    code = "cancelled"


class DeviceLostError(Error, RuntimeError):
    """The device failed: what ran on it is lost."""

    code = "device_lost"


class InternalError(Error, RuntimeError):
    """A mistake of Heddle's own: please report it."""

    code = "internal"


BY_CODE = {
    kind.code: kind
    for kind in (
        InvalidError,
        UnsupportedError,
        ExhaustedError,
        UnavailableError,
        DeadlineError,
        CancelledError,
        DeviceLostError,
        InternalError,
    )
}
