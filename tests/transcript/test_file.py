"""A transcript's file: what was written is read again, whatever a killed broker or another process has made of it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from minibroker.transcript.file import (
    MAGIC,
    MAX_ENTRY_BYTES,
    Entry,
    Frame,
    Gap,
    Kind,
    TranscriptError,
    TranscriptReader,
    TranscriptWriter,
    encode_entry,
)

REQUEST = Entry(Kind.REQUEST, 1_700_000_000_000_000_001, 1, frame=Frame(5, b"hello"))
CUT = Entry(Kind.RESPONSE, 1_700_000_000_000_000_002, 1, frame=Frame(110, b"ten bytes.", (Gap(8, 90), Gap(100, 10))))
ENTRIES = [
    Entry(Kind.STARTED, 1_700_000_000_000_000_000, 0, "process 7"),
    Entry(Kind.OPENED, 1_700_000_000_000_000_000, 1, "127.0.0.1:5000"),
    REQUEST,
    CUT,
    Entry(Kind.CLOSED, 1_700_000_000_000_000_003, 1, "idle for 5 ms"),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "transcript"


def write(path: Path, *entries: Entry) -> None:
    writer = TranscriptWriter(path)
    for entry in entries:
        writer.write(encode_entry(entry))
    writer.close()


def read(path: Path) -> list[Entry]:
    reader = TranscriptReader(path)
    try:
        return list(reader.entries())
    finally:
        reader.close()


def test_what_was_written_is_read_again(path: Path) -> None:
    write(path, *ENTRIES)

    assert read(path) == ENTRIES


def test_an_entry_is_in_the_file_as_soon_as_it_was_written_and_a_reader_finds_it(path: Path) -> None:
    writer = TranscriptWriter(path)
    reader = TranscriptReader(path)
    assert list(reader.entries()) == []

    writer.write(encode_entry(REQUEST))

    assert list(reader.entries()) == read(path) == [REQUEST]
    reader.close()
    writer.close()


def test_a_torn_last_entry_is_passed_over_and_counted(path: Path) -> None:
    write(path, *ENTRIES)
    whole = path.stat().st_size
    torn = encode_entry(REQUEST)

    for size in range(1, len(torn)):
        path.write_bytes(path.read_bytes()[:whole] + torn[:size])
        reader = TranscriptReader(path)
        assert list(reader.entries()) == ENTRIES
        assert reader.torn_bytes == size
        reader.close()


def test_the_next_broker_writes_on_where_the_last_whole_entry_ended(path: Path) -> None:
    write(path, *ENTRIES)
    with path.open("ab") as file:
        file.write(encode_entry(REQUEST._replace(frame=Frame(1000, bytes(1000))))[:-1])

    writer = TranscriptWriter(path)
    assert writer.last_connection == 1
    writer.write(encode_entry(REQUEST))
    writer.close()

    assert read(path) == [*ENTRIES, REQUEST]


def test_no_other_file_is_ever_written_to_and_not_one_of_another_broker(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("my diary\n")
    writer = TranscriptWriter(path)

    for opening in (TranscriptWriter, TranscriptReader):
        with pytest.raises(TranscriptError, match="not a transcript"):
            opening(other)
    with pytest.raises(TranscriptError, match="another broker"):
        TranscriptWriter(path)
    assert other.read_text() == "my diary\n"
    writer.close()


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (struct.pack(">I", MAX_ENTRY_BYTES + 1) + bytes(20), f"an entry of {MAX_ENTRY_BYTES + 1} bytes"),
        (struct.pack(">I", 3) + bytes(20), "an entry of 3 bytes"),
        (encode_entry(REQUEST).replace(b"\x03", b"\x63", 1), "an entry of kind 99"),
        (struct.pack(">IBqI", 15, Kind.REQUEST, 0, 1) + b"12", "a frame in 2 bytes"),
        (struct.pack(">IBqIIBI", 22, Kind.REQUEST, 0, 1, 5, 0, 2**32 - 1), "4294967295 gaps in 9 bytes"),
        (encode_entry(REQUEST._replace(frame=Frame(4, b"hello"))), "5 bytes of a frame of 4"),
        (encode_entry(REQUEST._replace(frame=Frame(2**32 - 1, b"hello"))), "5 bytes of a frame of 4294967295"),
        (encode_entry(CUT._replace(frame=Frame(20, b"", (Gap(9, 10), Gap(5, 10))))), "gaps of a frame that overlap"),
    ],
)
def test_damage_is_an_error_with_its_place(path: Path, data: bytes, reason: str) -> None:
    path.write_bytes(MAGIC + encode_entry(REQUEST) + data)
    reader = TranscriptReader(path)
    entries = reader.entries()

    assert next(entries) == REQUEST
    with pytest.raises(TranscriptError) as damage:
        next(entries)

    assert str(damage.value) == f"{path} is damaged at byte {len(MAGIC) + len(encode_entry(REQUEST))}: {reason}"
    reader.close()


def test_what_is_missing_of_a_frame_is_zeros_unless_it_is_its_end_or_immense() -> None:
    assert CUT.frame is not None
    immense = Frame(2**32 - 1, b"", (Gap(0, 2**32 - 1),))

    assert bytes(CUT.frame.filled()) == b"ten byte" + bytes(90) + b"s." + bytes(10)
    with pytest.raises(TranscriptError, match="too large"):
        immense.filled()
    with pytest.raises(TranscriptError, match="only its first 5 of 100 bytes were recorded"):
        Frame(100, b"hello", is_end_missing=True).filled()
