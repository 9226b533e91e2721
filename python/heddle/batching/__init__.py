"""The batch queue: heddle.BatchQueue and heddle.batch_inference."""

from .answers import BatchFuture
from .inference import batch_inference
from .queue import BatchQueue
from .workers import Health

__all__ = ["BatchFuture", "BatchQueue", "Health", "batch_inference"]
