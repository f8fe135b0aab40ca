"""A step that is asked again until Kafka has done what it answered: how long, and what is remembered of it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import pytest

from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.steps import CORRELATION_ID, Step, call
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode

pytestmark = pytest.mark.pure
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ASKED: Step = call(
    "EndTxn", 1, transactional_id="t", producer_id=1, producer_epoch=0, is_commit=True, retry=(int(CONCURRENT),)
)


class AnsweringPeer(SocketPeer):
    """A broker that gives these error codes, the last one for ever."""

    def __init__(self, codes: Iterable[ErrorCode]) -> None:
        super().__init__("", 0, answer_seconds=16.0)
        self._codes = deque(codes)

    def send(self, name: str, data: bytes) -> None:
        pass

    def receive(self, name: str) -> bytes:
        code = self._codes.popleft() if len(self._codes) > 1 else self._codes[0]
        response = API_TABLE[ApiKey.END_TXN].response
        return CORRELATION_ID.to_bytes(4, "big") + b"".join(response.encode(1, response(error_code=code)))


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that pass, each time that a peer waits."""
    passed: list[float] = []
    monkeypatch.setattr("minibroker.conformance.conversation.time.sleep", lambda seconds: passed.append(1.0))
    monkeypatch.setattr("minibroker.conformance.conversation.time.monotonic", lambda: sum(passed))
    return passed


def test_what_is_awaited_in_vain_is_counted_and_the_next_is_awaited_less_long(waited: list[float]) -> None:
    peer = AnsweringPeer([CONCURRENT])

    peer.hold([ASKED], "")
    first = len(waited)
    peer.hold([ASKED], "")

    assert (first, len(waited) - first) == (16, 4)
    assert peer.time_outs == 2


def test_after_one_that_came_each_is_awaited_as_long_as_at_first(waited: list[float]) -> None:
    peer = AnsweringPeer([*17 * [CONCURRENT], *3 * [CONCURRENT], ErrorCode.NONE, CONCURRENT])

    peer.hold([ASKED], "")
    answers = peer.hold([ASKED], "")
    before = len(waited)
    peer.hold([ASKED], "")

    assert answers[0]["error_code"] == 0
    assert len(waited) - before == 16
    assert peer.time_outs == 2
