"""Work in threads of a test, which must not lose its errors."""

from __future__ import annotations

from collections.abc import Callable


def caught(work: Callable[[], None], failures: list[BaseException]) -> None:
    try:
        work()
    except BaseException as error:
        failures.append(error)
