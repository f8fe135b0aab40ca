"""Serves the registry by hypercorn, which the console uses too, in the broker's own loop."""

from __future__ import annotations

import logging
import os
import socket
import ssl
from typing import Any

import trio
from hypercorn.config import Config
from hypercorn.trio import serve

from minibroker.broker.parts import BrokerParts
from minibroker.broker.wings.registry.access import Access, is_loopback
from minibroker.broker.wings.registry.registry import Registry
from minibroker.broker.wings.registry.relay import Relay
from minibroker.broker.wings.registry.rest import RestApi
from minibroker.broker.wings.registry.schema_log import SchemaLog

KEEP_ALIVE_SECONDS = 75.0
STOP_SECONDS = 0.5  # for requests in hand


class Serving:
    """The registry of a broker, on a socket that listens, until `ended`. Raises KeyStoreError."""

    def __init__(self, parts: BrokerParts, listener: socket.socket, ended: trio.Event) -> None:
        self._ended = ended
        self._address = listener.getsockname()[:2]
        access = Access(parts, is_local=is_loopback(self._address[0]))
        self._config = HttpConfig(listener, access.tls())
        log, directory = SchemaLog(parts), parts.options.cluster_dir
        self._relay = None if directory is None else Relay(parts, log, directory)
        self._application: Any = RestApi(Registry(log), access, self._relay)

    async def run(self) -> None:
        if self._relay is not None:
            self._relay.publish(*self._address)
        await serve(self._application, self._config, shutdown_trigger=self._ended.wait)


class HttpConfig(Config):
    """HTTP on a socket; with TLS by a context that is there already."""

    def __init__(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.bind = [f"fd://{os.dup(listener.fileno())}"]
        self.graceful_timeout = STOP_SECONDS
        self.keep_alive_timeout = KEEP_ALIVE_SECONDS
        self.include_server_header = False
        self.accesslog = None
        self.errorlog = logging.getLogger("hypercorn")
        self.errorlog.setLevel(logging.WARNING)

    @property
    def ssl_enabled(self) -> bool:
        return self._tls is not None

    def create_ssl_context(self) -> ssl.SSLContext | None:
        return self._tls
