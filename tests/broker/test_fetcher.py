"""Brokers that follow each other over sockets: logs equal to the byte after all that happens. Time is jumped."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
import trio
import trio.testing

from minibroker.broker.cluster.metadata_cache import MetadataCache
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Broker, UpdateMetadata
from minibroker.broker.replica.replication_quota import ReplicationQuota, window_of
from minibroker.broker.wings.several.fetcher_manager import number_of
from minibroker.broker.wings.several.following import State
from minibroker.broker.wings.several.holds import Hold, Place
from minibroker.broker.wings.several.peers import Peers
from minibroker.protocol.api_table import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.log.log import Log
from tests.broker.asking import BROKER, seconds
from tests.broker.conftest import NOW_MS, MakeBroker
from tests.broker.following_brokers import Cluster, Side, files_of, make_cluster, until
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
BACKOFF_SECONDS = 1.0
LEADERS, FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
ClusterOf = Callable[..., Cluster]


@pytest.fixture
def cluster_of(make_broker: MakeBroker, nursery: trio.Nursery) -> Iterator[ClusterOf]:
    """Make clusters of two brokers, or more, with settings given as keywords."""
    clusters: list[Cluster] = []

    def make(count: int = 2, **settings: object) -> Cluster:
        clusters.append(make_cluster(make_broker, nursery, count, **settings))
        return clusters[-1]

    yield make
    for cluster in clusters:
        for side in cluster.sides:
            side.close()


@pytest.fixture
def cluster(cluster_of: ClusterOf) -> Cluster:
    return cluster_of()


async def produce(side: Side, *values: bytes, to: TopicPartition = T0, **options: Any) -> None:
    """Write a batch for each value."""
    for value in values:
        answer = await side.broker.produce(to.topic, [value], partition=to.partition, **options)
        assert answer.error_code == ErrorCode.NONE


async def test_a_follower_has_the_leaders_bytes_epochs_and_high_watermark(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(log_segment_bytes=1000)
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, *(b"%d" % number * 20 for number in range(40)))
    cluster.lead(0, T0)
    await produce(first, b"of the next epoch")
    await cluster.until_equal(T0)

    assert files_of(first.log(T0)) == files_of(second.log(T0))
    assert len(second.log(T0).segments) > 1
    assert first.log(T0).leader_epochs.entries == second.log(T0).leader_epochs.entries
    await until(lambda: second.log(T0).high_watermark == first.log(T0).high_watermark == 41)
    assert second.connected == [(0, "broker-1-fetcher-0")]


async def test_an_append_wakes_the_fetch_of_a_follower_and_acks_all_waits_for_it(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a", acks=-1)
    second.fetches()

    elapsed, _ = await seconds(produce(first, b"b", acks=-1))

    assert elapsed < 0.1
    assert second.log(T0).log_end_offset == 2
    assert [fetch.topics for fetch in second.fetches()] == [
        [("t", [(0, -1, 2, -1, 0, 1 << 20)])],
    ]


async def test_a_consumer_that_waits_at_a_follower_gets_records_as_they_are_committed_there(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a")
    await until(lambda: second.log(T0).high_watermark == 1)
    waiting = await second.broker.park(second.broker.fetch, ("t", 0, 1), version=11, max_wait_ms=60_000)

    await produce(first, b"b")
    elapsed, _ = await seconds(until(lambda: not waiting.waits))

    (row,) = waiting.answer.topics[0].partitions
    assert (row.error_code, row.high_watermark, bytes(row.records)[-3:]) == (ErrorCode.NONE, 2, b"\x02b\x00")
    assert elapsed < 1


async def test_a_partition_that_is_added_does_not_wait_for_the_fetch_of_the_others(cluster: Cluster) -> None:
    first = cluster.sides[0]
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    cluster.tell_metadata(T0, T1)
    cluster.lead(0, T1, to=[0])
    await produce(first, b"a", to=T1)

    cluster.lead(0, T1, to=[1], step=0)
    started = trio.current_time()
    await cluster.until_equal(T1)

    assert trio.current_time() - started < 0.1


@pytest.mark.parametrize("keeps", [3, 0])
async def test_records_that_the_new_leader_lacks_are_cut_off(cluster: Cluster, keeps: int) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, *[b"both"] * keeps)
    await cluster.until_equal(T0)
    cluster.lead(1, T0, to=[0])  # a leader whose records nobody has copied: the other does not know yet
    cluster.lead(0, T0, to=[0])
    await produce(first, b"lost", b"lost too")
    cluster.lead(1, T0, to=[1])
    await produce(second, b"kept")
    cluster.lead(1, T0)
    await cluster.until_equal(T0)

    assert files_of(first.log(T0)) == files_of(second.log(T0))
    assert first.log(T0).log_end_offset == keeps + 1


async def test_a_log_that_ends_before_the_leaders_start_begins_anew_there(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a", b"b", b"c")
    await cluster.until_equal(T0)
    cluster.lead(0, T0, to=[0])
    cluster.lead(5, T0, to=[1])  # a leader without an address
    await produce(first, b"d", b"e", b"f")
    first.log(T0).update_high_watermark(6)
    first.log(T0).delete_records(5)
    cluster.lead(0, T0)
    await cluster.until_equal(T0)

    log = second.log(T0)
    assert (log.log_start_offset, log.log_end_offset) == (5, 6)


async def test_a_log_that_is_longer_than_the_leaders_ends_there(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a", b"b", b"c")
    await cluster.until_equal(T0)
    first.log(T0).truncate_to(1, now_ms=NOW_MS)
    await until(lambda: second.log(T0).log_end_offset == 1)

    await produce(first, b"B")
    await cluster.until_equal(T0)
    assert files_of(first.log(T0)) == files_of(second.log(T0))


async def test_records_that_are_deleted_at_the_leader_are_deleted_at_the_follower(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a", b"b", b"c", acks=-1)
    await until(lambda: second.log(T0).high_watermark == 3)

    answer = await first.broker.call(ApiKey.DELETE_RECORDS, 0, topics=[("t", [(0, 2)])], timeout_ms=5000)

    assert answer.topics[0].partitions[0].low_watermark == 2
    assert second.log(T0).log_start_offset == 2


async def test_the_error_of_one_partition_delays_no_other(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0, T1)
    cluster.lead(1, U0, to=[0])
    cluster.lead(0, U0, to=[1])  # of which the leader knows nothing
    await produce(first, b"a", acks=-1)
    for value in (b"b", b"c"):
        elapsed, _ = await seconds(produce(first, value, acks=-1, to=T1))
        assert elapsed < 0.1
    second.asked.clear()
    await trio.sleep(3.5)

    ends = [request for api_key, request in second.asked if api_key is ApiKey.OFFSET_FOR_LEADER_EPOCH]
    assert [[topic for topic, _ in request.topics] for request in ends] == [["u"]] * 3


async def test_a_broker_that_comes_back_elsewhere_is_followed_there(
    cluster: Cluster, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    first.move()
    await produce(first, b"b")
    await trio.sleep(2)
    assert second.log(T0).log_end_offset == 1

    nursery.start_soon(first.serve)
    cluster.tell_metadata(T0)
    await cluster.until_equal(T0)

    assert "cannot fetch from broker 0" in caplog.text


async def test_a_leader_without_sessions_gets_every_partition_each_time(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(max_incremental_fetch_session_cache_slots=0)
    first, second = cluster.sides
    cluster.lead(0, T0, T1)
    await produce(first, b"a", acks=-1)
    await produce(first, b"b", acks=-1, to=T1)
    await trio.sleep(2)

    fetches = second.fetches()
    assert {(fetch.session_id, fetch.session_epoch) for fetch in fetches} == {(0, 0)}
    assert {sum(len(rows) for _, rows in fetch.topics) for fetch in fetches[1:]} == {2}
    assert len(fetches) < 20


async def test_a_session_names_only_changes_and_is_begun_anew_when_the_leader_has_lost_it(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0, T1, U0)
    await trio.sleep(1.2)
    cluster.stop_replica(1, T1)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    sent = [(fetch.session_epoch, fetch.topics, fetch.forgotten_topics) for fetch in second.fetches()]
    sessions = first.broker.parts.fetch_sessions
    (lost,) = sessions.sessions
    sessions.remove(lost)
    await produce(first, b"b")
    await cluster.until_equal(T0)
    after = [(fetch.session_id == 0, fetch.session_epoch, len(fetch.topics)) for fetch in second.fetches()]

    row = (-1, 0, -1, 0, 1 << 20)
    assert sent[0] == (0, [("t", [(0, *row), (1, *row)]), ("u", [(0, *row)])], [])
    assert [(epoch, topics) for epoch, topics, _ in sent[1:3]] == [(1, []), (2, [])]
    assert [forgotten for _, _, forgotten in sent if forgotten] == [[("t", [1])]]
    assert sent[-1][1] == [("t", [(0, -1, 1, -1, 0, 1 << 20)])]
    assert (True, 0, 2) in after


async def test_partitions_that_come_one_by_one_leave_no_session_behind(cluster: Cluster) -> None:
    first, second = cluster.sides
    places = [TopicPartition("t", number) for number in range(20)]
    for each in places:
        cluster.lead(0, each)
        await trio.sleep(0.05)
    cluster.tell_metadata(*places)
    await trio.sleep(2)

    (session,) = first.broker.parts.fetch_sessions.sessions.values()
    assert len(session.partitions) == len(places)
    assert max(fetch.max_wait_ms for fetch in second.fetches()) == 500


async def test_a_follower_that_gives_answers_up_leaves_no_session_behind(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(replica_socket_timeout_ms=500)
    first, second = cluster.sides
    cluster.lead(0, T0)
    await trio.sleep(10)

    begun = sum(fetch.session_epoch == 0 for fetch in second.fetches())
    assert (begun > 5, len(first.broker.parts.fetch_sessions.sessions)) == (True, 1)


async def test_a_batch_that_is_damaged_on_the_way_is_asked_for_again(cluster: Cluster) -> None:
    first, second = cluster.sides

    def damage(api_key: int, answer: Any) -> Any:
        for topic in answer.topics:
            for row in topic.partitions:
                if api_key == ApiKey.FETCH and row.records:
                    row.records[-1] ^= 1
                    second.edit = lambda api_key, answer: answer
        return answer

    second.edit = damage
    cluster.lead(0, T0)
    await produce(first, b"a")
    started = trio.current_time()
    await cluster.until_equal(T0)

    assert BACKOFF_SECONDS <= trio.current_time() - started < BACKOFF_SECONDS + 0.1
    assert files_of(first.log(T0)) == files_of(second.log(T0))


async def test_a_partition_whose_log_fails_unexpectedly_is_fetched_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = cluster.sides[0]
    cluster.lead(0, T0, T1)
    await trio.sleep(0.1)
    with monkeypatch.context() as broken:
        broken.setattr(Log, "append_as_follower", Mock(side_effect=ValueError("of a defect")))
        await produce(first, b"a")
        await trio.sleep(0.1)
    await produce(first, b"a", to=T1)
    await cluster.until_equal(T0, T1)

    assert "cannot follow broker 0 in t-0: a defect" in caplog.text


async def test_an_error_of_a_later_release_is_an_error(cluster: Cluster) -> None:
    first, second = cluster.sides

    def of_later_release(api_key: int, answer: Any) -> Any:
        second.edit = lambda api_key, answer: answer
        (topic,) = answer.topics
        return answer._replace(topics=[topic._replace(partitions=[topic.partitions[0]._replace(error_code=999)])])

    second.edit = of_later_release
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)


async def test_a_row_that_an_answer_lacks_is_asked_for_again(cluster: Cluster) -> None:
    first, second = cluster.sides
    lacking = {ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FETCH}

    def leave_out(api_key: int, answer: Any) -> Any:
        if api_key not in lacking:
            return answer
        lacking.remove(ApiKey(api_key))
        return answer._replace(topics=[])

    second.edit = leave_out
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    assert not lacking


async def test_a_failed_disk_ends_the_fetching_and_the_broker_is_offline(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    monkeypatch.setattr(Log, "append_as_follower", failing(errno.EIO))
    await produce(first, b"b")
    await trio.sleep(1)

    assert second.broker.parts.replica_manager.log_manager.is_offline
    second.asked.clear()
    await trio.sleep(5)
    assert not second.asked


async def test_a_full_disk_is_tried_again_from_where_the_logs_may_differ(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a")
    await cluster.until_equal(T0)
    with monkeypatch.context() as full:
        full.setattr(Log, "append_as_follower", failing(errno.ENOSPC))
        await produce(first, b"b")
        await trio.sleep(0.5)
        assert second.following(T0).state is State.TRUNCATING
    await cluster.until_equal(T0)


async def test_records_are_fsynced_before_the_leader_counts_them(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(log_flush_interval_messages=1)
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, b"a")
    await until(lambda: first.log(T0).high_watermark == 1)

    assert second.log(T0).recovery_point == 1


async def test_the_settings_of_fetches_are_obeyed(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(
        replica_fetch_wait_max_ms=200,
        replica_fetch_min_bytes=2000,
        replica_fetch_max_bytes=300,
        replica_fetch_response_max_bytes=400,
    )
    first, second = cluster.sides
    cluster.lead(0, T0)
    await produce(first, *[b"v" * 100] * 10)
    await cluster.until_equal(T0)

    begins, fetch, *_ = second.fetches()
    assert (begins.max_wait_ms, fetch.max_wait_ms, fetch.min_bytes, fetch.max_bytes) == (0, 200, 2000, 400)
    assert begins.topics[0][1][0][-1] == 300


async def test_a_partition_asks_again_after_the_back_off(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(replica_fetch_backoff_ms=70)
    cluster.lead(1, T0, to=[0])
    cluster.lead(0, T0, to=[1], step=0)
    await trio.sleep(0.75)

    assert [api_key for api_key, _ in cluster.sides[1].asked] == [ApiKey.OFFSET_FOR_LEADER_EPOCH] * 11


async def test_a_silent_leader_is_given_up_after_the_timeout(
    cluster_of: ClusterOf, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = cluster_of(replica_socket_timeout_ms=600)
    await trio.testing.wait_all_tasks_blocked()
    cluster.sides[0].move()
    cluster.lead(0, T0)
    await trio.sleep(0.7)

    assert "did not answer within 600 ms" in caplog.text


@pytest.mark.parametrize(
    ("between", "port"),
    [({"inter.broker.listener.name": "b"}, 2), ({"security.inter.broker.protocol": "plaintext"}, 3)],
)
def test_brokers_reach_each_other_by_their_own_listener(between: dict[str, str], port: int) -> None:
    listeners = "A://:1,B://:2,PLAINTEXT://:3"
    protocols = "A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT"
    config = KafkaConfig({"listeners": listeners, "listener.security.protocol.map": protocols, **between})
    cache = MetadataCache("cluster")
    endpoints = {"A": ("localhost", 1), "B": ("localhost", 2), "PLAINTEXT": ("localhost", 3)}
    cache.update(UpdateMetadata(0, 1, {7: Broker(endpoints)}, {}))

    peers = Peers(config, cache)
    assert peers.to(7, "client").address[1] == port
    with pytest.raises(ConnectionError, match="broker 8 advertises no listener"):
        peers.to(8, "client")


@pytest.mark.parametrize(
    ("setting", "replicas", "in_sync", "is_slow"),
    [
        (LEADERS, "0:0", (0,), True),
        (LEADERS, "*", (0,), True),
        (LEADERS, "0:1,1:0", (0,), False),
        (LEADERS, "*", (0, 1), False),
        (FOLLOWERS, "0:1", (0,), True),
        (FOLLOWERS, "0:0", (0,), False),
        (FOLLOWERS, "*", (0, 1), False),
    ],
)
async def test_throttled_replicas_that_are_not_in_sync_are_copied_at_the_rate_of_the_throttle(
    cluster_of: ClusterOf, setting: str, replicas: str, in_sync: tuple[int, ...], is_slow: bool
) -> None:
    cluster = cluster_of(replica_fetch_max_bytes=10_000, replication_quota_window_num=4)
    first, second = cluster.sides
    cluster.lead(0, T0, to=[0], in_sync=in_sync)
    await produce(first, *[b"v" * 10_000] * 30)
    side = first if setting == LEADERS else second
    side.broker.parts.own.set_topic_configs("t", {setting: replicas})
    rate = (setting.replace("replicas", "rate"), "30000")
    answer = await side.broker.call(ApiKey.ALTER_CONFIGS, 0, resources=[(BROKER, str(side.id), [rate])])
    assert answer.responses[0].error_code == ErrorCode.NONE, answer
    cluster.lead(0, T0, to=[1], in_sync=in_sync, step=0)

    elapsed, _ = await seconds(cluster.until_equal(T0))

    # 300 KB, of which one second's are copied before the rate is too high, and a fetch more each time.
    assert (6 < elapsed < 15) if is_slow else elapsed < 0.1
    assert files_of(first.log(T0)) == files_of(second.log(T0))


@pytest.mark.parametrize(
    ("settings", "held_back_ms"),
    [({}, 9999), ({"replication_quota_window_num": 3}, 2999), ({"replication_quota_window_size_seconds": 3}, 29_999)],
)
async def test_the_window_of_the_throttles_is_that_of_the_settings(
    make_broker: MakeBroker, settings: dict[str, object], held_back_ms: int
) -> None:
    quota = ReplicationQuota(window_of(make_broker(**settings).parts.config))
    quota.set_limit({"rate": "10"}, "rate")
    quota.record(301, 0)

    assert quota.is_exceeded(held_back_ms)
    assert not quota.is_exceeded(held_back_ms + 1 + 3000)


async def test_partitions_are_spread_over_fetchers_also_when_their_number_changes(cluster_of: ClusterOf) -> None:
    cluster = cluster_of(num_replica_fetchers=2)
    first, second = cluster.sides
    cluster.lead(0, T0, T1)
    await trio.sleep(0.1)
    spread = set(second.connected)
    second.connected.clear()
    config = second.broker.parts.config
    config.take_over(type(config)({**config.static, "num.replica.fetchers": "1"}))
    second.fetchers.spread()
    await produce(first, b"a", to=T0)
    await produce(first, b"a", to=T1)
    await cluster.until_equal(T0, T1)

    assert spread == {(0, "broker-1-fetcher-0"), (0, "broker-1-fetcher-1")}
    assert {client_id for _, client_id in second.connected} <= {"broker-1-fetcher-0"}
    assert len(second.fetchers._fetchers) == 1


async def test_a_partition_that_is_led_or_gone_is_not_fetched(cluster: Cluster) -> None:
    second = cluster.sides[1]
    cluster.lead(0, T0, T1)
    await trio.sleep(0.1)
    cluster.lead(1, T0)
    cluster.stop_replica(1, T1)
    await trio.sleep(0.1)
    second.asked.clear()
    await trio.sleep(3)

    assert not second.asked
    assert not second.fetchers._fetchers


@pytest.mark.parametrize(
    ("topic", "partition", "number"),
    [("alpha", 0, 3), ("alpha", 1, 2), ("beta", 5, 2), ("polygenelubricants", 7, 1), ("polygenelubricants", 0, 0)],
)
def test_a_partition_has_the_fetcher_that_kafka_gives_it(topic: str, partition: int, number: int) -> None:
    assert number_of(TopicPartition(topic, partition), 5) == number


# -- followers that a test holds back


async def test_a_follower_that_is_held_takes_nothing_until_it_is_released(cluster: Cluster) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0, U0)
    await produce(first, b"a")
    await produce(first, b"a", to=U0)
    await cluster.until_equal(T0, U0)

    second.fetchers.hold(Hold(Place("t", 0)))  # while a fetch waits at the leader
    await produce(first, b"b")
    await produce(first, b"b", to=U0)
    await cluster.until_equal(U0)
    await trio.sleep(5)
    held = second.log(T0).log_end_offset
    second.fetchers.release(Place("t"))

    assert held == 1
    await cluster.until_equal(T0)


@pytest.mark.parametrize(
    ("hold", "ends"),
    [
        pytest.param(Hold(Place(), records=3), {0.0: 0, 0.5: 7, 20.0: 7}, id="3 records"),
        pytest.param(Hold(Place(), seconds=2), {0.0: 0, 1.9: 0, 2.2: 10}, id="2 seconds"),
    ],
)
async def test_a_follower_lags_by_records_or_by_time(cluster: Cluster, hold: Hold, ends: dict[float, int]) -> None:
    first, second = cluster.sides
    cluster.lead(0, T0, U0)  # no fetch of another partition makes it wait
    await trio.sleep(0.1)

    second.fetchers.hold(hold)
    await produce(first, *(b"%d" % each for each in range(10)))
    began = trio.current_time()
    seen = {}
    for after in ends:
        await trio.sleep_until(began + after)
        seen[after] = second.log(T0).log_end_offset

    assert seen == ends
    second.fetchers.release(Place())
    await cluster.until_equal(T0)
    assert files_of(first.log(T0)) == files_of(second.log(T0))
