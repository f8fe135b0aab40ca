"""The places of exchanges in a transcript, by connection: read a part at a time, while the broker writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from minibroker.console import transcripts
from minibroker.console.transcripts import TranscriptIndex, lines_of, summary_of
from minibroker.protocol.api import ApiKey, encode_request
from minibroker.protocol.messages.groups import HeartbeatRequest
from minibroker.transcript.file import Entry, Frame, Kind, TranscriptError, TranscriptWriter, encode_entry

SECOND_NS = 10**9


class Recording:
    """A transcript that grows as a test says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.writer = TranscriptWriter(path)
        self.time_ns = 1_000 * SECOND_NS
        self.write(Kind.STARTED, 0, "a broker")

    def write(self, kind: Kind, connection: int, text: str = "", frame: Frame | None = None) -> bytes:
        self.time_ns += SECOND_NS
        data = encode_entry(Entry(kind, self.time_ns, connection, text, frame))
        self.writer.write(data)
        return data

    def asked(self, connection: int, correlation_id: int = 7, group: str = "billing") -> None:
        request = HeartbeatRequest(group_id=group, generation_id=1)
        data = encode_request(ApiKey.HEARTBEAT, 0, correlation_id, "me", request)[4:]
        self.write(Kind.REQUEST, connection, frame=Frame(len(data), bytes(data)))

    def answered(self, connection: int, correlation_id: int = 7, error: int = 0) -> None:
        body = correlation_id.to_bytes(4, "big") + error.to_bytes(2, "big")
        data = len(body).to_bytes(4, "big") + body
        self.write(Kind.RESPONSE, connection, frame=Frame(len(data), data))


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recording]:
    made = Recording(tmp_path / "transcript")
    yield made
    made.writer.close()


@pytest.fixture
def index(recording: Recording) -> Iterator[TranscriptIndex]:
    made = TranscriptIndex(recording.path)
    yield made
    made.close()


def correlations(index: TranscriptIndex, connection: int) -> list[int]:
    return [index.exchange(place).correlation_id for place in index.of(connection)]


def test_exchanges_of_a_connection_are_found_as_the_file_grows(recording: Recording, index: TranscriptIndex) -> None:
    recording.asked(1, 11)
    recording.asked(2, 21)
    recording.answered(1, 11)
    assert index.read_on()
    assert (correlations(index, 1), correlations(index, 2)) == ([11], [])

    recording.write(Kind.CLOSED, 2)
    recording.asked(1, 12)
    recording.write(Kind.REFUSED, 1, "too large")
    assert index.read_on()
    assert (correlations(index, 1), correlations(index, 2)) == ([11, 12], [21])
    assert index.position == index.size_bytes


def test_a_broker_that_started_again_answers_nothing_of_the_one_before(
    recording: Recording, index: TranscriptIndex
) -> None:
    recording.asked(1, 11)
    recording.write(Kind.STARTED, 0, "another")
    recording.write(Kind.CLOSED, 1)
    index.read_on()

    assert index.of(1) == []


def test_an_entry_that_is_being_written_is_read_when_it_is_whole(recording: Recording, tmp_path: Path) -> None:
    recording.asked(1, 11)
    before = recording.path.stat().st_size
    recording.answered(1, 11)
    whole = recording.path.read_bytes()
    torn = tmp_path / "torn"
    for end in range(before, len(whole)):
        torn.write_bytes(whole[:end])
        index = TranscriptIndex(torn)
        assert index.read_on()
        assert index.of(1) == []
        torn.write_bytes(whole)
        index.read_on()
        assert correlations(index, 1) == [11]
        index.close()


def test_a_look_reads_for_a_while_and_the_next_goes_on(
    recording: Recording, index: TranscriptIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "BLOCK_BYTES", 100)
    for number in range(20):
        recording.asked(1, number)
        recording.answered(1, number)

    ticks = iter(range(1000))
    monkeypatch.setattr("minibroker.console.transcripts.time.monotonic", lambda: next(ticks))
    looks = 0
    while not index.read_on(seconds=3):
        looks += 1
        assert index.position < index.size_bytes or looks < 30

    assert looks > 3
    assert correlations(index, 1) == list(range(20))


def test_only_the_newest_are_kept_in_mind(
    recording: Recording, index: TranscriptIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transcripts, "OF_CONNECTION_MAX", 2)
    monkeypatch.setattr(transcripts, "CONNECTIONS_MAX", 2)
    for connection in (1, 2, 1, 1, 3):
        recording.asked(connection, connection * 10)
        recording.answered(connection, connection * 10)
    index.read_on()

    assert [len(index.of(each)) for each in (1, 2, 3)] == [2, 0, 1]


def test_a_damaged_file_and_another_file_are_named(recording: Recording, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_bytes(b"PNG")
    with pytest.raises(TranscriptError, match="is not a transcript"):
        TranscriptIndex(other)
    other.write_bytes(recording.path.read_bytes() + b"\xff" * 40)
    damaged = TranscriptIndex(other)
    with pytest.raises(TranscriptError, match="damaged at byte"):
        damaged.read_on()
    damaged.close()


def test_an_exchange_has_a_row_and_its_lines(
    recording: Recording, index: TranscriptIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording.asked(3, 5, group="<b>")
    recording.answered(3, 5, error=27)
    index.read_on()
    (place,) = index.of(3)
    exchange = index.exchange(place)
    row = summary_of(place, exchange)
    printed = lines_of(exchange, index.begin_ns or 0, is_full=False)

    assert (row["api"], row["correlation"], row["about"], row["errors"]) == (
        "Heartbeat", 5, ["<b>"], ["REBALANCE_IN_PROGRESS"]
    )  # fmt: skip
    assert (row["at"], row["latency_ms"], row["outcome"]) == (place.request, 1000.0, "answered")
    text = "\n".join("".join(part for part, _ in line) for line in printed["lines"])
    assert text.startswith("    1.000 s  #3  Heartbeat v0")
    assert 'group_id: "<b>"' in text
    assert ("27 REBALANCE_IN_PROGRESS", "bold red") in [tuple(part) for line in printed["lines"] for part in line]
    monkeypatch.setattr(transcripts, "LINES_MAX", 2)
    cut = lines_of(exchange, 0, is_full=False)
    assert (len(cut["lines"]), cut["is_cut"]) == (2, True)
