"""The control socket: who may open it, what a call is, and what becomes of one that is none."""

from __future__ import annotations

import json
import logging
import socket
import stat
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.wings.testing.control.control_server import LINE_BYTES_MAX, ControlError, ControlServer


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c") / "control"  # short: a socket's path has 107 bytes


@pytest.fixture
async def server(path: Path, nursery: trio.Nursery) -> AsyncIterator[ControlServer]:
    server = ControlServer(path)
    nursery.start_soon(server.run)
    yield server
    nursery.cancel_scope.cancel()
    server.close()


class Caller:
    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._received = b""

    async def send(self, data: bytes) -> None:
        await self._stream.send_all(data)

    async def answer(self) -> dict[str, Any]:
        while b"\n" not in self._received:
            chunk = await self._stream.receive_some()
            assert chunk, "hung up"
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    async def call(self, name: str, **arguments: object) -> dict[str, Any]:
        await self.send(json.dumps({"call": name, "arguments": arguments}).encode() + b"\n")
        return await self.answer()

    async def is_hung_up(self) -> bool:
        return await self._stream.receive_some() == b""


@pytest.fixture
async def caller(path: Path, server: ControlServer) -> AsyncIterator[Caller]:
    async with await trio.open_unix_socket(path) as stream:
        yield Caller(stream)


async def test_functions_and_coroutines_are_called_with_their_arguments(server: ControlServer, caller: Caller) -> None:
    async def later(seconds: float) -> dict[str, float]:
        await trio.lowlevel.checkpoint()
        return {"slept": seconds}

    server.register("plus", lambda left, right: left + right)
    server.register("later", later)

    assert await caller.call("plus", left=1, right=2) == {"result": 3}
    assert await caller.call("later", seconds=0.5) == {"result": {"slept": 0.5}}


async def test_lines_in_pieces_or_together_are_answered_in_order(server: ControlServer, caller: Caller) -> None:
    server.register("echo", lambda text: text)
    lines = b"".join(json.dumps({"call": "echo", "arguments": {"text": each}}).encode() + b"\n" for each in "abc")

    await caller.send(lines[:20])
    await trio.testing.wait_all_tasks_blocked()
    await caller.send(lines[20:])

    assert [(await caller.answer())["result"] for _ in "abc"] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"clock.advance 3", "not a line of JSON"),
        (b"[" * 100_000, "not a line of JSON"),
        (b"\xff", "not a line of JSON"),
        (b"[]", "a call is"),
        (b'{"call": 3}', "a call is"),
        (b'{"call": "echo", "arguments": []}', "a call is"),
        (b'{"call": "ecco"}', "unknown call 'ecco'; this broker has echo, refuse"),
        (b'{"call": "echo"}', "missing a required argument: 'text'"),
        (b'{"call": "echo", "arguments": {"text": 1, "loud": 1}}', "unexpected keyword argument 'loud'"),
        (b'{"call": "refuse"}', "not today"),
    ],
)
async def test_a_line_that_is_no_call_is_answered_with_the_reason(
    server: ControlServer, caller: Caller, line: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse() -> None:
        raise ControlError("not today")

    server.register("echo", lambda text: text)
    server.register("refuse", refuse)

    await caller.send(line + b"\n")

    assert reason in (await caller.answer())["error"]
    assert await caller.call("echo", text="still here") == {"result": "still here"}
    assert caplog.records == []


async def test_a_refusal_may_have_a_code_for_programs(server: ControlServer, caller: Caller) -> None:
    class GoneError(ValueError):
        code = "gone"

    def gone() -> None:
        raise GoneError("it has gone")

    server.register("gone", gone)

    assert await caller.call("gone") == {"error": "it has gone", "code": "gone"}


@pytest.mark.parametrize("error", [KeyError("oops"), TypeError("oops")])
async def test_a_defect_is_logged_with_its_place_and_ends_nothing(
    server: ControlServer, caller: Caller, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    def defect() -> None:
        raise error

    server.register("defect", defect)

    assert f"a defect of minibroker, see its log: {error!r}" in (await caller.call("defect"))["error"]
    assert caplog.records[0].levelno == logging.ERROR and caplog.records[0].exc_info
    assert "error" in await caller.call("defect")


async def test_a_line_without_an_end_is_refused(server: ControlServer, caller: Caller) -> None:
    await caller.send(b"x" * (LINE_BYTES_MAX + 1))

    assert "at most" in (await caller.answer())["error"]
    assert await caller.is_hung_up()


async def test_callers_do_not_wait_for_each_other(server: ControlServer, caller: Caller, path: Path) -> None:
    reached = trio.Event()
    server.register("wait", reached.wait)
    server.register("go", reached.set)
    async with await trio.open_unix_socket(path) as stream:
        await stream.send_all(b'{"call": "wait"}\n' * 3)
        await trio.testing.wait_all_tasks_blocked()
    await caller.send(b'{"call": "wait"}\n')

    async with await trio.open_unix_socket(path) as stream:
        for _ in range(2):
            assert await Caller(stream).call("go") == {"result": None}

    assert await caller.answer() == {"result": None}


def test_only_its_own_user_may_open_it_and_nothing_is_left_of_it(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))  # which is replaced

    server = ControlServer(path)

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(ControlError, match="another broker listens there"):
        ControlServer(path)
    assert path.is_socket()
    server.close()
    assert not path.exists()


def test_of_two_brokers_that_start_at_once_over_a_socket_that_is_left_one_has_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
    servers: list[ControlServer] = []
    refusals: list[str] = []

    def start() -> None:
        try:
            servers.append(ControlServer(path))
        except ControlError as error:
            refusals.append(str(error))

    other = threading.Thread(target=start)
    remove = Path.unlink

    def remove_after_the_other_has_started(path: Path) -> None:
        monkeypatch.undo()
        other.start()
        other.join(0.1)
        remove(path)

    monkeypatch.setattr(Path, "unlink", remove_after_the_other_has_started)
    start()
    other.join()

    assert refusals == [f"cannot create the control socket {path}: another broker listens there"]
    servers[0].close()
    assert not path.exists()


@pytest.mark.parametrize(
    ("name", "reason"), [("x" * 300, "too long"), ("nowhere/control", "No such file"), ("file", "not a socket")]
)
def test_a_socket_that_cannot_be_made_is_an_error_of_one_line(path: Path, name: str, reason: str) -> None:
    (path.parent / "file").write_text("kept")

    with pytest.raises(ControlError, match=rf"^cannot create the control socket .*{reason}[^\n]*$"):
        ControlServer(path.parent / name)

    assert (path.parent / "file").read_text() == "kept"
