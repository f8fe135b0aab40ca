"""The caller's side of the control socket, against brokers that refuse, hang up, say nothing or are not there."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from minibroker import BrokerError
from minibroker import control as control_module
from minibroker.control import Control


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c") / "control"  # short: a socket's path has 107 bytes


class Broker:
    """Answers one call with what the test says; `heard` is the line it got."""

    def __init__(self, path: Path, pieces: list[bytes]) -> None:
        self.heard = b""
        self._pieces = pieces
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._answer)
        self._thread.start()

    def _answer(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            while not self.heard.endswith(b"\n"):
                self.heard += connection.recv(4096)
            for piece in self._pieces:
                connection.sendall(piece)
            if not self._pieces:
                connection.recv(1)  # until the caller has given up

    def close(self) -> None:
        self._thread.join()
        self._listener.close()


@pytest.fixture
def answering(path: Path) -> Iterator[Callable[..., Broker]]:
    brokers: list[Broker] = []

    def start(*pieces: bytes) -> Broker:
        brokers.append(Broker(path, list(pieces)))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def test_a_call_is_a_line_and_its_result_comes_back_however_it_is_cut(
    path: Path, answering: Callable[..., Broker]
) -> None:
    broker = answering(b'{"res', b'ult": [1, ', b"2]}\n")

    assert Control(path).call("faults.lift", api="FETCH") == [1, 2]

    assert json.loads(broker.heard) == {"call": "faults.lift", "arguments": {"api": "FETCH"}}


def test_a_refusal_has_the_brokers_reason(path: Path, answering: Callable[..., Broker]) -> None:
    answering(b'{"error": "not today", "code": "later"}\n')

    with pytest.raises(BrokerError, match=r"^the broker refused clock\.advance: not today$") as refused:
        Control(path).call("clock.advance", seconds=1)
    assert refused.value.code == "later"


@pytest.mark.parametrize("obituary", ["it was killed", None])
def test_a_broker_that_hangs_up_during_a_call_has_its_obituary_or_is_told_with_the_socket(
    path: Path, answering: Callable[..., Broker], obituary: str | None
) -> None:
    answering(b'{"resu')

    with pytest.raises(BrokerError) as told:
        Control(path, lambda: obituary).call("clock.now")

    assert str(told.value) == (obituary or f"no answer at the broker's control socket {path} (connection closed)")


def test_a_socket_nobody_made_is_named(path: Path) -> None:
    with pytest.raises(BrokerError, match=rf"^no answer at .*{path} \(.*No such file"):
        Control(path).call("clock.now")


def test_an_answer_is_not_waited_for_for_ever(
    path: Path, answering: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "ANSWER_SECONDS", 0.05)
    answering()

    with pytest.raises(BrokerError, match="no answer within 0 s"):
        Control(path, lambda: None).call("clock.advance", seconds=1)


def test_what_is_no_json_is_refused_before_anything_is_sent(path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        Control(path).call("clock.advance", seconds=object())
