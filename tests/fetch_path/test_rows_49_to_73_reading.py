"""Rows 49-73 of kafka 2.0.1's fetch path: what committed readers and old clients get, and how bytes get to them."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest
import trio

from minibroker.broker.network.response import send_chunks
from minibroker.protocol.api import ApiKey, decode_response
from minibroker.protocol.compression import Codec
from minibroker.protocol.conversion import down_convert
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.storage.files import converted_slice
from minibroker.storage.files.converted_slice import ConvertedSlice
from minibroker.storage.files.records_file import FileSlice
from tests.broker.asking import LONG_MS, codes, fill, magics, on_disk, row_of, rows, sizes
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker, fetch_body
from tests.broker.scripted_follower import assign, follow
from tests.broker.transactional import Producer, started
from tests.protocol.batch_bytes import offsets_in, records_in, views_of
from tests.storage.cleaning import clean, put

pytestmark = pytest.mark.time_jumps

READ_UNCOMMITTED, READ_COMMITTED = 0, 1
VERSIONS = (4, 8, 12)


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    """One whose coordinator has a small topic: fifty partitions take their time."""
    return make_broker(transaction_state_log_num_partitions=1)


async def read(broker: InMemoryBroker, offset: int = 0, *, max_bytes: int = 1 << 20, **options: Any) -> Any:
    """The row of a read_committed fetch of the first partition of "t"."""
    options = {"isolation_level": READ_COMMITTED, "max_partition_bytes": max_bytes, **options}
    return row_of(await broker.fetch(("t", 0, offset), **options))


def aborted(row: Any) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in row.aborted_transactions]


async def transaction(producer: Producer, *values: bytes, is_commit: bool) -> None:
    for value in values:
        await producer.send("t", value)
    assert await producer.end(is_commit=is_commit) is ErrorCode.NONE


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_49_committed_readers_stop_at_an_open_transaction(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    await fill(broker, "t", batches=2)
    producer = await started(broker)
    await producer.send("t", b"open")
    await fill(broker, "t")

    told = [await read(broker, version=version, isolation_level=each) for each in (READ_COMMITTED, READ_UNCOMMITTED)]

    assert [(row.high_watermark, row.last_stable_offset) for row in told] == [(4, 2), (4, -1)]
    assert [magics(bytes(row.records)) for row in told] == [[2, 2], [2, 2, 2, 2]]


async def test_row_49_it_is_never_beyond_the_high_watermark(broker: InMemoryBroker) -> None:
    await assign(broker, "t", [0, 1])
    await fill(broker, "t")
    await follow(broker, "t", 1)
    batch = build_batch(
        [Record(0, NOW_MS, None, b"open")], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    await fill(broker, "t", batches=2)
    broker.log_of("t").append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS)
    await follow(broker, "t", 2)

    behind = await read(broker)
    await follow(broker, "t", 4)
    caught_up = await read(broker)

    ends = [(row.high_watermark, row.last_stable_offset) for row in (behind, caught_up)]
    assert ends == [(2, 2), (4, 3)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_row_50_aborted_is_listed_by_producer_and_first_offset(broker: InMemoryBroker, version: int) -> None:
    await broker.create_topic("t")
    one, other = await started(broker, "one"), await started(broker, "other")
    await one.send("t", b"0")
    await other.send("t", b"1")
    await one.send("t", b"2")
    await other.end(is_commit=False)  # its marker is at 3
    await one.end(is_commit=False)  # and this at 4
    await transaction(one, b"5", is_commit=True)

    row = await read(broker, version=version)

    # In the order of their markers; what was committed is not listed.
    assert aborted(row) == [(other.producer_id, 1), (one.producer_id, 0)]


async def test_row_50_what_ended_before_the_offset_is_left_out(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    producer = await started(broker)
    for value in (b"0", b"2", b"4"):  # with markers at 1, 3 and 5
        await transaction(producer, value, is_commit=False)

    firsts = {offset: [first for _, first in aborted(await read(broker, offset))] for offset in range(6)}

    assert firsts == {0: [0, 2, 4], 1: [0, 2, 4], 2: [2, 4], 3: [2, 4], 4: [4], 5: [4]}


@pytest.mark.parametrize("offset", [0, 1], ids=["records", "at the end"])
@pytest.mark.parametrize("version", VERSIONS)
async def test_row_51_nothing_to_skip_is_null_or_empty(broker: InMemoryBroker, version: int, offset: int) -> None:
    await broker.create_topic("t")
    await fill(broker, "t")

    lists = [
        (await read(broker, offset, isolation_level=level, version=version)).aborted_transactions
        for level in (READ_UNCOMMITTED, READ_COMMITTED)
    ]

    assert lists == [None, []]


async def test_row_51_a_partition_cut_to_nothing_has_none_either(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        batch = await fill(broker, "t", partition=partition)

    both = (("t", 0, 0), ("t", 1, 0))
    answers = [await broker.fetch(*both, max_bytes=batch + left, isolation_level=READ_COMMITTED) for left in (0, 1)]

    # Kafka takes the list away with a first batch that would be cut, and has none to cut where no byte is left.
    assert [[row.aborted_transactions for _, row in rows(answer)] for answer in answers] == [[[], []], [[], None]]


KAFKAS_CHUNK_BYTES = 128 * 1024
MAGIC_OF_VERSION = {0: 0, 1: 0, 2: 1, 3: 1, 4: 2, 5: 2, 8: 2, 12: 2}


async def write(broker: InMemoryBroker, *values: bytes, codec: Codec = Codec.NONE) -> None:
    batch = build_batch([Record(each, NOW_MS, b"k", value) for each, value in enumerate(values)], codec=codec)
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("t", [(0, batch)])])


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
@pytest.mark.parametrize("version", MAGIC_OF_VERSION)
async def test_row_67_versions_get_the_newest_format_known(broker: InMemoryBroker, version: int, codec: Codec) -> None:
    await broker.create_topic("t")
    values = [b"%d" % number * 100 for number in range(3)]
    await write(broker, *values, codec=codec)

    data = bytes(row_of(await broker.fetch(("t", 0, 0), version=version)).records)

    assert set(magics(data)) == {MAGIC_OF_VERSION[version]}
    assert [record[2:4] for record in records_in(data)] == [(b"k", value) for value in values]
    assert offsets_in(data) == [0, 1, 2]


@pytest.mark.parametrize(("version", "log_format", "magic"), [(1, "0.9.0", 0), (3, "0.10.0", 1), (3, "0.9.0", 0)])
async def test_row_67_what_is_old_enough_is_sent_as_it_is(
    broker: InMemoryBroker, version: int, log_format: str, magic: int
) -> None:
    await broker.create_topic("t", message_format_version=log_format)
    await write(broker, b"a", b"b")

    data = bytes(row_of(await broker.fetch(("t", 0, 0), version=version)).records)

    assert data == on_disk(broker, "t")
    assert magics(data) == [magic, magic]


async def test_row_68_a_topic_that_may_not_be_converted_is_an_error_where_it_has_to_be(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", message_downconversion_enable="false")
    await broker.create_topic("old", message_downconversion_enable="false", message_format_version="0.9.0")
    await broker.create_topic("u")
    for topic in ("t", "old", "u"):
        await fill(broker, topic)

    asked = [(topic, 0, 0) for topic in ("t", "old", "u")]
    told = {version: codes(await broker.fetch(*asked, version=version)) for version in range(9)}

    of_t = {version: ErrorCode.UNSUPPORTED_VERSION if version < 4 else ErrorCode.NONE for version in range(9)}
    assert told == {version: [code, ErrorCode.NONE, ErrorCode.NONE] for version, code in of_t.items()}


async def test_row_68_the_brokers_setting_is_the_default(make_broker: MakeBroker) -> None:
    broker = make_broker(log_message_downconversion_enable="false")
    await broker.create_topic("t")
    await fill(broker, "t")

    row = row_of(await broker.fetch(("t", 0, 0), version=3))

    assert (row.error_code, row.high_watermark) == (ErrorCode.UNSUPPORTED_VERSION, -1)


async def test_row_68_followers_are_served_all_the_same(broker: InMemoryBroker) -> None:
    topic = ("t", -1, -1, [(0, [0, 7])], [("message.downconversion.enable", "false")])
    await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[topic], timeout_ms=1000)
    await fill(broker, "t")

    row = row_of(await broker.fetch(("t", 0, 0), version=3, replica_id=7))

    assert row.error_code == ErrorCode.NONE
    assert magics(bytes(row.records))[0] == 1


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
    monkeypatch.setattr(os, "pread", None)
    received = await through_a_socket(chunks)

    body = decode_response(ApiKey.FETCH, 8, received[4:])[1]
    assert [bytes(row.records) for row in body.topics[0].partitions] == stored
    assert sum(sent) == sum(map(len, stored))


async def through_a_socket(chunks: list[Any]) -> bytes:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for each in (ours, theirs):
            each.setblocking(False)
        received = bytearray()

        async def receive() -> None:
            while True:
                await trio.lowlevel.wait_readable(theirs)
                piece = theirs.recv(1 << 16)
                if not piece:
                    return
                received.extend(piece)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(receive)
            await send_chunks(ours, chunks)
            ours.shutdown(socket.SHUT_WR)
    return bytes(received)


async def test_row_71_what_is_appended_while_an_answer_is_sent_is_not_in_it(broker: InMemoryBroker) -> None:
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
        disk.setattr(os, "pwrite", fill_the_disk)
        refused = await broker.produce("t", [b"y" * 100])
    after = sizes(await broker.fetch(("t", 0, 0)))
    await fill(broker, "t")

    assert refused.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert (seen_amid, after) == ([batch], [batch])
    assert sizes(await broker.fetch(("t", 0, 0))) == [2 * batch]


async def first_offset_from(broker: InMemoryBroker, offset: int) -> int | None:
    """Where the first batch begins that a fetch gets; None if it gets nothing."""
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
