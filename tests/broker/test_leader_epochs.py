"""Clients that know a leader epoch: who is fenced, whose log parts from this one, where an epoch ended (KIP-320)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import NOW_MS, InMemoryBroker, MakeBroker

FIRST_OF_FETCH, FIRST_OF_LIST_OFFSETS, FIRST_OF_OFFSET_FOR_LEADER_EPOCH = 9, 4, 2
UNCHECKED, OLDER, SAME, NEWER = None, -1, 0, 1
CODES = {
    UNCHECKED: ErrorCode.NONE,
    OLDER: ErrorCode.FENCED_LEADER_EPOCH,
    SAME: ErrorCode.NONE,
    NEWER: ErrorCode.UNKNOWN_LEADER_EPOCH,
}

every_epoch = pytest.mark.parametrize("distance", CODES)


@pytest.fixture
async def broker(make_broker: MakeBroker, tmp_path: Path) -> InMemoryBroker:
    """Three records in the first epoch of t-0, and one in its third; the second wrote nothing."""
    for values in ([b"a", b"b", b"c"], []):
        before = make_broker(tmp_path / "log")
        if "t" not in topics_of(before):
            await before.create_topic("t")
        if values:
            await before.produce("t", values)
        before.close()
    broker = make_broker(tmp_path / "log")
    await broker.produce("t", [b"d"])
    return broker


def topics_of(broker: InMemoryBroker) -> set[str]:
    return {topic_partition.topic for topic_partition in broker.parts.replica_manager.partitions}


def leader_epoch(broker: InMemoryBroker) -> int:
    epoch: int = broker.parts.replica_manager.partitions[TopicPartition("t", 0)].leader_epoch
    return epoch


def known_epoch(broker: InMemoryBroker, distance: int | None) -> int:
    return -1 if distance is None else leader_epoch(broker) + distance


async def fetched(
    broker: InMemoryBroker,
    offset: int,
    *,
    version: int = 12,
    current: int = -1,
    last: int = -1,
    max_wait_ms: int = 0,
    **options: Any,
) -> Any:
    """The whole answer to a fetch of t-0 by a client that knows these epochs."""
    topics = [("t", [(0, current, offset, last, -1, 1 << 20)])]
    return await broker.call(
        ApiKey.FETCH, version, replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=1, topics=topics, **options
    )


def only_row(answer: Any) -> Any:
    ((row,),) = (topic.partitions for topic in answer.topics)
    return row


async def listed(broker: InMemoryBroker, timestamp: int, *, version: int = 7, current: int = -1) -> Any:
    topics = [("t", [(0, current, timestamp, 1)])]
    return only_row(await broker.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics))


async def end_of(broker: InMemoryBroker, epoch: int, *, version: int = 4, current: int = -1) -> Any:
    topics = [("t", [(0, current, epoch)])]
    return only_row(await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics))


# -- fencing --------------------------------------------------------------------------------------------------


@every_epoch
@pytest.mark.parametrize("offset", [0, 4], ids=["with data", "at the end"])
@pytest.mark.parametrize("isolation_level", [0, 1])
async def test_fetch_refuses_an_epoch_that_is_not_the_leaders(
    broker: InMemoryBroker, distance: int | None, offset: int, isolation_level: int
) -> None:
    current = known_epoch(broker, distance)

    for version in range(FIRST_OF_FETCH, 13):
        row = only_row(await fetched(broker, offset, version=version, current=current, isolation_level=isolation_level))
        assert row.error_code == CODES[distance], f"v{version}"
        assert row.high_watermark == (4 if row.error_code == ErrorCode.NONE else -1)


@every_epoch
async def test_list_offsets_refuses_an_epoch_that_is_not_the_leaders(
    broker: InMemoryBroker, distance: int | None
) -> None:
    current = known_epoch(broker, distance)

    for version in range(FIRST_OF_LIST_OFFSETS, 8):
        assert (await listed(broker, -1, version=version, current=current)).error_code == CODES[distance], f"v{version}"


@every_epoch
async def test_offset_for_leader_epoch_refuses_an_epoch_that_is_not_the_leaders(
    broker: InMemoryBroker, distance: int | None
) -> None:
    current = known_epoch(broker, distance)

    for version in range(FIRST_OF_OFFSET_FOR_LEADER_EPOCH, 5):
        assert (await end_of(broker, 0, version=version, current=current)).error_code == CODES[distance], f"v{version}"


async def test_a_fenced_fetch_is_not_waited_with(broker: InMemoryBroker, autojump_clock: object) -> None:
    started = trio.current_time()

    await fetched(broker, 4, current=known_epoch(broker, OLDER), max_wait_ms=5000)

    assert trio.current_time() == started


async def test_versions_without_epochs_are_not_fenced(broker: InMemoryBroker) -> None:
    old = {"current": known_epoch(broker, OLDER)}

    assert only_row(await fetched(broker, 0, version=8, **old)).error_code == ErrorCode.NONE
    assert (await listed(broker, -1, version=3, **old)).error_code == ErrorCode.NONE
    assert (await end_of(broker, 0, version=1, **old)).error_code == ErrorCode.NONE


# -- where an epoch ended -------------------------------------------------------------------------------------


async def test_an_epoch_ended_where_the_next_one_wrote(broker: InMemoryBroker) -> None:
    first, silent, current = (leader_epoch(broker) - distance for distance in (2, 1, 0))

    ends = {epoch: tuple(await end_of(broker, epoch))[2:] for epoch in (first, silent, current, current + 1, -1)}

    assert ends == {first: (first, 3), silent: (first, 3), current: (current, 4), current + 1: (-1, -1), -1: (-1, -1)}


async def test_a_leader_that_has_written_nothing_yet_knows_its_own_epoch(
    broker: InMemoryBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker.close()
    again = make_broker(tmp_path / "log")
    current = leader_epoch(again)

    assert tuple(await end_of(again, current))[2:] == (current, 4)
    assert tuple(await end_of(again, current - 1))[2:] == (current - 1, 4)
    assert (await listed(again, -1)).leader_epoch == current


async def test_version_0_tells_the_offset_alone(broker: InMemoryBroker) -> None:
    row = await end_of(broker, leader_epoch(broker), version=0)

    assert tuple(row) == (ErrorCode.NONE, 0, -1, 4)


async def test_an_unknown_partition_has_no_epochs(broker: InMemoryBroker) -> None:
    for version in range(5):
        answer = await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=[("t", [(9, -1, 0)])])
        assert tuple(only_row(answer)) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9, -1, -1)


async def test_listed_offsets_come_with_the_epoch_of_their_records(broker: InMemoryBroker) -> None:
    first, current = leader_epoch(broker) - 2, leader_epoch(broker)
    epochs = [(await listed(broker, timestamp)).leader_epoch for timestamp in (-2, NOW_MS, -1)]

    assert epochs == [first, first, current]
    assert (await listed(broker, -1, version=3)).leader_epoch == -1


# -- logs that part -------------------------------------------------------------------------------------------


async def test_a_reader_with_the_same_past_gets_records(broker: InMemoryBroker) -> None:
    first, current = leader_epoch(broker) - 2, leader_epoch(broker)

    for offset, last in ((0, first), (3, first), (4, current), (2, -1)):
        row = only_row(await fetched(broker, offset, last=last))
        assert (row.error_code, row.diverging_epoch) == (ErrorCode.NONE, None)
        assert (len(row.records) > 0) == (offset < 4)


async def test_a_reader_with_another_past_is_told_where_to_go_back_to(
    broker: InMemoryBroker, autojump_clock: object
) -> None:
    first, silent = leader_epoch(broker) - 2, leader_epoch(broker) - 1
    started = trio.current_time()

    for offset, last in ((4, first), (4, silent), (3, silent), (9, first)):
        row = only_row(await fetched(broker, offset, last=last, max_wait_ms=5000))
        assert row.error_code == ErrorCode.NONE
        assert tuple(row.diverging_epoch) == (first, 3)
        assert (row.high_watermark, len(row.records), row.aborted_transactions) == (4, 0, None)
    assert trio.current_time() == started


async def test_an_epoch_nobody_knows_is_out_of_range(broker: InMemoryBroker) -> None:
    row = only_row(await fetched(broker, 4, last=leader_epoch(broker) + 1))

    assert (row.error_code, row.diverging_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


async def test_below_the_log_start_offset_is_out_of_range_whatever_the_epoch(broker: InMemoryBroker) -> None:
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 2)])], timeout_ms=1000)

    for last in (leader_epoch(broker) - 2, leader_epoch(broker) - 1):
        row = only_row(await fetched(broker, 1, last=last))
        assert (row.error_code, row.diverging_epoch) == (ErrorCode.OFFSET_OUT_OF_RANGE, None)


# -- in a session ---------------------------------------------------------------------------------------------


async def test_a_session_keeps_the_epochs_it_was_told(broker: InMemoryBroker) -> None:
    begun = await fetched(broker, 4, current=known_epoch(broker, OLDER), session_epoch=0)
    session = {"session_id": begun.session_id, "replica_id": -1, "max_wait_ms": 0, "min_bytes": 1}

    nothing_new = await broker.call(ApiKey.FETCH, 12, session_epoch=1, topics=[], **session)
    topics = [("t", [(0, known_epoch(broker, SAME), 4, -1, -1, 1 << 20)])]
    changed = await broker.call(ApiKey.FETCH, 12, session_epoch=2, topics=topics, **session)
    after = await broker.call(ApiKey.FETCH, 12, session_epoch=3, topics=[], **session)

    assert begun.session_id > 0
    assert only_row(nothing_new).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert only_row(changed).error_code == ErrorCode.NONE
    assert list(after.topics) == []


async def test_another_past_is_told_in_a_session_though_nothing_else_changed(broker: InMemoryBroker) -> None:
    begun = await fetched(broker, 4, session_epoch=0)
    topics = [("t", [(0, -1, 4, leader_epoch(broker) - 2, -1, 1 << 20)])]

    answer = await broker.call(
        ApiKey.FETCH,
        12,
        session_id=begun.session_id,
        session_epoch=1,
        replica_id=-1,
        max_wait_ms=0,
        min_bytes=1,
        topics=topics,
    )

    assert only_row(answer).diverging_epoch.end_offset == 3
