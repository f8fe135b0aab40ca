"""Serves the console until a signal, or the end of the process that started it.

The page is served before the cluster answers: a browser that comes early has it, and waits for its first answer.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import sys
from functools import partial
from typing import TYPE_CHECKING, cast
from urllib.parse import quote

import trio
from hypercorn.config import Config
from hypercorn.trio import serve as serve_http

from minibroker.client.address import Address
from minibroker.console.answers import NAME_MAX
from minibroker.console.console import Console
from minibroker.console.kafka_clients import KafkaClients
from minibroker.console.options import ConsoleOptions
from minibroker.console.web_app import web_app

if TYPE_CHECKING:
    from hypercorn.typing import ASGIFramework

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
STREAMS_END_SECONDS = 0.5  # after a signal, for responses in hand
KEEP_ALIVE_SECONDS = 75.0
PARENT_POLL_SECONDS = 0.5
REQUEST_BYTES_MAX = 4 * NAME_MAX  # with a name in its address, each byte of which takes three there


def serve(options: ConsoleOptions, listener: socket.socket, *, parent_pid: int | None = None) -> None:
    """Print the address, then serve until the end on a socket that listens already."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    bound = Address(options.host, listener.getsockname()[1])
    trio.run(partial(run, options, listener, bound, parent_pid), restrict_keyboard_interrupt_to_checkpoints=True)


async def run(options: ConsoleOptions, listener: socket.socket, bound: Address, parent_pid: int | None) -> None:
    with KafkaClients(options.cluster) as kafka, trio.open_signal_receiver(*heeded_signals()) as signals:
        console = Console(options, kafka)
        async with trio.open_nursery() as nursery:
            ended = trio.Event()
            nursery.start_soon(end_on_signal, signals, ended)
            if parent_pid is not None:
                nursery.start_soon(end_with_parent, parent_pid, ended)
            nursery.start_soon(console.attend)
            nursery.start_soon(announce, options, bound)
            application = cast("ASGIFramework", web_app(console))  # starlette's and hypercorn's types differ in name
            await serve_http(application, http_config(listener), shutdown_trigger=ended.wait)
            nursery.cancel_scope.cancel()


def heeded_signals() -> list[signal.Signals]:
    """The signals that end the console; one that is ignored, as SIGHUP under `nohup`, stays so."""
    return [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]


def http_config(listener: socket.socket) -> Config:
    config = Config()
    config.bind = [f"fd://{os.dup(listener.fileno())}"]
    config.graceful_timeout = STREAMS_END_SECONDS
    config.keep_alive_timeout = KEEP_ALIVE_SECONDS
    config.h11_max_incomplete_size = REQUEST_BYTES_MAX
    config.include_server_header = False
    config.accesslog = None
    config.errorlog = logging.getLogger("hypercorn")
    config.errorlog.setLevel(logging.WARNING)
    return config


async def announce(options: ConsoleOptions, bound: Address) -> None:
    """Print where the page is; the token is behind `#`, which no browser sends and no log has."""
    fragment = "" if options.token is None else f"#token={quote(options.token, safe='')}"
    print(f"minibroker console is ready at http://{bound}/{fragment}", flush=True)
    if not options.is_local:
        print(
            f"minibroker: the console listens on {bound.host}, where other machines reach it: they need the token, "
            "and nothing is encrypted; prefer --listen 127.0.0.1:8080 behind an ssh tunnel",
            file=sys.stderr,
        )


async def end_on_signal(signals: object, ended: trio.Event) -> None:
    async for _ in signals:  # type: ignore[attr-defined]
        ended.set()


async def end_with_parent(parent_pid: int, ended: trio.Event) -> None:
    """End when the process that started this one has ended in any way."""
    while os.getppid() == parent_pid:  # noqa: ASYNC110  # nothing announces the end of a parent
        await trio.sleep(PARENT_POLL_SECONDS)
    ended.set()
