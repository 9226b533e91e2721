"""The batch queue: heddle.BatchQueue and heddle.batch_inference."""

from .._heddle import Health
from .answers import BatchFuture
from .inference import batch_inference
from .queue import BatchQueue

__all__ = ["BatchFuture", "BatchQueue", "Health", "batch_inference"]
