"""What a broker counts, by Kafka's names; what of it costs anything, and when."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from minibroker.broker.apis.client import Client
from minibroker.broker.inside.counters import SAMPLES, count_codes, places_of_partitions
from minibroker.broker.inside.metrics import PIECE_SECONDS, SCANS_MAX, Metrics, Observed, histogram
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name

TOPIC = "kafka.server:type=BrokerTopicMetrics"
REQUEST = "kafka.network:type=RequestMetrics"
PURGATORY = "kafka.server:type=DelayedOperationPurgatory"


class Server:
    """What metrics read of the server: its connections, which a broker without sockets has none of."""

    accepted: Mapping[str, int] = {"PLAINTEXT": 3}


def metrics_of(broker: InMemoryBroker, *, now: Callable[[], float] = time.perf_counter) -> Metrics:
    compaction = Compaction(broker.parts.config, broker.parts.replica_manager.log_manager, broker.clock)
    connection: Any = type("Open", (), {"client": Client("127.0.0.1:1", "127.0.0.1", 9092)})()
    server: Any = Server()
    return Metrics(Observed(broker.parts, server, [connection], compaction, broker.clock, "127.0.0.1:9092"), now=now)


def pieces(metrics: Metrics, **arguments: Any) -> Iterator[dict[str, Any]]:
    piece = json.loads(json.dumps(metrics.metrics(**arguments)))
    yield piece
    while piece["scan"] is not None:
        piece = json.loads(json.dumps(metrics.metrics(scan=piece["scan"])))
        yield piece


def values(metrics: Metrics, **arguments: Any) -> dict[str, Any]:
    """Every value by the name of its MBean."""
    found = {}
    for piece in pieces(metrics, **arguments):
        for family in piece["families"]:
            keys = len(family["keys"])
            for row in family["rows"]:
                labels = "".join(f",{key}={value}" for key, value in zip(family["keys"], row[:keys], strict=True))
                for name, value in zip(family["names"], row[keys:], strict=True):
                    found[f"{family['type']},name={name}{labels}"] = value
    return found


@pytest.fixture
async def broker(make_broker: MakeBroker) -> InMemoryBroker:
    broker = make_broker(group_initial_rebalance_delay_ms=0)
    await broker.create_topic("orders", partitions=2)
    return broker


@pytest.fixture
def metrics(broker: InMemoryBroker) -> Iterator[Metrics]:
    metrics = metrics_of(broker)
    metrics.count()
    yield metrics


async def test_a_topic_has_what_was_written_to_it_and_read_from_it(broker: InMemoryBroker, metrics: Metrics) -> None:
    await broker.produce("orders", [b"a", b"b", b"c"])
    await broker.produce("orders", [b"d"], partition=1, acks=0)
    large = build_batch([Record(0, 0, None, b"x" * 2_000_000, ())])
    await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("orders", [(0, large)])])
    answer = await broker.fetch(("orders", 0, 0), ("orders", 1, 0))

    found = values(metrics)
    sizes = [broker.log_of("orders", partition).size_bytes for partition in (0, 1)]
    expected = {
        "MessagesInPerSec": 4,
        "BytesInPerSec": sum(sizes),
        "BytesOutPerSec": sum(sizes),
        "BytesRejectedPerSec": len(large),
        "TotalProduceRequestsPerSec": 3,
        "TotalFetchRequestsPerSec": 2,
        "FailedProduceRequestsPerSec": 0,
    }
    assert answer.topics[0].partitions[1].records
    assert {name: found[f"{TOPIC},name={name},topic=orders"] for name in expected} == expected
    assert {name: found[f"{TOPIC},name={name}"] for name in expected} == expected


async def test_a_deleted_topic_stays_in_the_sums_only(broker: InMemoryBroker, metrics: Metrics) -> None:
    await broker.produce("orders", [b"a", b"b"])
    assert values(metrics)[f"{TOPIC},name=MessagesInPerSec,topic=orders"] == 2

    await broker.call(ApiKey.DELETE_TOPICS, 1, topic_names=["orders"], timeout_ms=1000)

    found = values(metrics)
    assert f"{TOPIC},name=MessagesInPerSec,topic=orders" not in found
    assert found[f"{TOPIC},name=MessagesInPerSec"] == 2


async def test_topics_that_clients_make_up_have_no_counts_of_their_own(
    broker: InMemoryBroker, metrics: Metrics
) -> None:
    for number in range(20):
        await broker.produce(f"nothing-{number}", [b"a"])
        await broker.fetch((f"nothing-{number}", 0, 0))

    found = values(metrics)
    assert not [name for name in found if "nothing" in name]
    assert found[f"{TOPIC},name=TotalProduceRequestsPerSec"] == 20


async def test_each_fetch_of_a_session_counts_the_partitions_that_it_reads(
    broker: InMemoryBroker, metrics: Metrics
) -> None:
    first = await broker.fetch(("orders", 0, 0), ("orders", 1, 0), session_id=0, session_epoch=0)
    for epoch in (1, 2, 3):
        await broker.fetch(session_id=first.session_id, session_epoch=epoch)

    found = values(metrics)
    assert found[f"{TOPIC},name=TotalFetchRequestsPerSec,topic=orders"] == 8
    assert values(metrics)[f"{TOPIC},name=TotalFetchRequestsPerSec,topic=orders"] == 8
    assert found["kafka.server:type=FetchSessionCache,name=NumIncrementalFetchPartitionsCached"] == 2


async def test_requests_count_by_api_and_version_and_each_error_code_of_their_answers(
    broker: InMemoryBroker, metrics: Metrics
) -> None:
    await broker.call(ApiKey.METADATA, 5, topics=by_name("orders", "nothing"), allow_auto_topic_creation=False)
    await broker.fetch(("orders", 0, 0), ("orders", 0, 7), ("nothing", 0, 0))
    await broker.fetch(("orders", 0, 9), version=7)
    await broker.call(ApiKey.HEARTBEAT, 0, group_id="g", generation_id=1, member_id="m")

    found = values(metrics)
    errors = {name: value for name, value in found.items() if name.startswith(f"{REQUEST},name=ErrorsPerSec")}
    rates = {name: value for name, value in found.items() if name.startswith(f"{REQUEST},name=RequestsPerSec")}
    assert {name.partition("request=")[2]: value for name, value in rates.items()} == {
        "Metadata,version=5": 1,
        "Fetch,version=7": 1,
        "FetchConsumer,version=7": 1,
        "Fetch,version=8": 1,
        "FetchConsumer,version=8": 1,
        "Heartbeat,version=0": 1,
    }
    assert {name.partition("request=")[2]: value for name, value in errors.items()} == {
        "Metadata,error=NONE": 3,  # as Kafka: of the topic and its partitions
        "Metadata,error=UNKNOWN_TOPIC_OR_PARTITION": 1,
        "Fetch,error=NONE": 0,
        "Fetch,error=OFFSET_OUT_OF_RANGE": 2,
        "Fetch,error=UNKNOWN_TOPIC_OR_PARTITION": 1,
        "Heartbeat,error=NONE": 0,
        "Heartbeat,error=NOT_COORDINATOR": 1,
    }


async def test_the_time_of_a_parked_fetch_is_remote_and_its_end_is_counted(
    broker: InMemoryBroker, metrics: Metrics, autojump_clock: object
) -> None:
    parked = await broker.park(broker.fetch, ("orders", 0, 0), max_wait_ms=500, min_bytes=1)
    now = values(metrics)
    await broker.produce("orders", [b"a"])
    await parked.seen()
    await broker.fetch(("orders", 1, 0), max_wait_ms=300, min_bytes=1)

    found = values(metrics)
    total, local, remote = (
        found[f"{REQUEST},name={stage}TimeMs,request=FetchConsumer"] for stage in ("Total", "Local", "Remote")
    )
    assert (now[f"{PURGATORY},name=NumDelayedOperations,delayedOperation=Fetch"], total["Count"]) == (1, 2)
    assert total["Max"] > remote["Max"] > 0 and total["Max"] == pytest.approx(local["Max"] + remote["Max"], rel=0.5)
    assert found[f"{REQUEST},name=RequestQueueTimeMs,request=FetchConsumer"]["99thPercentile"] == 0
    waits = "minibroker:type=Purgatory,name="
    assert found[f"{waits}Endings,delayedOperation=Fetch,ending=completed"] == 1
    assert found[f"{waits}Endings,delayedOperation=Fetch,ending=expired"] == 1
    assert found[f"{waits}FetchWakeups,case=D"] == 1
    assert found[f"{waits}WaitedSeconds,delayedOperation=Fetch"] == pytest.approx(0.3, abs=0.01)


async def test_groups_count_by_state_and_their_offsets_are_there(broker: InMemoryBroker, metrics: Metrics) -> None:
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="billing", key_type=0)
    await broker.call(
        ApiKey.OFFSET_COMMIT,
        5,
        group_id="billing",
        generation_id=-1,
        member_id="",
        topics=[("orders", [(1, 5, -1, -1, "")])],
    )

    found = values(metrics)
    group = "kafka.coordinator.group:type=GroupMetadataManager,name="
    assert [found[group + name] for name in ("NumGroups", "NumGroupsEmpty", "NumGroupsStable", "NumOffsets")] == [
        1,
        1,
        0,
        1,
    ]
    assert found["minibroker:type=Group,name=CommittedOffset,group=billing,topic=orders,partition=1"] == 5


async def test_state_needs_no_counting(broker: InMemoryBroker) -> None:
    await broker.produce("orders", [b"a", b"b"])

    found = values(metrics_of(broker), lease_ms=0)

    of = ",topic=orders,partition=0"
    assert found[f"kafka.log:type=Log,name=LogEndOffset{of}"] == 2
    assert found[f"kafka.cluster:type=Partition,name=InSyncReplicasCount{of}"] == 1
    assert found[f"{TOPIC},name=MessagesInPerSec,topic=orders"] == 2
    assert found["kafka.server:type=ReplicaManager,name=PartitionCount"] == 2
    assert found["kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions"] == 0
    assert found["minibroker:type=Process,name=ResidentBytes"] > 1_000_000
    sockets = "kafka.server:type=socket-server-metrics,name="
    assert found[f"{sockets}connection-close-total,listener=PLAINTEXT,networkProcessor=0"] == 2


async def test_nothing_stands_in_the_way_of_requests_before_the_first_look_and_after_the_lease(
    broker: InMemoryBroker, autojump_clock: object
) -> None:
    registry, replicas = broker.registry, broker.parts.replica_manager

    def hooks() -> tuple[object, ...]:
        return registry.encoded, registry.handlers, replicas.on_refused, replicas.fetch_purgatory.on_release

    before, metrics = hooks(), metrics_of(broker)
    assert hooks() == before

    answer = metrics.metrics(lease_ms=1000)
    assert answer["is_counting"] and hooks() != before
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)  # time passes
    metrics.metrics(lease_ms=1000)
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)
    assert hooks() != before
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)

    assert hooks() == before
    assert not metrics.metrics(lease_ms=0)["is_counting"]


async def test_a_scan_of_thousands_of_partitions_pauses_within_a_millisecond(make_broker: MakeBroker) -> None:
    broker, ticks = make_broker(), iter(range(10**9))
    await broker.create_topic("wide", partitions=60)
    metrics = metrics_of(broker, now=lambda: next(ticks) * PIECE_SECONDS / 7.5)

    found = list(pieces(metrics))

    assert max(sum(len(each["rows"]) for each in piece["families"]) for piece in found) <= 8
    assert values(metrics)["kafka.log:type=Log,name=Size,topic=wide,partition=59"] == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"scan": 77}, "scan 77 is no longer kept"),
        ({"scan": "x"}, "scan 'x' is no longer kept"),
        ({"lease_ms": -1}, "lease_ms is a number"),
        ({"lease_ms": "5"}, "lease_ms is a number"),
        ({"lease_ms": 10**12}, "lease_ms is a number"),
    ],
)
async def test_a_call_that_is_wrong_is_refused(metrics: Metrics, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        metrics.metrics(**arguments)


async def test_only_the_newest_scans_are_kept_and_not_for_long(broker: InMemoryBroker) -> None:
    clock = [0.0]

    def now() -> float:
        clock[0] += 1.0
        return clock[0]

    metrics = metrics_of(broker, now=now)
    scans = [metrics.metrics()["scan"] for _ in range(SCANS_MAX + 1)]

    assert metrics.metrics(scan=scans[-1])["scan"] == scans[-1]
    for scan in scans[:2]:
        with pytest.raises(ValueError, match="no longer kept"):
            metrics.metrics(scan=scan)
    clock[0] += 11.0
    with pytest.raises(ValueError, match="no longer kept"):
        metrics.metrics(scan=scans[-1])


def test_a_histogram_has_the_attributes_of_kafkas() -> None:
    found = histogram(range(1, 1001), 5000)

    assert (found["Count"], found["Min"], found["Max"], found["Mean"]) == (5000, 1, 1000, 500.5)
    assert (found["50thPercentile"], found["99thPercentile"], found["999thPercentile"]) == (501, 991, 1000)
    assert histogram((), 0)["99thPercentile"] == 0
    assert SAMPLES == 1028


def test_error_codes_are_counted_in_rows_of_any_form() -> None:
    from collections import Counter

    errors: Counter[int] = Counter()
    places: Any = [(0, None), (1, [(1, None), (2, [(0, None)])])]
    codes = count_codes((0, [("a", 3, [(0,), (5,)]), ("b", 0, None)]), places, errors)

    assert (codes, errors) == (5, {3: 1, 5: 1})
    assert places_of_partitions(places) is None
    assert places_of_partitions([(1, [(1, [(2, None)])])]) == (1, 1, 2)
    assert ErrorCode(3).name == "UNKNOWN_TOPIC_OR_PARTITION"
