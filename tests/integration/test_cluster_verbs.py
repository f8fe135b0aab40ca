"""The verbs of a cluster of three brokers: each does what it names, to real processes, or says why not."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, Producer

from minibroker import Acl, BrokerError, Cluster, WaitError
from minibroker.administration import connected
from minibroker.protocol.api import API_TABLE, ApiKey

QUIET = {"log_level": 0}
SEEN_WITHIN_MS = 100  # on the turned clock
KILLS_MAX = 4  # a busy machine may take longer once
Verb = Callable[[Cluster], object]


@pytest.fixture(scope="module")
def started() -> Iterator[Cluster]:
    with Cluster(brokers=3, racks=["a", "b", "c"], settings={"auto.leader.rebalance.enable": False}) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Cluster) -> Cluster:
    """A cluster with the topic t, of one partition, that broker 1 leads."""
    started.reset()
    started.create_topic("t")
    started.move_leader("t", 0, 1)
    started.until_isr("t", 0, {1, 2, 3})
    return started


def append_to_leader(cluster: Cluster, count: int) -> None:
    """Append a batch for each record, acknowledged by the leader alone."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": 1, **QUIET})
    for _ in range(count):
        producer.produce("t", b"v", partition=0)
        assert producer.flush(10) == 0


def ends(cluster: Cluster) -> dict[int, int]:
    return {broker_id: each.log_end_offset for broker_id, each in cluster.replicas("t").items()}


def test_each_broker_tells_its_replica(cluster: Cluster) -> None:
    cluster.produce("t", ["a", "b"])
    cluster.until_high_watermark("t", 0, 2)

    replicas = cluster.replicas("t")

    assert {each: (row.role, row.leader_id) for each, row in replicas.items()} == {
        1: ("leader", 1),
        2: ("follower", 1),
        3: ("follower", 1),
    }
    assert {row[4:8] for row in replicas.values()} == {(2, 2, 0, frozenset({1, 2, 3}))}
    assert {row.leader_epoch for row in replicas.values()} == {replicas[1].leader_epoch}
    assert cluster.leader_of("t") == 1
    assert cluster.controller in cluster.broker_ids


def test_topics_and_records_go_to_the_brokers_that_have_them(cluster: Cluster) -> None:
    cluster.create_topic("spread", partitions=6, replication_factor=2)

    appended = cluster.produce("spread", [f"{each}" for each in range(12)])

    assert len({cluster.leader_of("spread", number) for number in range(6)}) == 3
    assert cluster.records("spread", 12) == sorted(appended, key=lambda each: (each.partition, each.offset))
    assert {len(cluster.replicas("spread", number)) for number in range(6)} == {2}


def test_roles_move_where_they_are_wanted(cluster: Cluster) -> None:
    cluster.move_leader("t", 0, 3)
    assert (cluster.leader_of("t"), cluster.replicas("t")[1].leader_id) == (3, 3)

    before = cluster.controller
    after = cluster.move_controller()
    assert after != before
    assert after == cluster.controller

    for broker_id in (2, 3):
        cluster.move_coordinator("g", broker_id)
        assert cluster.coordinator_of("g") == broker_id


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_goes_on_at_another_coordinator(cluster: Cluster, protocol: str) -> None:
    given = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": f"g-{protocol}", "group.protocol": protocol}
    consumer = Consumer(given | QUIET)
    consumer.subscribe(["t"])
    try:
        cluster.wait_for(lambda: consumer.poll(0.05) or consumer.assignment(), timeout=20)
        cluster.until_stable(given["group.id"], 1)
        cluster.move_coordinator(given["group.id"], 1 if cluster.coordinator_of(given["group.id"]) != 1 else 2)
        cluster.until_stable(given["group.id"], 1)
    finally:
        consumer.close()


def test_a_follower_out_of_sync_stays_out_until_it_is_released(cluster: Cluster) -> None:
    cluster.shrink_isr("t", 0, 2)
    cluster.produce("t", ["a"])  # acks=all does not wait for it
    cluster.clock.advance(1)
    cluster.until_isr("t", 0, {1, 3})
    assert cluster.replicas("t")[2].hold == "held"

    cluster.release_follower(2)
    cluster.until_isr("t", 0, {1, 2, 3})


def test_followers_are_held_and_lag(cluster: Cluster) -> None:
    cluster.wait_for(lambda: cluster.replicas("t")[1].follower_ends == {2: 0, 3: 0})  # since it leads, it heard of both
    cluster.lag(2, "t", records=3)
    cluster.hold_follower(3, "t", 0)
    append_to_leader(cluster, 5)
    cluster.wait_for(lambda: ends(cluster) == {1: 5, 2: 2, 3: 0})
    cluster.wait_for(lambda: cluster.replicas("t")[1].follower_ends == {2: 2, 3: 0})

    cluster.lag(2, "t", seconds=30)
    append_to_leader(cluster, 1)
    assert ends(cluster)[2] == 2
    while ends(cluster)[2] != 6:
        cluster.clock.advance(5)

    cluster.release_follower()
    cluster.until_isr("t", 0, {1, 2, 3})
    cluster.until_high_watermark("t", 0, 6)


@pytest.mark.parametrize(("direction", "in_sync"), [("to", {1, 2, 3}), ("from", {1, 3}), ("both", {1, 3})])
def test_brokers_that_are_isolated_do_not_reach_each_other_and_clients_do(
    cluster: Cluster, direction: str, in_sync: set[int]
) -> None:
    if cluster.controller != 3:
        cluster.wait_for(lambda: cluster.move_controller() == 3)
    cluster.isolate(1, 2, direction)  # type: ignore[arg-type]
    append_to_leader(cluster, 1)
    cluster.clock.advance(20)

    cluster.until_isr("t", 0, in_sync)
    cluster.produce("t", ["a"])
    assert cluster.broker(2).topics() == {"t": 1}
    cluster.heal()
    cluster.until_isr("t", 0, {1, 2, 3})


def test_a_broker_that_was_cut_off_and_killed_runs_again(cluster: Cluster) -> None:
    controller = cluster.controller
    other = controller % 3 + 1
    cluster.isolate(controller, other)
    cluster.kill(other)

    cluster.restore()

    cluster.create_topic("restored")
    cluster.until_isr("restored", 0, {1, 2, 3})


def test_an_unclean_leader_loses_the_records_that_it_lacks(cluster: Cluster) -> None:
    cluster.produce("t", ["kept"])
    cluster.shrink_isr("t", 0, 2)
    cluster.shrink_isr("t", 0, 3)
    cluster.produce("t", ["lost"])
    cluster.kill(1)
    with pytest.raises(WaitError, match="not yet: a broker leads t-0; broker 2 "):
        cluster.until_leader("t", timeout=0.3)

    assert cluster.unclean_election("t", 0) in (2, 3)

    cluster.start(1)
    cluster.release_follower()
    cluster.until_isr("t", 0, {1, 2, 3})
    assert [record.value for record in cluster.records("t")] == [b"kept"]


def test_a_killed_leader_is_replaced_before_clients_notice(cluster: Cluster) -> None:
    took_ms = []
    for _ in range(KILLS_MAX):
        killed = cluster.leader_of("t")
        cluster.kill(killed)  # the kernel may take long to end a process
        before = cluster.clock.now()
        other = next(each for each in cluster.broker_ids if each != killed)
        while leader_shown_by(cluster, other) in (killed, -1):
            pass
        took_ms.append((cluster.clock.now() - before).total_seconds() * 1000)
        cluster.start(killed)
        cluster.until_isr("t", 0, {1, 2, 3})
        if took_ms[-1] < SEEN_WITHIN_MS:
            return
    pytest.fail(f"{took_ms} ms")


def leader_shown_by(cluster: Cluster, broker_id: int) -> int:
    rows = API_TABLE[ApiKey.METADATA].request.row("topics")
    with connected(cluster.broker(broker_id).bootstrap_servers) as connection:
        (topic,) = connection.ask(ApiKey.METADATA, topics=[rows(name="t")]).topics
    leader: int = topic.partitions[0].leader_id
    return leader


def test_time_passes_for_all_and_only_a_paused_broker_expires(cluster: Cluster) -> None:
    before = cluster.clock.now()
    cluster.pause(1)
    began = time.monotonic()
    cluster.clock.advance(7)
    leader = cluster.until_leader("t", not_=1)
    cluster.resume(1)
    cluster.until_isr("t", 0, {1, 2, 3})
    cluster.clock.advance(250)
    cluster.until_isr("t", 0, {1, 2, 3})

    assert cluster.leader_of("t") == leader  # none of those that run has expired
    assert (cluster.clock.now() - before).total_seconds() == pytest.approx(257, abs=time.monotonic() - began + 1)
    assert all(abs((each.clock.now() - cluster.clock.now()).total_seconds()) < 1 for each in cluster.brokers)


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda cluster: cluster.leader_of("none"), "the cluster has no partition none-0; create the topic first"),
        (lambda cluster: cluster.move_leader("t", 0, 9), "broker 9 has no replica of t-0; its replicas: "),
        (lambda cluster: cluster.hold_follower(9), "broker 9 cannot be asked: it does not run, or is paused"),
        (lambda cluster: cluster.hold_follower(1, partition=0), "a partition is one of a topic; name the topic"),
        (lambda cluster: cluster.lag(2, records=0), "records is a whole number above 0, not 0"),
        (lambda cluster: cluster.lag(2, seconds=0), "seconds is a number above 0 and at most 86400, not 0"),
        (lambda cluster: cluster.isolate(1, 1), "broker 1 always reaches itself; name two brokers"),
        (lambda cluster: cluster.shrink_isr("t", 0, 1), "broker 1 does not follow t-0; followers: 2, 3"),
        (lambda cluster: cluster.unclean_election("t", 0), "broker 1 leads t-0; kill it first, or name the broker"),
        (lambda cluster: cluster.clock.advance(-1), "a clock advances forward only"),
        (
            lambda cluster: cluster.until_isr("t", 0, {2}, timeout=0),
            r"ISR of t-0 is \{2\}; it is \{1, 2, 3\}\nbroker 1",
        ),
        (lambda cluster: cluster.until_high_watermark("t", 0, 5, timeout=0), "is 5 on all live replicas; broker 1: "),
        (lambda cluster: cluster.until_stable("no", 1, timeout=0), "group no is stable with 1 members; it is unknown"),
    ],
)
def test_an_impossible_verb_is_an_error_with_the_present_state(cluster: Cluster, verb: Verb, message: str) -> None:
    with pytest.raises((BrokerError, WaitError), match=message):
        verb(cluster)
    cluster.release_follower()


def test_an_hour_that_passes_at_once_leaves_live_followers_in_sync_and_no_held_one(cluster: Cluster) -> None:
    def isr_changes() -> int:
        return sum(each.log_file.read_text().count(": ISR [") for each in cluster.brokers)

    cluster.produce("t", ["a"])
    cluster.until_high_watermark("t", 0, 1)
    before = isr_changes()
    cluster.clock.advance(3600)
    cluster.produce("t", ["b"])
    cluster.until_high_watermark("t", 0, 2)
    assert isr_changes() == before

    cluster.hold_follower(2, "t", 0)
    cluster.clock.advance(3600)
    cluster.until_isr("t", 0, {1, 3})


@pytest.mark.parametrize("end", ["isolate", pytest.param("kill", marks=pytest.mark.nightly)])
def test_a_replica_that_moved_away_goes_though_the_controller_does_not_reach_its_broker(
    cluster: Cluster, end: str
) -> None:
    controller = cluster.controller
    away, other = (each for each in cluster.broker_ids if each != controller)
    cluster.move_leader("t", 0, controller)
    if end == "kill":
        cluster.kill(away)
    else:
        cluster.isolate(controller, away, "to")
    moved = [("t", [(0, [controller, other])])]
    with cluster.broker(controller)._administered() as connection:
        connection.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=0, topics=moved)
        cluster.wait_for(lambda: connection.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=None).topics == [])
    cluster.kill(controller)
    cluster.restore()

    cluster.until_isr("t", 0, {controller, other})
    cluster.wait_for(lambda: not (cluster.broker(away).data_dir / "t-0").exists())
    assert away not in cluster.replicas("t")


@pytest.mark.nightly
def test_a_secured_cluster_has_its_users_at_each_broker() -> None:
    with Cluster(security="SASL_SSL", users=["alice"], acls=[Acl("alice", "all", topic="orders")]) as cluster:
        cluster.create_topic("orders")
        alice = Producer({**cluster.client_settings("confluent-kafka", user="alice"), "acks": "all", **QUIET})
        for value in ("one", "two"):
            alice.produce("orders", value)
            assert alice.flush(20) == 0
            if value == "one":
                cluster.kill(cluster.leader_of("orders"))

        assert [each.value for each in cluster.records("orders", n=2)] == [b"one", b"two"]


def test_a_fault_of_the_cluster_strikes_in_the_broker_that_has_the_request(cluster: Cluster) -> None:
    fault = cluster.faults.error("NOT_LEADER_FOR_PARTITION", api="produce", times=2)

    append_to_leader(cluster, 1)

    assert fault.count == 2
    assert sorted(str(fault).splitlines())[0].startswith("broker 1: NOT_LEADER_FOR_PARTITION")
    assert len(cluster.faults.active()) == 2  # in the other brokers
    cluster.faults.lift_all()
    assert cluster.faults.active() == []


def test_an_action_kills_the_broker_that_has_the_request(cluster: Cluster) -> None:
    cluster.faults.call(cluster.kill, api="produce")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, **QUIET})
    producer.produce("t", b"v", partition=0)

    assert producer.flush(60) == 0

    assert not cluster.broker(1).is_running
    assert [record.value for record in cluster.records("t")] == [b"v"]
