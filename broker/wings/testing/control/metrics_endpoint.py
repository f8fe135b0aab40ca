"""The child process that serves the metrics of this broker to Prometheus: `--metrics HOST:PORT`.

It inherits two descriptors: the listening socket, and one end of a socket pair by which it makes the calls of the
control socket that it needs. So a scrape stops no client of the broker, a secured broker needs no credentials for it,
and the child ends with the broker however that ends, as the pair is closed then.
"""

from __future__ import annotations

import logging
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import trio

from minibroker.broker.wings.testing.control.console_child import end

if TYPE_CHECKING:
    from minibroker.broker.wings.testing.control.control_server import Calls

CHILD = "minibroker.metrics"
STOP_SECONDS = 2.0

logger = logging.getLogger(__name__)


class MetricsEndpoint:
    """`run` serves while it runs; `close` gives the address back. The listener is bound before the broker starts."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._listener.getsockname()[:2]
        return host, port

    def close(self) -> None:
        self._listener.close()

    async def run(self, calls: Calls) -> None:
        """Start the child, answer its calls; end it when cancelled."""
        ours, theirs = socket.socketpair()
        with ours:
            with theirs:
                child = self._start(theirs)
            self._listener.close()
            ours.setblocking(False)
            try:
                await calls.serve(trio.SocketStream(trio.socket.from_stdlib_socket(ours)))
                logger.warning("the process that serves metrics has ended; the broker goes on without it")
            finally:
                ours.close()
                with trio.CancelScope(shield=True):
                    await trio.to_thread.run_sync(end, child, STOP_SECONDS)

    def _start(self, channel: socket.socket) -> subprocess.Popen[bytes]:
        listener_fd, channel_fd = self._listener.fileno(), channel.fileno()
        command = [sys.executable, "-m", CHILD, "--listener", str(listener_fd), "--channel", str(channel_fd)]
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=(listener_fd, channel_fd),
            process_group=0,  # Ctrl-C is for the broker, which ends it
        )
