"""The recorder between connections and the broker: all is recorded, all is passed on as it was."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.response import ThrottledResponse
from minibroker.broker.pending import Pending
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.probes import Probes
from minibroker.broker.way.stage import Stage
from minibroker.broker.way.way import Way
from minibroker.broker.wings.testing.recording import Recording
from minibroker.protocol.api import ApiKey, decode_request, encode_request
from minibroker.protocol.errors import KafkaProtocolError
from minibroker.protocol.messages.groups import HeartbeatRequest
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice, RecordsFile
from minibroker.transcript.exchanges import Event, ExchangeReader
from minibroker.transcript.file import Entry, Frame, Gap, Kind, TranscriptReader, TranscriptWriter, encode_entry
from minibroker.transcript.recorder import MAX_OTHER_BYTES, Recorder

MAX_RECORD_BYTES = 100
MAX_BYTES = 2 * MAX_OTHER_BYTES
ADDRESS = "127.0.0.1:50000"
REQUEST = bytearray(
    encode_request(ApiKey.HEARTBEAT, 0, 7, "me", HeartbeatRequest(group_id="group", generation_id=1))[4:]
)


class Recorded(Stage):
    """A stage that answers `self.answer`, a recorder that looks at it, and one client."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self.path = path
        self.answer: Any = None
        self.recorder = Recorder(TranscriptWriter(path), max_record_bytes=MAX_RECORD_BYTES, max_bytes=max_bytes)
        self.recording = Recording(self.recorder)
        probes = Probes()
        probes.add(self.recording)
        self.dispatch = Way([self], probes).serve
        self.client = Client(ADDRESS, "127.0.0.1", 9092)
        self.recording.opened(self.client)

    def enter(self, exchange: Exchange) -> Any:
        exchange.frame[:2] = b"??"  # an append stamps offsets into the frame
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    def ask(self, frame: bytearray = REQUEST) -> Any:
        return self.dispatch(bytearray(frame), self.client)

    def entries(self) -> list[Entry]:
        with closing(TranscriptReader(self.path)) as reader:
            return list(reader.entries())


@pytest.fixture
def recording(tmp_path: Path) -> Iterator[Recorded]:
    started = Recorded(tmp_path / "transcript")
    yield started
    started.recorder.close()


def frame_of(recording: Recorded, at: int = -1) -> Frame:
    frame = recording.entries()[at].frame
    assert frame is not None
    return frame


def kinds(recording: Recorded) -> list[Kind]:
    return [entry.kind for entry in recording.entries()]


def test_a_connection_is_recorded_from_its_beginning_to_its_end(recording: Recorded) -> None:
    recording.recording.closed(recording.client, "idle for 5 ms")

    opened, closed = recording.entries()
    assert (opened.kind, opened.connection, opened.text) == (Kind.OPENED, 1, ADDRESS)
    assert (closed.kind, closed.connection, closed.text) == (Kind.CLOSED, 1, "idle for 5 ms")


def test_a_request_is_recorded_as_it_came_and_its_answer_passed_on(recording: Recorded) -> None:
    recording.answer = [b"\0\0\0\4\0\0\0\7"]

    assert recording.ask() is recording.answer

    _, request, response = recording.entries()
    assert frame_of(recording, 1).kept == REQUEST
    assert frame_of(recording).kept == b"\0\0\0\4\0\0\0\7"
    assert request.time_ns <= response.time_ns
    recording.answer = None
    assert recording.ask() is None
    assert kinds(recording)[-1] is Kind.NO_RESPONSE


@pytest.mark.parametrize("is_refused", [False, True])
def test_a_request_that_waits_is_recorded_when_its_wait_is_over(recording: Recorded, is_refused: bool) -> None:
    recording.answer = waiting = Pending[list[bytes]]()
    pending = recording.ask()
    before = kinds(recording)

    if is_refused:
        waiting.fail(CloseConnectionError("no such version"))
        with pytest.raises(CloseConnectionError):
            pending.result()
    else:
        waiting.resolve([b"later"])
        assert pending.result() == [b"later"]

    assert before == [Kind.OPENED, Kind.REQUEST]
    assert kinds(recording) == [*before, Kind.REFUSED if is_refused else Kind.RESPONSE]


@pytest.mark.parametrize("refusal", [KafkaProtocolError("no such version"), CloseConnectionError("no such version")])
def test_a_refusal_is_recorded_and_goes_on(recording: Recorded, refusal: Exception) -> None:
    recording.answer = refusal

    with pytest.raises(type(refusal)):
        recording.ask()

    assert recording.entries()[-1].text == "no such version"
    assert kinds(recording)[-1] is Kind.REFUSED


@pytest.mark.parametrize("torn", [b"\0\0\0\x09\0", bytes(MAX_OTHER_BYTES + MAX_RECORD_BYTES + 1)], ids=["", "immense"])
def test_a_torn_response_is_recorded_as_far_as_it_goes_or_may_be_kept(recording: Recorded, torn: bytes) -> None:
    recording.answer = CloseConnectionError("torn by a fault", torn)

    with pytest.raises(CloseConnectionError):
        recording.ask()

    frame = frame_of(recording)
    assert (frame.size_bytes, frame.kept) == (len(torn), torn[:MAX_OTHER_BYTES])


def test_an_answer_that_is_more_than_a_list_is_shown_whole(recording: Recorded) -> None:
    recording.answer = ThrottledResponse([b"slow"], 10, trio.Event())

    assert recording.ask() is recording.answer


def batch(value_bytes: int) -> bytes:
    return bytes(build_batch([Record(0, 1, None, b"v" * value_bytes)]))


def test_of_a_large_request_only_so_much_of_its_records_is_kept(recording: Recorded) -> None:
    records = [batch(50), batch(200), batch(1)]
    partitions = [(index, each) for index, each in enumerate(records)]
    whole = encode_request(ApiKey.PRODUCE, 7, 1, "me", ProduceRequest(topics=[("flights", partitions)], acks=1))[4:]
    assert len(records[0]) > MAX_RECORD_BYTES

    recording.ask(bytearray(whole))

    frame = frame_of(recording, 1)
    assert frame.size_bytes == len(whole)
    begins = [whole.index(each) for each in records]
    assert frame.gaps == (
        Gap(begins[0] + MAX_RECORD_BYTES, len(records[0]) - MAX_RECORD_BYTES),
        Gap(begins[1], len(records[1])),
        Gap(begins[2], len(records[2])),
    )
    asked = decode_request(frame.filled()).body
    assert [len(each.records) for each in asked.topics[0].partitions] == [len(each) for each in records]
    assert bytes(asked.topics[0].partitions[0].records[:MAX_RECORD_BYTES]) == records[0][:MAX_RECORD_BYTES]


def test_of_records_in_files_only_so_much_is_read(recording: Recorded, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"r" * 1000)
    file = RecordsFile(log)
    recording.answer = [b"head", FileSlice(file, 0, 1000), b"tail"]

    assert recording.ask() is recording.answer

    frame = frame_of(recording)
    assert frame.kept == b"head" + b"r" * MAX_RECORD_BYTES + b"tail"
    assert frame.gaps == (Gap(4 + MAX_RECORD_BYTES, 1000 - MAX_RECORD_BYTES),)
    assert isinstance(recording.answer[1], FileSlice)


def test_records_that_are_converted_while_they_are_sent_are_converted_once(recording: Recorded, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(batch(10))
    converted = ConvertedSlice(FileSlice(RecordsFile(log), 0, log.stat().st_size), 1, 0)
    recording.answer = [b"head", converted]

    _, sent = recording.ask()

    frame = frame_of(recording)
    assert frame.kept == b"head" + sent[:MAX_RECORD_BYTES]
    assert len(sent) == converted.size_bytes and b"v" * 10 in sent


def test_of_a_log_that_was_cut_off_meanwhile_nothing_is_kept(recording: Recorded, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"r" * 10)
    recording.answer = [b"head", FileSlice(RecordsFile(log), 5, 10), b"between", b"records", b"tail"]

    recording.ask()

    frame = frame_of(recording)
    assert frame.kept == b"headbetweentail"
    assert frame.gaps == (Gap(4, 10), Gap(21, 7))  # behind a gap there are no records: whoever reads it relies on that


def test_of_an_immense_message_without_records_the_beginning_is_kept(recording: Recorded) -> None:
    size = MAX_OTHER_BYTES + MAX_RECORD_BYTES + 1
    recording.answer = [bytes(size)]

    recording.ask()

    frame = frame_of(recording)
    assert (frame.size_bytes, len(frame.kept), frame.is_end_missing) == (size, MAX_OTHER_BYTES, True)


def test_a_disk_error_ends_the_recording_with_one_line_and_nothing_else(
    recording: Recorded, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(self: TranscriptWriter, entry: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(TranscriptWriter, "write", fail)
    recording.answer = [b"answer"]

    assert [recording.ask(), recording.ask()] == [[b"answer"], [b"answer"]]
    recording.recording.closed(recording.client, "")

    (line,) = [each.getMessage() for each in caplog.records]
    assert line.endswith("ends here: No space left on device")


def test_a_broker_that_is_started_again_numbers_after_the_last_connection_of_its_file(tmp_path: Path) -> None:
    first = Recorded(tmp_path / "transcript")
    first.recorder.close()

    assert Recorder(TranscriptWriter(first.path), max_record_bytes=1, max_bytes=MAX_BYTES).last_connection == 1


def test_a_file_that_is_full_ends_the_recording_with_its_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recording = Recorded(tmp_path / "transcript", max_bytes=300)
    recording.answer = [b"short"]

    for _ in range(9):
        assert recording.ask() is recording.answer

    *_, end = recording.entries()
    assert (end.kind, end.connection) == (Kind.ENDED, 0)
    assert end.text == "it has reached 300 bytes; use another file, or raise --transcript-max-bytes"
    assert caplog.text.count("ends here: it has reached 300 bytes") == 1
    assert recording.path.stat().st_size - len(encode_entry(end)) <= 300
    reading = ExchangeReader(recording.path)
    ended = [each for each in reading.rest() if isinstance(each, Event) and each.what == "ended"]
    reading.close()
    assert [each.text for each in ended] == [end.text]


def test_connections_are_recorded_under_the_numbers_they_were_accepted_with(recording: Recorded) -> None:
    later = Client("127.0.0.1:50001", "127.0.0.1", 9092, 7)
    recording.recording.opened(later)
    recording.dispatch(bytearray(REQUEST), later)

    assert [entry.connection for entry in recording.entries()] == [1, 7, 7, 7]
    assert str(later) == "connection 7 of 127.0.0.1:50001"
