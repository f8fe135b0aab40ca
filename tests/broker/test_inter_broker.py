"""A controller's requests to this broker: what Apache Kafka 2.0.1 answered to them, and what they change."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.cluster.state import NO_CONTROLLER, BrokerGone, ControllerChanged, TopicState
from minibroker.protocol.api import ApiKey, Request, decode_request, decode_response
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.scripted_follower import assign
from tests.protocol.recordings import BETWEEN_BROKERS, Recording, recordings_of
from tests.requests import by_name

# -- recorded -------------------------------------------------------------------------------------------------------

REPLAYED = {"LeaderAndIsr", "StopReplica", "UpdateMetadata", "OffsetForLeaderEpoch"}
TEST_BROKER = 3  # it was a controller for a while
STARTS = {
    ("broker 1 starts (empty ZooKeeper)", 1),
    ("broker 2 joins", 2),
    ("broker 2 restarts", 2),
    ("broker 2 restarts after the kill", 2),
    ("delete topic with one replica away", 2),
    ("old controller 1 restarts as a plain broker", 1),
    ("both killed: controller fail-over with offline partitions", 1),
    ("both killed: controller fail-over with offline partitions", 2),
    ("1 returns: truncates by the test broker 3's epoch answer", 1),
    ("controller 3: 2 returns", 2),
    ("controller 3: 1 returns after a clean stop", 1),
    ("broker 2 killed and started again within its session timeout", 2),
    ("follower 2 of leader 3 stops cleanly", 2),
}
# A follower asked while the broker had not yet dealt with the request of its controller that was sent before.
OVERTAKING = {873.9796}


def replayed(broker_id: int) -> Iterator[tuple[Recording, Request, bool]]:
    """The requests to a broker, and whether each is its first since it has started."""
    to_come = {event for event, started in STARTS if started == broker_id}
    for recording in recordings_of(BETWEEN_BROKERS):
        if recording["to"] != broker_id or recording["api"] not in REPLAYED or recording["real"] == "request":
            continue
        request = decode_request(bytearray.fromhex(recording["request"]))
        is_first = request.correlation_id == 0 or recording["from"] == TEST_BROKER
        is_start = recording["api"] == "UpdateMetadata" and is_first and recording["event"] in to_come
        to_come -= {recording["event"]} if is_start else set()
        yield recording, request, is_start
    assert not to_come


def comparable(request: Request, body: Any) -> Any:
    """An answer without the order of a hash map; without the ends of epochs, as there are no records."""
    if request.api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
        asked = {(topic, row.partition): row.leader_epoch for topic, rows in request.body.topics for row in rows}
        return {
            (topic, row.partition): row if row.error_code or asked[topic, row.partition] < 0 else row.error_code
            for topic, rows in body.topics
            for row in rows
        }
    return (body.error_code, sorted(getattr(body, "partition_errors", ())))


@pytest.mark.parametrize("broker_id", [1, 2])
async def test_a_controller_is_answered_as_by_apache_kafka(
    make_broker: MakeBroker, in_cluster: None, broker_id: int
) -> None:
    """Twenty minutes of a cluster: topics are made, moved and deleted, brokers stop, are killed and come back."""
    count = 0
    for recording, request, is_start in replayed(broker_id):
        if is_start:
            broker = make_broker(broker_id=broker_id)
        answer = await broker.answer(bytes.fromhex(recording["request"]))
        assert answer is not None
        theirs, ours = (
            comparable(request, decode_response(request.api_key, request.api_version, each)[1])
            for each in (bytes.fromhex(recording["response"]), answer)
        )
        assert ours == theirs or recording["t"] in OVERTAKING, (recording["event"], recording["t"])
        count += 1
    assert count > 300


# -- what they change -----------------------------------------------------------------------------------------------

NONE, STALE, UNKNOWN = ErrorCode.NONE, ErrorCode.STALE_CONTROLLER_EPOCH, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
ME = 0
BROKERS = [(ME, "", 0, [(9092, "here", "PLAINTEXT", 0)], None), (7, "", 0, [(9093, "there", "PLAINTEXT", 0)], "r")]


def state(topic: str, partition: int, leader: int, *more: Any, epoch: int = 4) -> tuple[Any, ...]:
    return (topic, partition, 5, leader, epoch, [ME, 7], 9, [ME, 7], *more)


async def lead(broker: InMemoryBroker, *states: tuple[Any, ...], epoch: int = 5) -> list[ErrorCode]:
    """The error of the whole, and of each partition."""
    body: dict[str, Any] = {"controller_id": 7, "controller_epoch": epoch, "partition_states": states}
    answer = await broker.call(ApiKey.LEADER_AND_ISR, 1, **body)
    return [answer.error_code, *(row.error_code for row in answer.partition_errors)]


async def stop(broker: InMemoryBroker, *partitions: tuple[str, int], epoch: int = 5) -> list[ErrorCode]:
    body: dict[str, Any] = {
        "controller_id": 7,
        "controller_epoch": epoch,
        "delete_partitions": True,
        "partitions": partitions,
    }
    answer = await broker.call(ApiKey.STOP_REPLICA, 0, **body)
    return [answer.error_code, *(row.error_code for row in answer.partition_errors)]


async def show(
    broker: InMemoryBroker, *states: tuple[Any, ...], epoch: int = 5, version: int = 4, brokers: Any = BROKERS
) -> ErrorCode:
    body: dict[str, Any] = {
        "controller_id": 7,
        "controller_epoch": epoch,
        "partition_states": states,
        "live_brokers": brokers,
    }
    answer = await broker.call(ApiKey.UPDATE_METADATA, version, **body)
    return ErrorCode(answer.error_code)


@pytest.fixture
async def obedient(make_broker: MakeBroker, in_cluster: None) -> InMemoryBroker:
    return make_broker()


async def metadata(broker: InMemoryBroker, *names: str) -> Any:
    return await broker.call(ApiKey.METADATA, 12, topics=by_name(*names), allow_auto_topic_creation=False)


async def test_a_broker_without_a_cluster_closes_as_at_an_unknown_api(broker: InMemoryBroker) -> None:
    with pytest.raises(KafkaProtocolError, match="LeaderAndIsr is not served"):
        await lead(broker)


async def test_a_controller_needs_the_right_to_act_on_the_cluster(make_broker: MakeBroker, in_cluster: None) -> None:
    broker = make_broker(authorizer_class_name="kafka.security.auth.SimpleAclAuthorizer")
    denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    assert await lead(broker, state("t", 0, ME, True)) == await stop(broker, ("t", 0)) == [denied, denied]
    assert await show(broker) == denied
    answer = await broker.call(ApiKey.CONTROLLED_SHUTDOWN, 1, broker_id=ME)
    assert (answer.error_code, answer.remaining_partitions) == (denied, [])


# Requests of 83 to 87, by their fields for one partition.
STATES_OF_SHARE_GROUPS: dict[ApiKey, tuple[int, tuple[object, ...]]] = {
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: (0, (0, 0, 0)),
    ApiKey.READ_SHARE_GROUP_STATE: (0, (0, 0)),
    ApiKey.WRITE_SHARE_GROUP_STATE: (1, (0, 0, 0, 0, 0, [])),
    ApiKey.DELETE_SHARE_GROUP_STATE: (0, (0,)),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: (1, (0, 0)),
}


@pytest.mark.parametrize("key", STATES_OF_SHARE_GROUPS)
async def test_the_states_of_share_groups_need_the_right_to_act_on_the_cluster(
    make_broker: MakeBroker, in_cluster: None, key: ApiKey
) -> None:
    """Each partition has the error, as Apache Kafka 4.4.0 answered when asked; with the right it is another one."""
    version, row = STATES_OF_SHARE_GROUPS[key]
    asked: dict[str, Any] = {"group_id": "g", "topics": [(uuid.UUID(int=77).bytes, [row])]}

    async def error_of(broker: InMemoryBroker) -> ErrorCode:
        answer = await broker.call(key, version, **asked)
        ((_, (partition,)),) = answer.results
        assert partition.partition == 0
        return ErrorCode(partition.error_code)

    strange = make_broker(authorizer_class_name="org.apache.kafka.metadata.authorizer.StandardAuthorizer")
    assert await error_of(strange) is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert await error_of(make_broker()) is ErrorCode.NOT_COORDINATOR


async def test_one_epoch_of_controllers_holds_for_all_their_requests(obedient: InMemoryBroker) -> None:
    assert await show(obedient, epoch=6) == NONE
    assert await lead(obedient, state("t", 0, ME, False)) == [STALE, STALE]
    assert await stop(obedient, ("t", 0)) == [STALE]
    assert await stop(obedient, epoch=8) == [NONE]
    assert await show(obedient, epoch=7) == STALE
    assert await lead(obedient, state("t", 0, ME, True), epoch=8) == [NONE, NONE]


async def test_roles_are_taken_and_given_up(obedient: InMemoryBroker) -> None:
    states = state("t", 0, ME, True), state("t", 1, 7, True), (*state("t", 2, 7)[:7], [7], True)
    assert await lead(obedient, *states) == [NONE, NONE, NONE, UNKNOWN]
    leading = obedient.parts.replica_manager.partitions.led(TopicPartition("t", 0))
    assert leading.leadership == (4, (ME, 7), 9, ())
    assert await lead(obedient, state("t", 0, 7, False), state("t", 1, ME, False, epoch=5)) == [NONE, STALE, NONE]

    assert await stop(obedient, ("t", 0), ("t", 1), ("u", 0)) == [NONE] * 4
    assert obedient.parts.replica_manager.partitions.items() == []


async def test_a_topic_has_the_id_and_the_configs_that_the_state_of_the_cluster_has(obedient: InMemoryBroker) -> None:
    await obedient.create_topic("t", retention_ms=7)
    (topic,) = (await metadata(obedient, "t")).topics
    await stop(obedient, ("t", 0))
    await show(obedient, state("t", 0, -2, []))
    assert (await metadata(obedient, "t")).topics[0].error_code == UNKNOWN

    await lead(obedient, state("t", 0, ME, True))
    await show(obedient, state("t", 0, ME, []))

    assert (await metadata(obedient, "t")).topics[0].topic_id == topic.topic_id
    assert obedient.log_of("t").config.retention_ms == 7


async def test_the_state_of_the_cluster_is_read_before_a_decision_on_its_topics_is_obeyed(
    obedient: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    written = {
        "t": TopicState("t", {}, {"retention.ms": "7"}, uuid.UUID(int=5)),
        "odd": TopicState("odd", {}, {"retention.ms": "for ever"}, uuid.UUID(int=6)),
    }
    monkeypatch.setattr(FileState, "look", lambda self: self.topics.update(written))

    assert await lead(obedient, state("t", 0, ME, True), state("odd", 0, ME, True)) == [NONE] * 3
    obedient.state.topics.clear()
    await show(obedient, state("t", 0, ME, []))

    assert obedient.log_of("t").config.retention_ms == 7
    assert (await metadata(obedient, "t")).topics[0].topic_id == uuid.UUID(int=5).bytes
    assert "topic odd keeps the configs it had: " in caplog.text


async def test_a_message_changes_single_partitions_of_a_topic(obedient: InMemoryBroker) -> None:
    def seen(topic: Any) -> list[tuple[Any, ...]]:
        return [(row.partition, row.leader_id, row.leader_epoch, row.offline_replicas) for row in topic.partitions]

    await show(obedient, state("t", 1, 7, []), state("t", 0, ME, [7]))
    answer = await metadata(obedient, "t")
    assert [(row.node_id, row.host, row.port, row.rack) for row in answer.brokers] == [
        (ME, "here", 9092, None),
        (7, "there", 9093, "r"),
    ]
    assert (answer.controller_id, seen(answer.topics[0])) == (7, [(0, ME, 4, [7]), (1, 7, 4, [])])

    await show(obedient, state("t", 1, ME, [], epoch=5), state("t", 0, -2, []))
    assert seen((await metadata(obedient, "t")).topics[0]) == [(1, ME, 5, [])]
    await show(obedient, state("t", 1, -2, []), brokers=BROKERS[:1])
    answer = await metadata(obedient, "t")
    assert (answer.topics[0].error_code, len(answer.brokers)) == (UNKNOWN, 1)


@pytest.mark.parametrize(
    ("version", "row", "listener", "protocol"),
    [
        (0, (7, "there", 9093, [], None), "PLAINTEXT", "PLAINTEXT"),
        (1, (7, "", 0, [(9093, "there", "", 2)], None), "SASL_PLAINTEXT", "SASL_PLAINTEXT"),
        (2, (7, "", 0, [(9093, "there", "", 0)], "r"), "PLAINTEXT", "PLAINTEXT"),
        (3, (7, "", 0, [(9093, "there", "INNER", 1)], "r"), "INNER", "SSL"),
    ],
)
async def test_older_messages_name_brokers_in_their_ways(
    obedient: InMemoryBroker, version: int, row: Any, listener: str, protocol: str
) -> None:
    await show(obedient, version=version, brokers=[row])

    broker = obedient.parts.metadata_cache.brokers[7]
    assert (broker.endpoints, broker.rack) == ({listener: ("there", 9093)}, row[4])
    assert broker.security_protocols.get(listener, "PLAINTEXT") == protocol


async def test_a_controller_is_asked_to_let_a_broker_go(
    obedient: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def shut_down(version: int, broker_id: int) -> tuple[ErrorCode, list[Any]]:
        answer = await obedient.call(ApiKey.CONTROLLED_SHUTDOWN, version, None, broker_id=broker_id)
        return ErrorCode(answer.error_code), [tuple(row) for row in answer.remaining_partitions]

    await assign(obedient, "t", [ME, 7])
    await assign(obedient, "alone", [ME])

    assert await shut_down(0, 9) == (ErrorCode.BROKER_NOT_AVAILABLE, [])
    assert await shut_down(1, ME) == await shut_down(0, ME) == (NONE, [("t", 0)])
    loop = obedient.parts.controller_loop
    for news, leaving in ((BrokerGone(7), {ME}), (BrokerGone(ME), set())):
        loop.on_news(news)
        assert loop.image().leaving == leaving
    assert await shut_down(1, ME) == (NONE, [])  # it leads no more, since it was gone
    loop.on_news(ControllerChanged(NO_CONTROLLER))
    assert loop.image().leaving == set()
    monkeypatch.setattr(ControllerLoop, "is_active", False)
    assert await shut_down(1, ME) == (STALE, [])
