"""How much memory something takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_more_memory_than(limit_bytes: int) -> Iterator[None]:
    """Fail if Python's objects take more at any moment of the block."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < limit_bytes
