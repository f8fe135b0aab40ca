"""The counts of a broker, by Kafka's names; which of them cost anything, and when."""

from __future__ import annotations

import itertools
import json
import socket
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import pytest
import trio
import trio.testing

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.network.memory_pool import MemoryPool
from minibroker.broker.network.socket_bytes import TCP_INFO, SocketBytes, Transferred, transferred
from minibroker.broker.upkeep.compaction import Compaction
from minibroker.broker.wings.looking import counters
from minibroker.broker.wings.looking.counters import SAMPLES, TIMED_PER_WINDOW, places_of_partitions
from minibroker.broker.wings.looking.families import Observed, histogram
from minibroker.broker.wings.looking.metrics import PIECE_SECONDS, SCANS_MAX, Metrics
from minibroker.conformance.requests import fetch_body
from minibroker.protocol.api import ApiKey
from minibroker.protocol.client_ids import OF_COMMANDS
from minibroker.protocol.message_rows import Column
from minibroker.protocol.primitives import Meaning
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from tests.broker.asking import fill
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import GroupClient
from tests.broker.peers import Connect, echo, tcp_pair
from tests.broker.peers import connect as connect
from tests.requests import by_name

TOPIC = "kafka.server:type=BrokerTopicMetrics"
REQUEST = "kafka.network:type=RequestMetrics"
PURGATORY = "kafka.server:type=DelayedOperationPurgatory"


class Server:
    """The part of a server that metrics read: its connections, of which a broker without sockets has none."""

    accepted: Mapping[str, int] = {"PLAINTEXT": 3}

    def __init__(self) -> None:
        self.socket_bytes = SocketBytes()
        self.memory = MemoryPool(1000, lambda: 0)


class Open:
    """The part of a connection that metrics read."""

    def __init__(self) -> None:
        self.client = Client("127.0.0.1:1", "127.0.0.1", 9092, 77)
        self.transferred = Transferred()


def metrics_of(
    broker: InMemoryBroker,
    *,
    now: Callable[[], float] = time.perf_counter,
    connections: Collection[Any] | None = None,
    server: Any = None,
) -> Metrics:
    compaction = Compaction(broker.parts.config, broker.parts.replica_manager.log_manager, broker.clock)
    found: Any = [Open()] if connections is None else connections
    served: Any = server or Server()
    return Metrics(Observed(broker.parts, broker.positions, served, found, compaction, "127.0.0.1:9092"), now=now)


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


async def test_a_topic_counts_its_records_and_bytes_in_and_out(broker: InMemoryBroker, metrics: Metrics) -> None:
    await broker.produce("orders", [b"a", b"b", b"c"])
    await broker.produce("orders", [b"d"], partition=1, acks=0)
    large = build_batch([Record(0, 0, None, b"x" * 2_000_000, ())])
    await broker.write("orders", large)
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


async def test_between_two_scrapes_topics_that_clients_make_up_share_one_count(broker: InMemoryBroker) -> None:
    counting = counters.Counters(broker.parts)

    assert counting.topic("nothing-1") is counting.topic("nothing-2") is not counting.topic("orders")
    assert list(counting.topics) == ["orders"]


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


class Stopped:
    """In place of the module `time`: nanoseconds that the test moves."""

    now_ns = 1_000_000_000

    def perf_counter_ns(self) -> int:
        return self.now_ns


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> Stopped:
    clock = Stopped()
    monkeypatch.setattr(counters, "time", clock)
    return clock


async def test_the_time_until_the_socket_has_taken_a_response_is_that_of_sending(
    broker: InMemoryBroker, stopped: Stopped, connect: Connect
) -> None:
    size = 3_000_000
    await broker.create_topic("long", max_message_bytes=size)
    await fill(broker, "long", size=size - 1000)
    peer = connect(broker.way.serve, client=Client("127.0.0.1:2", "127.0.0.1", 9092, 2), probes=broker.parts.probes)
    metrics = metrics_of(broker)
    metrics.count()

    # An old client's records are converted: `sendfile` takes a socket of TCP.
    await peer.send(broker.frame(ApiKey.FETCH, 2, **fetch_body(("long", 0, 0), max_partition_bytes=size)))
    assert "ResponseSendTimeMs" not in str(metrics_with_samples(metrics))
    stopped.now_ns += 250_000_000
    assert len(await peer.receive(size - 1000)) == size - 1000
    while metrics._counters._unsent:
        await peer.receive(1)

    times = metrics_with_samples(metrics)
    assert times == {"TotalTimeMs": 250, "ResponseSendTimeMs": 250}


def metrics_with_samples(metrics: Metrics) -> dict[str, float]:
    """The stages in which a consumer's fetches have spent time."""
    found = values(metrics)
    prefix, suffix = f"{REQUEST},name=", ",request=FetchConsumer"
    names = [name for name in found if name.startswith(prefix) and name.endswith(suffix) and "TimeMs" in name]
    return {name[len(prefix) : -len(suffix)]: found[name]["Max"] for name in names if found[name]["Max"]}


async def test_of_each_api_so_many_requests_are_timed_in_a_while(broker: InMemoryBroker, stopped: Stopped) -> None:
    metrics = metrics_of(broker)
    metrics.count()
    of_api = metrics._counters.of_api  # the histogram's Count is that of all requests

    for _ in range(200):
        await broker.fetch(("orders", 0, 0))
    await broker.call(ApiKey.API_VERSIONS, 0)
    assert len(of_api[ApiKey.FETCH, False].samples) == TIMED_PER_WINDOW
    assert len(of_api[ApiKey.API_VERSIONS, False].samples) == 1
    stopped.now_ns += counters.WINDOW_NS + 1
    for _ in range(TIMED_PER_WINDOW + 1):
        await broker.fetch(("orders", 0, 0))
    assert len(of_api[ApiKey.FETCH, False].samples) == 2 * TIMED_PER_WINDOW

    found = values(metrics)
    assert found[f"{REQUEST},name=RequestsPerSec,request=Fetch,version=8"] == 201 + TIMED_PER_WINDOW


async def test_a_request_that_closes_its_connection_is_not_timed_as_the_next_one(
    broker: InMemoryBroker, stopped: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(*_: object) -> None:
        raise CloseConnectionError("a defect")

    monkeypatch.setitem(broker.parts.handlers.by_key, ApiKey.HEARTBEAT, close)
    metrics = metrics_of(broker)
    metrics.count()
    with pytest.raises(CloseConnectionError):
        await broker.call(ApiKey.HEARTBEAT, 0, group_id="g", generation_id=1, member_id="m")
    assert metrics._counters._timed == {}
    assert len(metrics._counters.of_api[ApiKey.HEARTBEAT, False].samples) == 0


@pytest.mark.time_jumps
async def test_clients_of_a_quota_have_their_rates_and_throttle_times(broker: InMemoryBroker) -> None:
    rows = [([("client-id", None)], [("producer_byte_rate", 1000.0, False), ("consumer_byte_rate", 1e9, False)])]
    await broker.call(ApiKey.ALTER_CLIENT_QUOTAS, 0, entries=rows, validate_only=False)
    metrics = metrics_of(broker)
    assert not [name for name in values(metrics) if "client-id" in name]

    batch = build_batch([Record(0, 0, None, b"x" * 30_000, ())])
    answer = await broker.call(ApiKey.PRODUCE, 7, acks=1, timeout_ms=1000, topics=[("orders", [(0, batch)])])
    await broker.fetch(("orders", 0, 0))

    found = values(metrics)
    of = ",user=,client-id=test"
    assert found[f"kafka.server:type=Produce,name=throttle-time{of}"] == answer.throttle_time_ms > 10_000
    assert found[f"kafka.server:type=Produce,name=byte-rate{of}"] == pytest.approx(3_000, rel=0.05)
    assert found[f"kafka.server:type=Fetch,name=byte-rate{of}"] == pytest.approx(3_000, rel=0.05)
    assert found[f"kafka.server:type=Fetch,name=throttle-time{of}"] == 0
    assert not [name for name in found if name.startswith("kafka.server:type=Request,")]
    await trio.sleep(61)
    later = values(metrics)
    assert later[f"kafka.server:type=Produce,name=throttle-time{of}"] == 0
    assert later[f"kafka.server:type=Produce,name=byte-rate{of}"] == 0


async def test_bytes_of_sockets_are_those_of_open_and_of_closed_connections(broker: InMemoryBroker) -> None:
    seconds, server, connections = [0.0], Server(), [Open(), Open()]
    metrics = metrics_of(broker, now=lambda: seconds[0], connections=connections, server=server)

    def looked_at(after_seconds: float, *, depleted_ms: int = 0) -> list[float]:
        server.memory.depleted_ms += depleted_ms
        seconds[0] += after_seconds
        found, prefix = values(metrics), "kafka.server:type=socket-server-metrics,name="
        names = ("incoming-byte-total", "incoming-byte-rate", "outgoing-byte-total", "outgoing-byte-rate")
        memory = [found[f"{prefix}MemoryPool{name}"] for name in ("DepletedTimeTotal", "AvgDepletedPercent")]
        return [*(found[f"{prefix}{name},listener=PLAINTEXT,networkProcessor=0"] for name in names), *memory]

    connections[0].transferred, connections[1].transferred = Transferred(100, 1000), Transferred(20, 200)
    assert looked_at(10) == [120, 12, 1200, 120, 0, 0]
    server.socket_bytes.closed["PLAINTEXT"] = Transferred(25, 200)
    del connections[1]
    connections[0].transferred = Transferred(195, 1000)
    assert looked_at(10, depleted_ms=5000) == [220, 11, 1200, 60, 5000, 0.25]
    assert looked_at(45) == [220, round(100 / 55, 3), 1200, 0, 5000, round(5 / 55, 3)]
    del connections[0]  # it has closed during this scan: neither here nor there
    assert looked_at(100) == [220, 0, 1200, 0, 5000, 0]


def test_a_socket_counts_its_bytes() -> None:
    ours, client = tcp_pair()
    with ours, client:
        ours.setblocking(True)
        client.setblocking(True)
        client.sendall(b"x" * 1000)
        ours.sendall(b"y" * 70_000)
        assert len(ours.recv(1000, socket.MSG_WAITALL)) == 1000
        assert len(client.recv(70_000, socket.MSG_WAITALL)) == 70_000
        if TCP_INFO is None:
            assert transferred(ours) == Transferred()
            return
        assert (transferred(ours), transferred(client)) == (Transferred(1000, 70_000), Transferred(70_000, 1000))
        client.shutdown(socket.SHUT_WR)
        assert ours.recv(1) == b""
        closing = SocketBytes()
        closing.note_closing("PLAINTEXT", ours)
        closing.note_closing("PLAINTEXT", client)
        assert closing.closed == {"PLAINTEXT": Transferred(71_000, 71_000)}
    assert transferred(ours) == Transferred()


async def test_a_connection_that_closes_leaves_the_bytes_of_its_socket(connect: Connect) -> None:
    peer = connect(echo, over_tcp=True)
    await peer.send(b"twelve bytes")
    await peer.receive(16)  # else the close is a reset, and the bytes of the answer are lost

    peer.sock.close()
    await peer.has_ended.wait()

    assert peer.socket_bytes.closed == {"PLAINTEXT": Transferred(16, 16)}


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
    joins = {"subscribed_topic_names": ["orders"], "rebalance_timeout_ms": 1000, "topic_partitions": []}
    member: dict[str, Any] = {"group_id": "billing", "member_id": "m", "member_epoch": 0}
    await broker.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, **member | joins)

    found = values(metrics)
    count = "minibroker:type=ConsumerGroups,name=Count,state="
    assert [found[count + state] for state in ("Stable", "Empty")] == [1, 0]
    assert (found[group + "NumGroups"], found[group + "NumGroupsStable"]) == (1, 1)
    assert found["minibroker:type=Group,name=Members,group=billing"] == 1


async def test_a_group_that_fetches_without_commits_has_its_lag(broker: InMemoryBroker, metrics: Metrics) -> None:
    now_ms = itertools.count()
    broker.clock.monotonic_ms = lambda: next(now_ms)  # type: ignore[method-assign]
    await broker.produce("orders", [b"one", b"two", b"three"])
    reports = "consumer-reports-"  # two clients of one group: the newer fetch of a partition counts
    for client_id, *where in ((reports + "1", 0, 0), (reports + "2", 0, 2), (reports + "1", 1, 0), (OF_COMMANDS, 0, 0)):
        await broker.fetch(("orders", *where), client_id=client_id, max_partition_bytes=1, version=2)
    committing = GroupClient(broker, "reports")
    await committing.find()
    assert await committing.commit(("orders", 1, 0)) == [0]

    found = {name: value for name, value in values(metrics).items() if "FetchingGroup" in name}

    rows = "minibroker:type=FetchingGroup,name={},consumergroup=reports,topic=orders,partition=0"
    assert found == {rows.format("FetchedOffset"): 2, rows.format("Lag"): 1}


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


async def test_no_probe_looks_before_the_first_scrape_and_after_the_lease(
    broker: InMemoryBroker, autojump_clock: object
) -> None:
    probes, metrics = broker.parts.probes, metrics_of(broker)
    assert not probes.is_looking

    assert metrics.metrics(lease_ms=1000)["is_counting"]
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)  # time passes
    metrics.metrics(lease_ms=1000)
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)
    assert probes.is_looking
    await broker.fetch(("orders", 0, 0), max_wait_ms=900)

    assert not probes.is_looking
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
        ({"scan": []}, r"scan \[\] is no longer kept"),
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


def test_partitions_in_topics_are_the_usual_form_of_an_answer() -> None:
    deep, flat = Column((1, 1), 2, Meaning.ERROR_CODE), Column((1,), 1, Meaning.ERROR_CODE)

    assert places_of_partitions([deep]) == (1, 1, 2)
    assert [places_of_partitions(found) for found in ([flat], [flat, deep], [])] == [None] * 3
