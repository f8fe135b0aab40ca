"""The control socket: calls of tests besides Kafka's protocol, such as advancing the broker's clock.

A Unix-domain socket that only the broker's own user may open. `--control PATH` creates it, and the end of the broker
removes it. One JSON object a line each way, any number of calls a connection, one after the other:

    {"call": "clock.advance", "arguments": {"seconds": 30}}  ->  {"result": null}  or  {"error": "why not"}

An error that a caller may have to distinguish has a `code`, too.
The parts of the broker register their calls; the server has none of its own.
"""

from __future__ import annotations

import fcntl
import inspect
import json
import logging
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import trio

from minibroker.storage.files.socket_path import socket_address

logger = logging.getLogger(__name__)

LINE_BYTES_MAX = 1 << 20
SCALARS = frozenset({"bool", "float", "int", "str"})  # parameters that no list or object of JSON can be
READ_BYTES = 1 << 16
BACKLOG = 128
OWNER_ONLY_UMASK = 0o177  # mode 0600
ALONE_SECONDS = 5.0
ALONE_POLL_SECONDS = 0.002


class ControlError(Exception):
    """The server cannot create its socket, or refuses a call; the message is one line for the caller."""


class UnknownCallError(ControlError):
    """This broker has no such call; a caller may try another."""

    code = "unknown-call"


class Calls:
    """Calls by name, and a stream of lines that are answered by them."""

    def __init__(self) -> None:
        self._calls: dict[str, tuple[Callable[..., object], inspect.Signature]] = {}

    def register(self, name: str, call: Callable[..., object]) -> None:
        """As `ControlServer.register`."""
        self._calls[name] = call, inspect.signature(call)

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer until the caller has left, then close the stream."""
        received = bytearray()
        try:
            while chunk := await stream.receive_some(READ_BYTES):
                received += chunk
                while (end := received.find(b"\n")) >= 0:
                    line = bytes(received[:end])
                    del received[: end + 1]
                    await stream.send_all(await self._answer(line))
                if len(received) > LINE_BYTES_MAX:
                    await stream.send_all(_line({"error": f"a line may have {LINE_BYTES_MAX} bytes at most"}))
                    return
        except trio.BrokenResourceError:
            return  # the caller has left
        finally:
            await trio.aclose_forcefully(stream)

    async def _answer(self, line: bytes) -> bytes:
        try:
            call, arguments = self._read(line)
            result = call(**arguments)
            if inspect.isawaitable(result):
                result = await result
            return _line({"result": result})
        except (ControlError, ValueError) as error:
            code = getattr(error, "code", None)
            return _line({"error": str(error)} | ({} if code is None else {"code": code}))
        except Exception as error:
            logger.exception("a control call failed: a defect of minibroker")
            return _line({"error": f"a defect of minibroker, see its log: {error!r}"})

    def _read(self, line: bytes) -> tuple[Callable[..., object], dict[str, Any]]:
        """Parse a line to a call and its arguments. Raises ControlError."""
        try:
            asked = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ControlError(f"not a line of JSON: {error}") from error
        name, arguments = (asked.get("call"), asked.get("arguments", {})) if isinstance(asked, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ControlError('a call is {"call": "NAME", "arguments": {...}}')
        if name not in self._calls:
            raise UnknownCallError(f"unknown call {name!r}; this broker has {', '.join(sorted(self._calls)) or 'none'}")
        call, signature = self._calls[name]
        try:
            signature.bind(**arguments)
        except TypeError as error:
            raise ControlError(str(error)) from error
        for each, value in arguments.items():
            known = signature.parameters.get(each)
            of_type = "" if known is None else str(known.annotation).removesuffix(" | None")
            if isinstance(value, list | dict) and of_type in SCALARS:
                raise ControlError(f"{each} is one value ({of_type}), not a list or an object")
        return call, arguments


class ControlServer:
    """Listens at `path` from its creation, answers while `run` runs, ends with `close`. Raises ControlError."""

    def __init__(self, path: Path) -> None:
        self.path = self._path = path.absolute()
        self._calls = Calls()
        self._socket = _listen(self._path)
        self._inode = os.stat(self._path).st_ino

    def register(self, name: str, call: Callable[..., object]) -> None:
        """Answer `name` by `call`, a plain function or a coroutine function with keyword arguments.

        It returns a value for JSON. ControlError and ValueError refuse the call with their text, and with their `code`
        if they have one; any other exception is a defect of minibroker.
        """
        self._calls.register(name, call)

    async def run(self) -> None:
        """Answer until cancelled."""
        listener = trio.SocketListener(trio.socket.from_stdlib_socket(self._socket))
        await trio.serve_listeners(self._calls.serve, [listener])

    def close(self) -> None:
        """Remove the socket, unless another broker's has taken its place."""
        self._socket.close()
        try:
            if os.stat(self._path).st_ino == self._inode:
                self._path.unlink()
        except FileNotFoundError:
            logger.info("the control socket %s was removed before the broker ended", self._path)


def _line(answer: dict[str, object]) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _listen(path: Path) -> socket.socket:
    """Bind at `path`, where a broker that was killed may have left its socket. Raises ControlError."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _alone_in(path.parent):
            _remove_stale(path)
            umask = os.umask(OWNER_ONLY_UMASK)
            try:
                with socket_address(path) as address:
                    sock.bind(address)
            finally:
                os.umask(umask)
            sock.listen(BACKLOG)
        sock.setblocking(False)
    except (OSError, ControlError) as error:
        sock.close()
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise ControlError(f"cannot create the control socket {path}: {reason}") from error
    return sock


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep other brokers from making a socket in the directory, which would take this one, not listening yet, for one
    that is left over. Raises ControlError where another broker stands still meanwhile."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    deadline = time.monotonic() + ALONE_SECONDS
    try:
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise ControlError("another broker that makes its own there stands still") from None
                time.sleep(ALONE_POLL_SECONDS)
        yield
    finally:
        os.close(fd)


def _remove_stale(path: Path) -> None:
    """Remove a socket that a killed broker has left. Raises ControlError for any other file."""
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise ControlError("the file there is not a socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            with socket_address(path) as address:
                probe.connect(address)
        except ConnectionRefusedError:
            path.unlink()
            return
    raise ControlError("another broker listens there")
