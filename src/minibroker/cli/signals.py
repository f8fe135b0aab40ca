"""Ends a command in order when SIGINT, SIGTERM or SIGHUP asks for it.

The first signal raises Interrupted at once, except while `deferred`: then at the next `check`, so that the offsets of
printed records are committed. A second signal does not wait. Neither does a command whose output is not read, or
whose broker does not answer: GRACE_SECONDS later, the first signal counts as the second.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALLED = 128  # plus the signal's number is the exit status, as in shells
GRACE_SECONDS = 5.0


class Interrupted(BaseException):
    """A signal ends the command, with this exit status. Not a KeyboardInterrupt, for which typer has a status."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.status = SIGNALLED + number


class Interruption:
    """The signals that one command has received."""

    def __init__(self) -> None:
        self._received: int | None = None
        self._is_deferred = False
        self._grace: threading.Timer | None = None

    def on_signal(self, number: int, frame: object) -> None:
        is_second, self._received = self._received is not None, number
        if is_second or not self._is_deferred:
            raise Interrupted(number)
        self._grace = threading.Timer(GRACE_SECONDS, signal.pthread_kill, (threading.main_thread().ident, number))
        self._grace.daemon = True
        self._grace.start()

    def check(self) -> None:
        """Raises Interrupted if a signal came while deferred."""
        if self._received is not None:
            raise Interrupted(self._received)

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Let what runs inside end in order: it calls `check` where it can end."""
        self._is_deferred = True
        try:
            yield
        finally:
            self._is_deferred = False
        self.check()

    def close(self) -> None:
        if self._grace is not None:
            self._grace.cancel()


@contextmanager
def interruption() -> Iterator[Interruption]:
    """Handle the signals inside; in another thread than the main one they stay as they are."""
    received = Interruption()
    before: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        # What ignores a signal goes on ignoring it: `nohup` SIGHUP, a script's background job SIGINT.
        handled = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, received.on_signal) for number in handled}
    try:
        yield received
    finally:
        received.close()
        for number, handler in before.items():
            signal.signal(number, handler)
