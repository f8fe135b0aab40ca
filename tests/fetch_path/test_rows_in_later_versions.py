"""What Fetch v9-v12, which Apache Kafka 2.0.1 does not know, leave as the rows say: errors, waits and sessions.

Leader epochs by themselves are in tests/broker/test_leader_epochs.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import park, partition_of
from tests.fetch_path.asking import LONG_MS, fetch_rows, fill, row_of, rows, seconds, sizes, wanted

FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.fixture
async def broker(make_broker: MakeBroker, tmp_path: Path) -> InMemoryBroker:
    """Two partitions, with a record of each of two leader epochs in the first."""
    before = make_broker(tmp_path / "log")
    await before.create_topic("t", 2)
    await fill(before, "t")
    before.close()
    broker = make_broker(tmp_path / "log")
    await fill(broker, "t")
    return broker


def epoch_of(broker: InMemoryBroker) -> int:
    return partition_of(broker, "t").leader_epoch


@pytest.mark.parametrize("version", [9, 10, 11, 12])
@pytest.mark.parametrize(("distance", "code"), [(-1, FENCED), (1, UNKNOWN)])
async def test_row_11_row_12_row_19_a_wrong_leader_epoch_is_an_error_in_its_place_that_ends_the_wait(
    broker: InMemoryBroker, autojump_clock: MockClock, version: int, distance: int, code: ErrorCode
) -> None:
    asked = ("t", [wanted(0, 0, epoch=epoch_of(broker) + distance), wanted(1, 0)])

    took, answer = await seconds(fetch_rows(broker, asked, version=version, max_wait_ms=LONG_MS, min_bytes=10_000))

    assert took == 0
    assert [(row.partition, row.error_code) for _, row in rows(answer)] == [(0, code), (1, ErrorCode.NONE)]
    row = answer.topics[0].partitions[0]
    assert (row.high_watermark, row.last_stable_offset, row.log_start_offset) == (-1, -1, -1)
    assert (row.aborted_transactions, bytes(row.records)) == (None, b"")


@pytest.mark.parametrize("version", [7, 8])
async def test_row_12_what_these_versions_cannot_say_is_not_checked(broker: InMemoryBroker, version: int) -> None:
    answer = await fetch_rows(broker, ("t", [wanted(0, 0, epoch=77)]), version=version)

    assert row_of(answer).error_code == ErrorCode.NONE


async def test_row_20_another_past_is_answered_at_once(broker: InMemoryBroker, autojump_clock: MockClock) -> None:
    asked = ("t", [wanted(0, 2, epoch=epoch_of(broker), last_epoch=epoch_of(broker) - 1)])

    took, answer = await seconds(fetch_rows(broker, asked, version=12, max_wait_ms=LONG_MS))

    assert (took, sizes(answer)) == (0, [0])
    assert row_of(answer).diverging_epoch.end_offset == 1


async def test_row_22_the_right_epochs_wait_as_ever(
    broker: InMemoryBroker, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    epoch = epoch_of(broker)
    asked = ("t", [wanted(0, 2, epoch=epoch, last_epoch=epoch)])
    parked = await park(nursery, fetch_rows, broker, asked, version=12, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t")

    assert sizes(await parked.seen()) == [batch]


async def test_row_42_in_a_session_errors_and_another_past_are_told_every_time_until_they_end(
    broker: InMemoryBroker,
) -> None:
    epoch = epoch_of(broker)
    first = await fetch_rows(broker, ("t", [wanted(0, 2), wanted(1, 0)]), version=12, session_id=0, session_epoch=0)
    epochs = iter(range(1, 10))

    async def told(*asked: Any) -> list[tuple[int, ErrorCode, int | None]]:
        answer = await fetch_rows(
            broker,
            *([("t", list(asked))] if asked else []),
            version=12,
            session_id=first.session_id,
            session_epoch=next(epochs),
        )
        return [
            (row.partition, row.error_code, row.diverging_epoch and row.diverging_epoch.end_offset)
            for _, row in rows(answer)
        ]

    assert await told() == []
    for _ in range(2):
        assert await told(wanted(1, 0, epoch=epoch + 5)) == [(1, UNKNOWN, None)]
    assert await told(wanted(1, 0, epoch=epoch)) == [(1, ErrorCode.NONE, None)]
    assert await told() == []
    for _ in range(2):
        assert await told(wanted(0, 2, epoch=epoch, last_epoch=epoch - 1)) == [(0, ErrorCode.NONE, 1)]
    assert await told(wanted(0, 2, epoch=epoch, last_epoch=epoch)) == []
