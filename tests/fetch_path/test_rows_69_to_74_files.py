"""Rows 69-74 of kafka 2.0.1's fetch path: how bytes of files get to clients, and what old clients get of them."""

from __future__ import annotations

import errno
import os
from typing import Any

import pytest

from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import converted_slice
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from tests.broker.asking import LONG_MS, fill, on_disk, row_of, sizes
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker
from tests.broker.peers import tcp_pair, through
from tests.protocol.batch_bytes import views_of
from tests.storage.cleaning import clean, put

pytestmark = pytest.mark.time_jumps

KAFKAS_CHUNK_BYTES = 128 * 1024


@pytest.mark.parametrize("version", [0, 3])
async def test_row_69_one_batch_is_converted_for_the_answer_and_the_rest_while_it_is_sent(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    await broker.create_topic("t")
    await fill(broker, "t", batches=60, size=10_000)
    conversions = []
    convert = down_convert

    def counted(*args: Any, **options: Any) -> bytearray:
        conversions.append(args)
        return convert(*args, **options)

    monkeypatch.setattr(converted_slice, "down_convert", counted)

    chunks = broker.dispatch(ApiKey.FETCH, version, **fetch_body(("t", 0, 0)))
    (records,) = [chunk for chunk in chunks if isinstance(chunk, ConvertedSlice)]
    pieces = records.pieces()
    before_sending = len(conversions)
    first = next(pieces)
    after_a_piece = len(conversions)
    rest = list(pieces)

    assert before_sending == 1
    assert after_a_piece < len(conversions) // 10
    assert all(len(piece) <= KAFKAS_CHUNK_BYTES for piece in (first, *rest))


def answered(broker: InMemoryBroker, *offsets: int) -> list[Any]:
    """An answer as it is before it is sent: bytes, and slices of files."""
    rows = (("t", partition, offset) for partition, offset in enumerate(offsets))
    return list(broker.dispatch(ApiKey.FETCH, 8, **fetch_body(*rows)))


async def test_row_70_records_go_to_the_socket_unread(broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        await fill(broker, "t", partition=partition, batches=10, size=10_000)
    stored = [on_disk(broker, "t", partition) for partition in range(2)]
    chunks = answered(broker, 0, 0)
    sendfile, sent = os.sendfile, []

    def counted(out_fd: int, in_fd: int, position: int, count: int) -> int:
        sent.append(sendfile(out_fd, in_fd, position, count))
        return sent[-1]

    monkeypatch.setattr(os, "sendfile", counted)
    monkeypatch.setattr(FileSlice, "read", None)
    monkeypatch.setattr("minibroker.storage.files.disk.pread", None)
    ours, theirs = tcp_pair()
    with ours, theirs:
        received = await through((ours, theirs), chunks)

    body = decode_response(ApiKey.FETCH, 8, received[4:])[1]
    assert [bytes(row.records) for row in body.topics[0].partitions] == stored
    assert sum(sent) == sum(map(len, stored))


async def test_row_71_records_appended_while_an_answer_is_sent_are_not_in_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t")
    (head, records) = answered(broker, 0)

    await fill(broker, "t", batches=3)

    assert (records.size_bytes, len(records.read())) == (batch, batch)
    assert row_of(decode_response(ApiKey.FETCH, 8, (bytes(head) + records.read())[4:])[1]).high_watermark == 1


async def test_row_71_an_append_that_fails_half_way_leaves_nothing_to_read(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t")
    write = os.pwrite
    seen_amid = []

    def fill_the_disk(fd: int, data: Any, position: int) -> int:
        if len(data) < 100:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = write(fd, memoryview(data)[:-50], position)
        seen_amid.append(answered(broker, 0)[1].size_bytes)
        return written

    with monkeypatch.context() as disk:
        disk.setattr("minibroker.storage.files.disk.pwrite", fill_the_disk)
        refused = await broker.produce("t", [b"y" * 100])
    after = sizes(await broker.fetch(("t", 0, 0)))
    await fill(broker, "t")

    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (seen_amid, after) == ([batch], [batch])
    assert sizes(await broker.fetch(("t", 0, 0))) == [2 * batch]


async def first_offset_from(broker: InMemoryBroker, offset: int) -> int | None:
    """Return the offset of the first batch that a fetch gets; None if it gets nothing."""
    row = row_of(await broker.fetch(("t", 0, offset)))
    assert row.error_code == ErrorCode.NONE
    return next((view.base_offset for view in views_of(bytes(row.records))), None)


async def test_row_72_an_offset_that_was_compacted_away_is_read_from_the_next_batch(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    log = broker.log_of("t")
    for key in ("a", "b", "b", "b", "c"):
        put(log, (key, "v"))
    log.roll(NOW_MS)
    clean(log)
    broker.parts.replica_manager.partitions.led(TopicPartition("t", 0)).maybe_increment_high_watermark(0)

    assert [await first_offset_from(broker, offset) for offset in range(6)] == [0, 3, 3, 3, 4, None]


async def test_row_72_at_the_end_of_a_segment_the_next_is_read_or_waited_for(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    log = broker.log_of("t")
    await fill(broker, "t", batches=3)
    log.roll(NOW_MS)
    next(iter(log.segments)).truncate_to(1, now_ms=NOW_MS)  # as compaction leaves it

    stands_at = log.read(1, 100).offset_metadata
    parked = await broker.park(broker.fetch, ("t", 0, 2), max_wait_ms=LONG_MS)
    batch = await fill(broker, "t")

    assert (stands_at.message_offset, stands_at.segment_base_offset) == (3, 3)
    assert sizes(await parked.seen()) == [batch]
    assert [await first_offset_from(broker, offset) for offset in range(5)] == [0, 3, 3, 3, None]


async def test_row_73_the_index_has_an_entry_every_4096_bytes_that_leads_to_offsets(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=40, size=1000)
    segment = next(iter(broker.log_of("t").segments))

    entries = sorted({segment.offset_index.lookup(offset) for offset in range(40)})
    found = [segment.translate_offset(offset) for offset in range(41)]

    between = 4096 // batch + 1  # batches, the first that go beyond 4096 bytes
    places = [(offset, offset * batch) for offset in range(40)]
    assert entries == places[::between]
    assert [each and (each.base_offset, each.position) for each in found] == [*places, None]
    assert [await first_offset_from(broker, offset) for offset in range(40)] == list(range(40))


@pytest.mark.parametrize(
    ("timestamp", "expected"),
    [(-1, [3, 2, 1, 0]), (-2, [0]), (999, []), (1000, [0]), (2999, [1, 0]), (3000, [2, 1, 0]), (NOW_MS, [3, 2, 1, 0])],
)
async def test_row_74_version_0_lists_segments(broker: InMemoryBroker, timestamp: int, expected: list[int]) -> None:
    await broker.create_topic("t")
    log = broker.log_of("t")
    for number in range(3):
        if number:
            log.roll(NOW_MS)
        await fill(broker, "t")
    for number, segment in enumerate(log.segments):
        segment.last_modified_ms = 1000 * (number + 1)

    topics = [("t", [(0, -1, timestamp, 100)])]
    row = row_of(await broker.call(ApiKey.LIST_OFFSETS, 0, replica_id=-1, topics=topics))

    assert list(row.old_style_offsets) == expected


@pytest.mark.parametrize(
    ("configs", "version", "count"),
    [
        ({"message_format_version": "0.10.2"}, 12, 1),
        ({"message_format_version": "0.9.0"}, 12, 1),
        ({"message_format_version": "0.10.2"}, 11, 0),
        ({}, 12, 0),
    ],
)
async def test_a_topic_of_an_old_format_that_is_read_with_compact_types_is_logged_once(
    make_broker: MakeBroker, caplog: pytest.LogCaptureFixture, configs: dict[str, Any], version: int, count: int
) -> None:
    broker = make_broker()
    for topic in ("old", "older"):
        await broker.create_topic(topic, **configs)
        await broker.fetch((topic, 0, 0), version=version)  # without records there is nothing to miss
        assert "librdkafka" not in caplog.text
    for topic in ("old", "older"):
        await fill(broker, topic)

    for topic in ("old", "old", "older"):
        await broker.fetch((topic, 0, 0), version=version)

    logged = [each.message for each in caplog.records if "librdkafka" in each.message]
    assert [each.split(" has ")[0] for each in logged] == ["topic old"] * count
