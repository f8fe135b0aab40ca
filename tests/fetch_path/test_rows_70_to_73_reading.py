"""Rows 70-73 of kafka 2.0.1's fetch path: how bytes get from a log to a socket, and how an offset is found."""

from __future__ import annotations

import errno
import os
import socket
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.broker.network.response import send_chunks
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response, encode_request
from minibroker.protocol.batches import scan_batches
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.records_file import FileSlice
from tests.broker.conftest import NOW_MS, InMemoryBroker
from tests.broker.scripted_follower import park
from tests.fetch_path.asking import LONG_MS, UNLIMITED, fill, on_disk, row_of, sizes, wanted
from tests.storage.cleaning import clean, put


def answered(broker: InMemoryBroker, *offsets: int) -> list[Any]:
    """An answer as it is before it is sent: bytes, and slices of files."""
    topics = [("t", [wanted(partition, offset) for partition, offset in enumerate(offsets)])]
    body = API_TABLE[ApiKey.FETCH].request(replica_id=-1, min_bytes=1, max_bytes=UNLIMITED, topics=topics)
    chunks: Any = broker.registry.dispatch(
        bytearray(encode_request(ApiKey.FETCH, 8, 1, "test", body)[4:]), broker.client
    )
    return list(chunks)


# -- row 70: zero copy ----------------------------------------------------------------------------------------


async def test_row_70_records_go_from_the_file_to_the_socket_and_are_never_read(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
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


async def test_row_70_the_answer_is_bytes_and_stretches_of_files_in_turn(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", 2)
    for partition in range(2):
        await fill(broker, "t", partition=partition, size=10_000)

    kinds = [isinstance(chunk, FileSlice) for chunk in answered(broker, 0, 0)]

    assert kinds == [False, True, False, True]


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


# -- row 71: the segment that is written ----------------------------------------------------------------------


async def test_row_71_what_is_appended_while_an_answer_is_sent_is_not_in_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t")
    (head, records) = answered(broker, 0)

    await fill(broker, "t", batches=3)

    assert (records.size_bytes, len(records.read())) == (batch, batch)
    assert row_of(decode_response(ApiKey.FETCH, 8, (bytes(head) + records.read())[4:])[1]).high_watermark == 1


async def test_row_71_of_an_append_that_fails_half_way_nobody_sees_anything(
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


# -- row 72: gaps ---------------------------------------------------------------------------------------------


async def first_offset_from(broker: InMemoryBroker, offset: int) -> int | None:
    """Where the first batch begins that a fetch gets; None if it gets nothing."""
    row = row_of(await broker.fetch(("t", 0, offset)))
    assert row.error_code == ErrorCode.NONE
    data = bytes(row.records)
    return next((view.base_offset for view in scan_batches(data, 0, len(data))), None)


async def test_row_72_an_offset_that_was_compacted_away_is_read_from_the_next_batch(broker: InMemoryBroker) -> None:
    await broker.create_topic("t", cleanup_policy="compact", min_cleanable_dirty_ratio=0)
    log = broker.log_of("t")
    for key in ("a", "b", "b", "b", "c"):
        put(log, (key, "v"))
    log.roll(NOW_MS)
    clean(log)
    broker.parts.replica_manager.partitions[TopicPartition("t", 0)].maybe_increment_high_watermark(0)

    assert [await first_offset_from(broker, offset) for offset in range(6)] == [0, 3, 3, 3, 4, None]


async def test_row_72_at_the_end_of_a_segment_the_next_segment_is_tried(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    log = broker.log_of("t")
    await fill(broker, "t", batches=3)
    log.roll(NOW_MS)
    await fill(broker, "t")

    next(iter(log.segments)).truncate_to(1, now_ms=NOW_MS)  # as compaction leaves it

    assert [await first_offset_from(broker, offset) for offset in range(5)] == [0, 3, 3, 3, None]


async def test_row_72_where_nothing_is_left_up_to_the_end_there_is_no_error_and_the_wait_is_for_new_records(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    await broker.create_topic("t")
    log = broker.log_of("t")
    await fill(broker, "t", batches=3)
    log.roll(NOW_MS)

    next(iter(log.segments)).truncate_to(1, now_ms=NOW_MS)
    stands_at = log.read(1, 100).offset_metadata
    parked = await park(nursery, broker.fetch, ("t", 0, 2), max_wait_ms=LONG_MS)
    batch = await fill(broker, "t")

    assert (stands_at.message_offset, stands_at.segment_base_offset) == (3, 3)
    assert sizes(await parked.seen()) == [batch]


# -- row 73: the offset index ---------------------------------------------------------------------------------


async def test_row_73_the_index_has_an_entry_for_every_4096_bytes_and_no_more(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=40, size=1000)

    index = next(iter(broker.log_of("t").segments)).offset_index
    entries = sorted({index.lookup(offset) for offset in range(40)})

    between = 4096 // batch + 1  # batches, the first that go beyond 4096 bytes
    assert entries == [(offset, offset * batch) for offset in range(0, 40, between)]


async def test_row_73_every_offset_is_found_from_the_entry_before_it(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    batch = await fill(broker, "t", batches=40, size=1000)
    segment = next(iter(broker.log_of("t").segments))

    found = [segment.translate_offset(offset) for offset in range(41)]

    assert [each and (each.offset, each.position) for each in found] == [
        *((offset, offset * batch) for offset in range(40)),
        None,
    ]
    assert [await first_offset_from(broker, offset) for offset in range(40)] == list(range(40))


async def test_row_73_an_offset_inside_a_batch_is_read_from_where_the_batch_begins(broker: InMemoryBroker) -> None:
    await broker.create_topic("t")
    for _ in range(20):
        await broker.produce("t", [b"x" * 100] * 7)

    assert [await first_offset_from(broker, offset) for offset in range(140)] == [each // 7 * 7 for each in range(140)]
