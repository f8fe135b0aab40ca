"""Reports a broker that goes away while a command reads or writes, and that it is back.

A thread keeps an idle connection to each broker: a process that dies closes it. A broker that closes an idle
connection is connected to again, and not reported.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from minibroker.cli.terminal import complain
from minibroker.client.address import Address
from minibroker.client.connection import Connection, wait
from minibroker.client.login import Login
from minibroker.protocol.sasl_client import LoginError

LOOK_SECONDS = 0.25  # how long a broker may be back, or the command over, unnoticed
CONNECT_SECONDS = 1.0


@contextmanager
def gone_brokers_reported(addresses: Sequence[Address], login: Login | None = None) -> Iterator[None]:
    """Report on standard error, while the command runs inside."""
    watch = Watch(addresses, login)
    watch.start()
    try:
        yield
    finally:
        watch.stop()


class Watch(threading.Thread):
    """The thread, with a connection to each broker that is there."""

    def __init__(self, addresses: Sequence[Address], login: Login | None) -> None:
        super().__init__(name="watches brokers", daemon=True)
        self._is_over = threading.Event()
        self._login = login
        self._unreached = set(addresses)
        self._gone: set[Address] = set()
        self._connections: dict[Connection, float] = {}  # and until when each is to be open

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        while not self._is_over.is_set():
            now = time.monotonic()
            for address in sorted(self._unreached):
                self._connections[Connection(address, self._login)] = now + CONNECT_SECONDS
            self._unreached.clear()
            wait(self._connections, now + LOOK_SECONDS)
            for each, until in list(self._connections.items()):
                self._look_at(each, until)
            if self._unreached:
                self._is_over.wait(LOOK_SECONDS)
        for each in self._connections:
            each.close()

    def _look_at(self, connection: Connection, until: float) -> None:
        address = connection.address
        if connection.is_open and address in self._gone:
            self._gone.discard(address)
            self._report(f"the broker at {address} is back")
        if connection.error is None and not connection.is_open and time.monotonic() > until:
            connection.close()
        if connection.error is None:
            return
        del self._connections[connection]
        if isinstance(connection.error, LoginError) and not connection.is_open:
            return  # the client library reports it
        self._unreached.add(address)
        if not connection.is_open and address not in self._gone:
            self._gone.add(address)
            self._report(f"the broker at {address} does not answer; waiting until it is back")

    def _report(self, line: str) -> None:
        if not self._is_over.is_set():
            complain(line)
