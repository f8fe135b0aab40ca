"""A transcript of any client becomes a history: its retries are no duplicates, its seeks no steps back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from minibroker.cli.app import main
from minibroker.history.checking import check
from minibroker.history.transcripts import read_transcripts
from minibroker.protocol.api import ApiKey, Request, encode_request
from minibroker.protocol.control_records import ControlType, build_end_txn_marker
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.messages.transactions import EndTxnRequest, EndTxnResponse
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.transcript.file import Frame, Gap, Kind
from tests.minibroker.conversations import TIMESTAMP_MS, Conversation

UNANSWERED = -2
PRODUCER = {"producer_id": 7, "producer_epoch": 0}
IN_TRANSACTION = {**PRODUCER, "is_transactional": True}


def batch(offset: int, values: Sequence[str], **producer: Any) -> bytes:
    records = [Record(offset + at, TIMESTAMP_MS, None, value.encode()) for at, value in enumerate(values)]
    return bytes(build_batch(records, base_offset=offset, **producer))


class Clients:
    """Speaks of the partition t-0, with a batch for each word: `a`, or `a,b` for two records."""

    def __init__(self, path: Path) -> None:
        self.conversation = Conversation(path)
        for connection in (2, 3):
            self.conversation.tell(Kind.OPENED, "127.0.0.1:50001", connection=connection)

    def produce(self, words: str, offset: int, error: int = 0, *, connection: int = 1, **producer: Any) -> None:
        data = batch(0, words.split(","), **producer)
        body = ProduceRequest(acks=-1, topics=[("t", [(0, data)])])
        request = self.conversation.ask(ApiKey.PRODUCE, 7, body, connection=connection)
        if offset == UNANSWERED:
            self.conversation.tell(Kind.CLOSED, connection=connection)
        else:
            answer = ProduceResponse(topics=[("t", [(0, error, offset, -1, -1, (), None, None)])])
            self.conversation.answer(request, answer, connection=connection)

    def fetch(
        self,
        offset: int,
        *batches: bytes,
        isolation_level: int = 1,
        session: tuple[int, int] = (0, -1),
        aborted: Sequence[tuple[int, int]] = (),
        log_start_offset: int = 0,
    ) -> None:
        topics = [] if offset < 0 else [("t", [(0, -1, offset, -1, -1, 1)])]
        body = FetchRequest(
            replica_id=-1,
            max_wait_ms=0,
            min_bytes=0,
            isolation_level=isolation_level,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )
        request = self.conversation.ask(ApiKey.FETCH, 11, body, connection=3)
        row = (0, 0, -1, -1, log_start_offset, aborted, -1, b"".join(batches), None, None)
        answer = FetchResponse(session_id=0 if session == (0, -1) else 9, topics=[("t", [row])])
        self.conversation.answer(request, answer, connection=3)

    def end(self, *, is_commit: bool, error: int = 0) -> None:
        body = EndTxnRequest(transactional_id="x", is_commit=is_commit, **PRODUCER)
        request = self.conversation.ask(ApiKey.END_TXN, 0, body)
        self.conversation.answer(request, EndTxnResponse(error_code=error))

    def findings(self) -> list[tuple[str, list[int]]]:
        history = read_transcripts([self.conversation.close()])
        return [(each.kind, list(each.offsets)) for each in check(history)]


@pytest.fixture
def clients(tmp_path: Path) -> Clients:
    return Clients(tmp_path / "t.transcript")


def test_a_batch_of_an_idempotent_producer_that_is_sent_again_is_one_send(clients: Clients) -> None:
    clients.produce("a,b", UNANSWERED, **PRODUCER, base_sequence=0)
    clients.produce("a,b", 0, connection=2, **PRODUCER, base_sequence=0)
    clients.fetch(0, batch(0, "ab", **PRODUCER, base_sequence=0))

    assert clients.findings() == []


def test_a_batch_of_a_producer_without_an_id_that_was_appended_twice_is_a_duplicate(clients: Clients) -> None:
    clients.produce("a", UNANSWERED)
    clients.produce("a", 1, connection=2)
    clients.fetch(0, batch(0, "a"), batch(1, "a"))

    assert clients.findings() == [("duplicate", [0, 1])]


def test_a_value_that_was_acknowledged_twice_was_sent_twice(clients: Clients) -> None:
    clients.produce("a", 0)
    clients.produce("a", 1)
    clients.fetch(0, batch(0, "a"), batch(1, "a"))

    assert clients.findings() == []


@pytest.mark.parametrize(
    ("error", "kinds"),
    [(ErrorCode.NOT_LEADER_FOR_PARTITION, [("aborted-read", [0])]), (ErrorCode.REQUEST_TIMED_OUT, [])],
)
def test_a_refused_send_must_not_be_seen_but_one_in_doubt_may(
    clients: Clients, error: int, kinds: list[tuple[str, list[int]]]
) -> None:
    clients.produce("a", -1, error)
    clients.fetch(0, batch(0, "a"))

    assert clients.findings() == kinds


def test_of_the_attempts_of_a_send_one_success_is_enough(clients: Clients) -> None:
    clients.produce("a", -1, ErrorCode.NOT_LEADER_FOR_PARTITION)
    clients.produce("a", 0)
    clients.fetch(0, batch(0, "a"))

    assert clients.findings() == []


def test_a_fetch_that_passes_over_an_acknowledged_record_has_lost_it(clients: Clients) -> None:
    clients.produce("a,b", 0)
    clients.produce("c", 2)
    clients.fetch(0, batch(0, "a"), batch(2, "c"))

    assert clients.findings() == [("lost-write", [1])]


def test_records_below_the_log_start_or_the_first_position_are_not_lost(clients: Clients) -> None:
    clients.produce("a,b", 0)
    clients.produce("c", 2)
    clients.fetch(1, batch(2, "c"), log_start_offset=2)

    assert clients.findings() == []


def test_a_consumer_may_seek_but_must_go_on_from_the_offsets_of_its_session(clients: Clients) -> None:
    clients.produce("a,b,c", 0)
    clients.fetch(0, batch(0, "abc"), session=(0, 0))
    clients.fetch(1, batch(1, "bc"), session=(9, 1))
    clients.fetch(-1, batch(2, "c"), session=(9, 2))

    assert clients.findings() == [("poll-skip", [1])]


def test_a_fetch_of_epoch_0_begins_a_session_also_if_it_names_one_that_is_gone(clients: Clients) -> None:
    clients.produce("a,b,c", 0)
    clients.fetch(0, session=(4, 0))
    clients.fetch(-1, batch(0, "a"), batch(2, "c"), session=(9, 1))

    assert clients.findings() == [("lost-write", [1])]


def test_records_before_the_position_in_their_batch_are_dropped(clients: Clients) -> None:
    clients.produce("a,b,c", 0)
    clients.fetch(0, batch(0, "ab"))
    clients.fetch(2, batch(0, "abc"))

    assert clients.findings() == []


@pytest.mark.parametrize("answer_names_it", [True, False])
def test_records_of_an_aborted_transaction_must_be_named_in_the_answer(clients: Clients, answer_names_it: bool) -> None:
    clients.produce("a", 0, **IN_TRANSACTION, base_sequence=0)
    clients.end(is_commit=False)
    stored = batch(0, "a", **IN_TRANSACTION, base_sequence=0)
    marker = build_end_txn_marker(
        ControlType.ABORT, **PRODUCER, coordinator_epoch=0, timestamp_ms=TIMESTAMP_MS, base_offset=1
    )
    clients.fetch(0, stored, bytes(marker), aborted=[(7, 0)] if answer_names_it else ())

    assert clients.findings() == ([] if answer_names_it else [("aborted-read", [0])])


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_a_record_is_committed_once_its_commit_was_asked_for(clients: Clients, isolation_level: int) -> None:
    stored = batch(0, "a", **IN_TRANSACTION, base_sequence=0)
    clients.produce("a", 0, **IN_TRANSACTION, base_sequence=0)
    clients.fetch(0, stored, isolation_level=isolation_level)
    clients.end(is_commit=True, error=ErrorCode.CONCURRENT_TRANSACTIONS)
    clients.end(is_commit=True)

    assert clients.findings() == ([("early-read", [0])] if isolation_level else [])


def test_records_that_were_not_recorded_are_neither_lost_nor_unsent(
    clients: Clients, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = batch(0, ["a" * 100, "b"])
    body = ProduceRequest(acks=-1, topics=[("t", [(0, data)])])
    frame = encode_request(ApiKey.PRODUCE, 7, 1, "tower", body)[4:]
    kept = bytes(frame[: len(frame) - 40])
    clients.conversation.tell(Kind.REQUEST, frame=Frame(len(frame), kept, (Gap(len(kept), 40),)))
    request = Request(ApiKey.PRODUCE, 7, 1, "tower", body)
    clients.conversation.answer(request, ProduceResponse(topics=[("t", [(0, 0, 0, -1, -1, (), None, None)])]))
    clients.produce("c", 2)
    clients.fetch(0, batch(0, "x"), batch(2, "c"))

    assert main(["check", str(clients.conversation.close())]) == 0

    printed = capsys.readouterr()
    assert "no findings in 5 operations of 2 processes" in printed.out
    assert "records of t-0 are not judged: not all of their records are in the transcript" in printed.err


def test_transcripts_of_two_brokers_are_one_history(
    clients: Clients, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Clients(tmp_path / "other.transcript")
    clients.produce("a", 0)
    clients.produce("b", 1)
    other.fetch(0, batch(0, "b"))
    files = [str(each.conversation.close()) for each in (clients, other)]

    assert main(["check", *files]) == 1

    assert "inconsistent-offset: t-0 offset 0 was " in capsys.readouterr().out
    assert main(["check", files[0], str(tmp_path / "missing")]) == 2
    (tmp_path / "h.jsonl").write_text("")
    assert main(["check", files[0], str(tmp_path / "h.jsonl")]) == 2


def test_a_damaged_transcript_cannot_be_judged(clients: Clients, capsys: pytest.CaptureFixture[str]) -> None:
    path = clients.conversation.close()
    path.write_bytes(path.read_bytes() + b"\0" * 40)

    assert main(["check", str(path)]) == 2

    assert "record a new transcript" in capsys.readouterr().err
