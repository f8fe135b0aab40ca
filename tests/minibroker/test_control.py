"""The caller's side of the control socket, against brokers that refuse, hang up, say nothing or are not there."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from minibroker import BrokerError, patience
from minibroker import control as control_module
from minibroker.control import Control, KeptControl, Place


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("c") / "control"  # short: a socket's path has 107 bytes


ALIVE = b'{"call": "alive", "arguments": {}}\n'
UNKNOWN = b'{"error": "there is no call alive"}\n'


class Broker:
    """Shows that it lives, and answers one call with what the test says; `heard` is the line it got."""

    answers_alive = True

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
                if ALIVE in self.heard and self.answers_alive:
                    connection.sendall(UNKNOWN)
                    self.heard = b""
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
def test_a_call_that_the_broker_hangs_up_on_fails_with_its_obituary_or_the_socket(
    path: Path, answering: Callable[..., Broker], obituary: str | None
) -> None:
    answering(b'{"resu')

    with pytest.raises(BrokerError) as told:
        Control(path, lambda: obituary).call("clock.now")

    assert str(told.value) == (obituary or f"no answer at the broker's control socket {path} (connection closed)")


def test_a_missing_socket_is_named(path: Path) -> None:
    with pytest.raises(BrokerError, match=rf"^no answer at .*{path} \(.*No such file"):
        Control(path).call("clock.now")


def test_an_answer_is_not_waited_for_for_ever(
    path: Path, answering: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "ANSWER_SECONDS", 0.05)
    answering()

    with pytest.raises(BrokerError, match="no answer within 0 s"):
        Control(path, lambda: None).call("clock.advance", seconds=1)


def test_a_broker_that_stands_still_is_not_called(
    path: Path, answering: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "SIGN_SECONDS", 0.2)
    monkeypatch.setattr(Broker, "answers_alive", False)
    broker = answering()

    with pytest.raises(BrokerError, match=rf"does not answer at its control socket {path}: no sign of life within 0 s"):
        Control(path, lambda: None).call("clock.advance", seconds=1)

    assert broker.heard == ALIVE


def test_arguments_that_json_lacks_are_refused_before_anything_is_sent(path: Path) -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        Control(path).call("clock.advance", seconds=object())


class Echo:
    """Answers each call with the number of its connection and its arguments; closes each after `answers` of them."""

    def __init__(self, path: Path, answers: int, late_seconds: float = 0) -> None:
        self.heard: list[bytes] = []
        self._answers = answers
        self._late_seconds = late_seconds
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # of `close`
            while True:
                connection, _ = self._listener.accept()
                self._threads.append(threading.Thread(target=self._answer, args=[connection, len(self._threads)]))
                self._threads[-1].start()

    def _answer(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(ConnectionError), connection, connection.makefile("rwb") as lines:
            left = self._answers
            while left and (line := lines.readline()):
                if number == 1:
                    time.sleep(self._late_seconds)
                left -= line != ALIVE
                self.heard.append(line)
                result = {"result": [number, json.loads(line)["arguments"]]}
                lines.write(json.dumps(result).encode() + b"\n" if line != ALIVE else UNKNOWN)
                lines.flush()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()


@pytest.fixture
def echo(path: Path) -> Iterator[Callable[..., KeptControl]]:
    with contextlib.ExitStack() as at_end:

        def start(answers: int, late_seconds: float = 0) -> KeptControl:
            at_end.callback(Echo(path, answers, late_seconds).close)
            return at_end.enter_context(contextlib.closing(KeptControl(path)))

        yield start


def test_a_connection_that_is_kept_serves_every_call(echo: Callable[..., KeptControl]) -> None:
    control = echo(answers=100)

    assert [control.call("pull", n=n) for n in range(3)] == [[1, {"n": 0}], [1, {"n": 1}], [1, {"n": 2}]]


def test_a_call_that_finds_the_kept_connection_broken_is_made_over_a_new_one(echo: Callable[..., KeptControl]) -> None:
    control = echo(answers=2)

    assert [control.call("pull")[0] for _ in range(5)] == [1, 1, 2, 2, 3]


def test_an_answer_that_comes_too_late_is_not_taken_for_the_next_one(
    echo: Callable[..., KeptControl], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "ANSWER_SECONDS", 0.2)
    control = echo(answers=100, late_seconds=0.4)

    with pytest.raises(BrokerError, match="no answer within 0 s"):
        control.call("pull", n=1)

    assert control.call("pull", n=2) == [2, {"n": 2}]


def test_of_two_brokers_one_that_stands_still_is_called_in_vain_for_nothing_and_the_other_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "LIFE_SECONDS", 0.2)
    still = path.with_name("still")
    with (
        contextlib.closing(Echo(still, answers=9, late_seconds=0.6)),
        contextlib.closing(Echo(path, answers=2)) as other,
    ):
        control = Control(Place(still, path))

        assert control.call("clock.advance", seconds=1) == [1, {"seconds": 1}]
        assert control.call("clock.advance", seconds=2) == [2, {"seconds": 2}]
        assert [line == ALIVE for line in other.heard] == [True, False] * 2


def test_a_call_of_a_page_has_the_time_of_the_page(
    path: Path, answering: Callable[..., Broker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_module, "LIFE_SECONDS", 0.0)
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 0.05)
    answering()

    with patience.limited(), pytest.raises(BrokerError, match="no answer within 0 s"):
        Control(path).call("inside.state")


def test_threads_take_turns_on_the_kept_connection(echo: Callable[..., KeptControl]) -> None:
    control = echo(answers=1000)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda n: control.call("pull", n=n), range(200)))

    assert answers == [[1, {"n": n}] for n in range(200)]


def test_a_kept_connection_to_an_ended_broker_fails_with_its_obituary(path: Path) -> None:
    control = KeptControl(path, lambda: "it was killed")

    with pytest.raises(BrokerError, match=r"^it was killed$"):
        control.call("pull")
