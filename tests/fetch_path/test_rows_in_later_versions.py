"""What later versions of Fetch, ListOffsets and OffsetForLeaderEpoch, which Apache Kafka 2.0.1 does not know, add.

Leader epochs (KIP-320): who is fenced, whose log parts from this one, where an epoch ended. zstd (KIP-110), the largest
timestamp (KIP-734). Errors, waits and sessions stay as the rows say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.compression import Codec
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import LONG_MS, codes, fill, row_of, rows, seconds, sizes
from tests.broker.conftest import NOW_MS, At, InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import partition_of

pytestmark = pytest.mark.time_jumps

FENCED, UNKNOWN = ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH
LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
CODES = {-1: FENCED, 0: ErrorCode.NONE, 1: UNKNOWN}  # by the distance of the client's epoch from the leader's


@pytest.fixture
async def broker(make_broker: MakeBroker, tmp_path: Path) -> InMemoryBroker:
    """Three records in the first epoch of t-0, and one in its third; the second wrote nothing. t-1 is empty."""
    first = make_broker(tmp_path / "log")
    await first.create_topic("t", 2)
    await first.produce("t", [b"a", b"b", b"c"])
    first.close()
    make_broker(tmp_path / "log").close()
    broker = make_broker(tmp_path / "log")
    await broker.produce("t", [b"d"])
    return broker


def epoch_of(broker: InMemoryBroker, distance: int = 0) -> int:
    return partition_of(broker, "t").leader_epoch + distance


async def fetched(broker: InMemoryBroker, offset: int, *, current: int = -1, last: int = -1, **options: Any) -> Any:
    """The row of a fetch of t-0 by a client that knows these epochs."""
    asked = At("t", 0, offset, epoch=current, last_epoch=last)
    return row_of(await broker.fetch(asked, **{"version": 12, **options}))


async def listed(
    broker: InMemoryBroker, timestamp: int, topic: str = "t", *, version: int = 7, current: int = -1
) -> Any:
    topics = [(topic, [(0, current, timestamp, 1)])]
    return row_of(await broker.call(ApiKey.LIST_OFFSETS, version, replica_id=-1, topics=topics))


async def end_of(
    broker: InMemoryBroker, epoch: int, *, partition: int = 0, version: int = 4, current: int = -1
) -> tuple[Any, ...]:
    """Error, partition, epoch and end."""
    topics = [("t", [(partition, current, epoch)])]
    return tuple(row_of(await broker.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, topics=topics)))


@pytest.mark.parametrize("isolation_level", [0, 1])
@pytest.mark.parametrize("offset", [0, 4], ids=["with data", "at the end"])
@pytest.mark.parametrize(("distance", "code"), CODES.items())
async def test_row_11_row_12_row_19_a_wrong_leader_epoch_is_an_error_in_its_place_that_ends_the_wait(
    broker: InMemoryBroker, distance: int, code: ErrorCode, offset: int, isolation_level: int
) -> None:
    asked = At("t", 0, offset, epoch=epoch_of(broker, distance))
    options = {"max_wait_ms": LONG_MS, "min_bytes": 10_000, "isolation_level": isolation_level}

    for version in range(9, 13):
        took, answer = await seconds(broker.fetch(asked, ("t", 1, 0), version=version, **options))

        assert codes(answer) == [code, ErrorCode.NONE]
        row = rows(answer)[0][1]
        if code is ErrorCode.NONE:
            assert (took >= LONG_MS / 1000, row.high_watermark) == (True, 4)
        else:
            assert (took, row.high_watermark, row.last_stable_offset, row.log_start_offset) == (0, -1, -1, -1)
            assert (row.aborted_transactions, bytes(row.records)) == (None, b"")


@pytest.mark.parametrize(("distance", "code"), CODES.items())
async def test_other_apis_refuse_wrong_epochs_too(broker: InMemoryBroker, distance: int, code: ErrorCode) -> None:
    current = epoch_of(broker, distance)

    of_offsets = [(await listed(broker, LATEST, version=each, current=current)).error_code for each in range(4, 8)]
    of_ends = [(await end_of(broker, 0, version=each, current=current))[0] for each in range(2, 5)]

    assert (of_offsets, of_ends) == ([code] * 4, [code] * 3)


async def test_row_12_fields_that_earlier_versions_lack_are_not_checked(broker: InMemoryBroker) -> None:
    told = [(await fetched(broker, 0, version=version, current=77)).error_code for version in (7, 8)]
    told += [(await listed(broker, LATEST, version=3, current=77)).error_code]
    told += [(await end_of(broker, 0, version=1, current=77))[0]]

    assert told == [ErrorCode.NONE] * 4


async def test_an_epoch_ended_where_the_next_one_wrote(broker: InMemoryBroker) -> None:
    first, silent, current, unknown = (epoch_of(broker, distance) for distance in (-2, -1, 0, 1))

    ends = {epoch: (await end_of(broker, epoch))[2:] for epoch in (first, silent, current, unknown, -1)}

    assert ends == {first: (first, 3), silent: (first, 3), current: (current, 4), unknown: (-1, -1), -1: (-1, -1)}


async def test_a_leader_that_has_written_nothing_yet_knows_its_own_epoch(
    broker: InMemoryBroker, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker.close()
    again = make_broker(tmp_path / "log")
    current = epoch_of(again)

    assert [(await end_of(again, epoch))[2:] for epoch in (current, current - 1)] == [(current, 4), (current - 1, 4)]
    assert (await listed(again, LATEST)).leader_epoch == current


@pytest.mark.parametrize("version", range(5))
async def test_an_unknown_partition_has_no_epochs(broker: InMemoryBroker, version: int) -> None:
    answer = await end_of(broker, 0, partition=9, version=version)

    assert answer == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 9, -1, -1)


async def test_listed_offsets_come_with_the_epoch_of_their_records(broker: InMemoryBroker) -> None:
    epochs = [(await listed(broker, timestamp)).leader_epoch for timestamp in (EARLIEST, NOW_MS, LATEST)]

    assert epochs == [epoch_of(broker, -2), epoch_of(broker, -2), epoch_of(broker)]
    assert (await listed(broker, LATEST, version=3)).leader_epoch == -1


@pytest.mark.parametrize(("offset", "distance"), [(0, -2), (3, -2), (4, 0), (2, None)])
async def test_readers_of_the_same_past_get_records(broker: InMemoryBroker, offset: int, distance: int | None) -> None:
    row = await fetched(broker, offset, last=-1 if distance is None else epoch_of(broker, distance))

    assert (row.error_code, row.diverging_epoch) == (ErrorCode.NONE, None)
    assert (len(row.records) > 0) == (offset < 4)


@pytest.mark.parametrize(("offset", "distance"), [(4, -2), (4, -1), (3, -1), (9, -2)])
async def test_row_20_a_reader_with_another_past_gets_the_diverging_epoch_at_once(
    broker: InMemoryBroker, offset: int, distance: int
) -> None:
    took, row = await seconds(fetched(broker, offset, last=epoch_of(broker, distance), max_wait_ms=LONG_MS))

    assert (took, row.error_code, tuple(row.diverging_epoch)) == (0, ErrorCode.NONE, (epoch_of(broker, -2), 3))
    assert (row.high_watermark, len(row.records), row.aborted_transactions) == (4, 0, None)


async def test_an_unknown_epoch_and_an_offset_below_the_log_start_are_out_of_range(broker: InMemoryBroker) -> None:
    answered = [await fetched(broker, 4, last=epoch_of(broker, 1))]
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("t", [(0, 2)])], timeout_ms=1000)
    answered += [await fetched(broker, 1, last=epoch_of(broker, distance)) for distance in (-2, -1)]

    assert [(row.error_code, row.diverging_epoch) for row in answered] == [(ErrorCode.OFFSET_OUT_OF_RANGE, None)] * 3


async def test_row_22_the_right_epochs_wait_as_ever(broker: InMemoryBroker) -> None:
    asked = At("t", 0, 4, epoch=epoch_of(broker), last_epoch=epoch_of(broker))
    parked = await broker.park(broker.fetch, asked, version=12, max_wait_ms=LONG_MS)

    batch = await fill(broker, "t")

    assert sizes(await parked.seen()) == [batch]


async def test_row_42_a_session_repeats_errors_and_diverging_epochs_until_they_end(broker: InMemoryBroker) -> None:
    epoch = epoch_of(broker)
    first = await broker.fetch(("t", 0, 4), ("t", 1, 0), version=12, session_id=0, session_epoch=0)
    epochs = iter(range(1, 12))

    async def told(*asked: Any) -> list[tuple[int, ErrorCode, int | None]]:
        session = {"session_id": first.session_id, "session_epoch": next(epochs)}
        answer = await broker.fetch(*asked, version=12, **session)
        return [
            (row.partition, row.error_code, row.diverging_epoch and row.diverging_epoch.end_offset)
            for _, row in rows(answer)
        ]

    assert await told() == []
    assert await told(At("t", 1, 0, epoch=epoch + 5)) == [(1, UNKNOWN, None)]
    assert await told() == [(1, UNKNOWN, None)]  # the session keeps the epoch it was told
    assert await told(At("t", 1, 0, epoch=epoch)) == [(1, ErrorCode.NONE, None)]
    assert await told() == []
    for _ in range(2):
        assert await told(At("t", 0, 4, epoch=epoch, last_epoch=epoch - 1)) == [(0, ErrorCode.NONE, 3)]
    assert await told(At("t", 0, 4, epoch=epoch, last_epoch=epoch)) == []


async def test_consumers_are_never_sent_to_another_replica(broker: InMemoryBroker) -> None:
    answered = [await fetched(broker, offset, version=11, rack_id="elsewhere") for offset in (0, 4)]

    assert [row.preferred_read_replica for row in answered] == [-1, -1]


async def produce_at(broker: InMemoryBroker, topic: str, *times_ms: int, codec: Codec = Codec.NONE) -> None:
    records = [Record(number, time_ms, None, b"v" * 1000) for number, time_ms in enumerate(times_ms)]
    topics = [(topic, [(0, build_batch(records, codec=codec))])]
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=topics)


@pytest.mark.parametrize(("configs", "first_served"), [({"compression_type": "zstd"}, 10), ({}, 4)])
async def test_zstd_is_refused_where_a_topic_or_a_conversion_needs_a_client_that_knows_it(
    broker: InMemoryBroker, configs: dict[str, Any], first_served: int
) -> None:
    await broker.create_topic("z", **configs)
    await produce_at(broker, "z", NOW_MS, codec=Codec.ZSTD)

    told = {version: codes(await broker.fetch(("z", 0, 0), version=version)) for version in range(13)}

    refused = ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert told == {version: [ErrorCode.NONE if version >= first_served else refused] for version in range(13)}
    if configs:
        assert codes(await broker.fetch(("z", 0, 1), version=9)) == [refused], "at the end too"


async def of_max_timestamp(broker: InMemoryBroker, topic: str, version: int = 7) -> tuple[ErrorCode, int, int]:
    row = await listed(broker, MAX_TIMESTAMP, topic, version=version)
    return row.error_code, row.offset, row.timestamp


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
async def test_the_largest_timestamp_is_that_of_the_first_such_record(broker: InMemoryBroker, codec: Codec) -> None:
    await broker.create_topic("m")
    for times_ms in ((5, 7, 6), (9, 30, 20, 30), (30,), (8,)):
        await produce_at(broker, "m", *(NOW_MS + each for each in times_ms), codec=codec)
        broker.log_of("m").roll(NOW_MS)

    assert await of_max_timestamp(broker, "m") == (ErrorCode.NONE, 4, NOW_MS + 30)


@pytest.mark.parametrize(
    ("batches", "log_start_offset", "expected"),
    [
        pytest.param([(-1, -1), (-1,)], 0, (0, -1), id="no record has a time: the first, as Kafka 3.9.1"),
        pytest.param([(-1, -1), (-1,)], 1, (1, -1), id="the first that is left"),
        pytest.param([(-1, -1), (50,), (-1,)], 0, (2, 50), id="one record has a time"),
        pytest.param([(300,), (-1,), (-1,)], 1, (1, -1), id="those that are left have none"),
        pytest.param([(300,), (100,), (200,), (150,)], 1, (2, 200), id="the youngest is deleted"),
        pytest.param([(300, 100, 200), (150,)], 1, (2, 200), id="the youngest is deleted from its batch"),
        pytest.param([(100, 300), (300,), (150,)], 2, (2, 300), id="another record is as young"),
        pytest.param([(900,), (800,), (100,)], 2, (2, 100), id="of several segments"),
        pytest.param([(300,), (100,)], 2, (-1, -1), id="all are deleted"),
    ],
)
@pytest.mark.parametrize("rolls", [False, True])
async def test_the_largest_timestamp_is_that_of_a_record_that_is_left(
    broker: InMemoryBroker,
    batches: list[tuple[int, ...]],
    log_start_offset: int,
    expected: tuple[int, int],
    rolls: bool,
) -> None:
    await broker.create_topic("m")
    for times_ms in batches:
        await produce_at(broker, "m", *times_ms)
        if rolls:
            broker.log_of("m").roll(NOW_MS)
    await broker.call(ApiKey.DELETE_RECORDS, 1, topics=[("m", [(0, log_start_offset)])], timeout_ms=1000)

    assert await of_max_timestamp(broker, "m") == (ErrorCode.NONE, *expected)


async def test_where_there_is_no_largest_timestamp(broker: InMemoryBroker) -> None:
    await broker.create_topic("old", message_format_version="0.9.0")
    await broker.create_topic("m")

    assert await of_max_timestamp(broker, "old") == (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, -1, -1)
    assert await of_max_timestamp(broker, "m") == (ErrorCode.NONE, -1, -1)
    assert broker.log_of("m").fetch_offset_of_max_timestamp() is None
    await produce_at(broker, "m", NOW_MS, NOW_MS + 5)
    assert await of_max_timestamp(broker, "m", version=6) == (ErrorCode.NONE, 0, NOW_MS)


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
