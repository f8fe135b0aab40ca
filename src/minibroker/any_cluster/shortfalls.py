"""Notes what an answer lacks, and why, for the command or the page that shows the answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple


class Noted(NamedTuple):
    """The lines so far, each once, and what is called with a new one."""

    lines: dict[str, None]
    show: Callable[[str], object]


_noted: ContextVar[Noted | None] = ContextVar("shortfalls", default=None)


@contextmanager
def noting(show: Callable[[str], object] = lambda line: None) -> Iterator[dict[str, None]]:
    """Call `show` with each line that `lacks` gets inside; yield the lines."""
    noted = Noted({}, show)
    token = _noted.set(noted)
    try:
        yield noted.lines
    finally:
        _noted.reset(token)


def is_short() -> bool:
    """Whether something has been noted."""
    noted = _noted.get()
    return noted is not None and bool(noted.lines)


def lacks(line: str) -> None:
    """Note in a line what is not in the answer, and why."""
    noted = _noted.get()
    if noted is not None and line not in noted.lines:
        noted.lines[line] = None
        noted.show(line)
