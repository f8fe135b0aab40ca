"""The HTTP server for Prometheus: `/metrics`, and `/healthz` for those who watch it.

Python's own server is enough for one page of text that is read every few seconds; it needs no package, and 12 MB less
than hypercorn. A connection has a thread, of `THREADS_MAX` at most, and `TIMEOUT_SECONDS` for each of its requests. On
a loopback address only local names are answered: a web page elsewhere whose name was rebound to it reads nothing.
"""

from __future__ import annotations

import gzip
import logging
import socket
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from minibroker import patience
from minibroker.any_cluster.shortfalls import noting
from minibroker.client.local_names import LOCAL_NAMES, host_name, is_loopback
from minibroker.metrics.exposition import exposition
from minibroker.metrics.scraper import Scraper

THREADS_MAX = 16
TIMEOUT_SECONDS = 10.0
TEXT = "text/plain; charset=utf-8"
COMPRESSION_LEVEL = 1

logger = logging.getLogger(__name__)


class Endpoint(ThreadingHTTPServer):
    """Serves a listening socket until `shutdown`; closes it at the end."""

    daemon_threads = True

    def __init__(self, listener: socket.socket, scraper: Scraper) -> None:
        super().__init__(listener.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        listener.setblocking(True)
        self.socket = listener
        self.scraper = scraper
        self.is_local = is_loopback(listener.getsockname()[0])
        self._places = threading.BoundedSemaphore(THREADS_MAX)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # a scraper has left, or sends nothing
            logger.error("a defect of minibroker", exc_info=True)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = TIMEOUT_SECONDS
    server: Endpoint

    def do_GET(self) -> None:
        self._respond(*self._answer())

    do_HEAD = do_GET

    def _answer(self) -> tuple[HTTPStatus, bytes, str]:
        if self.server.is_local and host_name(self.headers.get("Host", "localhost")) not in LOCAL_NAMES:
            return HTTPStatus.BAD_REQUEST, b"this is not the Host that you look for\n", TEXT
        path = self.path.partition("?")[0]
        if path == "/healthz":
            return HTTPStatus.OK, b"ok\n", TEXT
        if path not in ("/metrics", "/"):
            return HTTPStatus.NOT_FOUND, b"the metrics are at /metrics\n", TEXT
        try:
            with patience.limited(), noting(logger.warning):
                found = self.server.scraper.scrape()
            body, content_type = exposition(found, self.headers.get("Accept", ""))
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            logger.warning("no metrics: %s", reason)
            return HTTPStatus.SERVICE_UNAVAILABLE, f"{reason}\n".encode(), TEXT
        return HTTPStatus.OK, body, content_type

    def _respond(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        if "gzip" in self.headers.get("Accept-Encoding", "") and len(body) > 1024:
            body = gzip.compress(body, COMPRESSION_LEVEL)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def version_string(self) -> str:
        return "minibroker"

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug("%s %s", self.address_string(), format % args)
