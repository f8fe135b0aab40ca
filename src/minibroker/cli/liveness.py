"""Reports a broker that goes away while a command reads or writes, and that it is back.

A thread keeps an idle connection to each broker: a process that dies closes it. A broker that closes an idle
connection is connected to again, and not reported.
"""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from ssl import SSLSocket, SSLWantReadError

from minibroker.any_cluster.address import Address
from minibroker.any_cluster.login import Login, logged_in
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
        self._selector = selectors.DefaultSelector()
        self._is_over = threading.Event()
        self._login = login
        self._unreached = set(addresses)
        self._gone: set[Address] = set()

    def stop(self) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        while not self._is_over.is_set():
            for address in sorted(self._unreached):
                self._connect(address)
            for key, _ in self._selector.select(LOOK_SECONDS) if self._selector.get_map() else ():
                self._on_readable(key)
            if self._unreached:
                self._is_over.wait(LOOK_SECONDS)
        for key in list(self._selector.get_map().values()):
            key.fileobj.close()  # type: ignore[union-attr]
        self._selector.close()

    def _connect(self, address: Address) -> None:
        try:
            connection = socket.create_connection(address, timeout=CONNECT_SECONDS)
            if self._login is not None:  # a broker counts a client that never logs in as an attack
                connection = logged_in(connection, address.host, self._login)
            connection.setblocking(False)
        except LoginError:  # the client library reports it
            self._unreached.discard(address)
            return
        except OSError:
            if address not in self._gone:
                self._gone.add(address)
                self._report(f"the broker at {address} does not answer; waiting until it is back")
            return
        self._selector.register(connection, selectors.EVENT_READ, address)
        self._unreached.discard(address)
        if address in self._gone:
            self._gone.discard(address)
            self._report(f"the broker at {address} is back")

    def _on_readable(self, key: selectors.SelectorKey) -> None:
        """The broker has closed the connection: it sends nothing but what was asked for, and TLS its own messages."""
        assert isinstance(key.fileobj, socket.socket)
        with suppress(OSError):
            if isinstance(key.fileobj, SSLSocket) and needs_more(key.fileobj):
                return
        self._selector.unregister(key.fileobj)
        key.fileobj.close()
        self._unreached.add(key.data)

    def _report(self, line: str) -> None:
        from minibroker.cli.terminal import complain

        if not self._is_over.is_set():
            complain(line)


def needs_more(connection: SSLSocket) -> bool:
    """Whether what has come were only messages of TLS, such as the tickets behind a handshake of TLS 1.3."""
    try:
        return bool(connection.recv(1))
    except SSLWantReadError:
        return True
