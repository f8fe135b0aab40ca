"""The roles of a broker: which decisions of a controller it obeys, and what a leader in a newer epoch keeps."""

from __future__ import annotations

import errno

import pytest

from minibroker.broker.cluster.state import BrokerReturned
from minibroker.broker.replica.decisions import LeaderAndIsr, PartitionState, StopReplica
from minibroker.broker.replica.leading import Leading
from minibroker.broker.wings.several.following import Following, State
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker
from tests.broker.scripted_follower import assign, follow
from tests.storage.file_limits import failing

pytestmark = pytest.mark.time_jumps

T0 = TopicPartition("t", 0)
NEW = TopicPartition("new", 0)
STALE = ErrorCode.STALE_CONTROLLER_EPOCH


def decide(broker: InMemoryBroker, controller_epoch: int = 5, **fields: object) -> ErrorCode:
    """Send the decision, by default that broker 0 leads NEW; return the error of the whole, else of the partition."""
    values = {"leader": 0, "leader_epoch": 4, "in_sync_replicas": (0,), "replicas": (0, 1)} | fields
    where = values.pop("where", NEW)
    assert isinstance(where, TopicPartition)
    decision = LeaderAndIsr(1, controller_epoch, {where: PartitionState(**values)})  # type: ignore[arg-type]
    return outcome(broker, decision, where)


def outcome(broker: InMemoryBroker, decision: LeaderAndIsr | StopReplica, where: TopicPartition) -> ErrorCode:
    obeyed = broker.parts.own.obey(decision)
    failure = obeyed.failures.get(where)
    return obeyed.error or (ErrorCode.NONE if failure is None else failure.code)


async def test_a_controller_that_was_replaced_is_not_obeyed(broker: InMemoryBroker) -> None:
    assert decide(broker, 7) is ErrorCode.NONE
    assert decide(broker, 6, leader_epoch=9) is STALE
    assert outcome(broker, StopReplica(1, 6, True, [NEW]), NEW) is STALE
    assert decide(broker, 7, leader_epoch=9) is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [3, 4])
async def test_only_a_newer_leader_epoch_changes_a_role(broker: InMemoryBroker, epoch: int) -> None:
    decide(broker)

    assert decide(broker, leader=1, leader_epoch=epoch) is STALE
    assert broker.parts.replica_manager.partitions.led(NEW).leader_epoch == 4


async def test_a_partition_that_is_assigned_to_others_is_unknown(broker: InMemoryBroker) -> None:
    assert decide(broker, leader=1, replicas=(1, 2)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert broker.parts.replica_manager.partitions.any(NEW) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
async def test_a_role_for_which_there_is_no_room_is_taken_once_there_is(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    with monkeypatch.context() as disk:
        disk.setattr("minibroker.storage.files.disk.mkdir", failing(number))
        answer = await broker.call(ApiKey.CREATE_TOPICS, 2, topics=[("new", 1, 1, [], [])], timeout_ms=1000)
        assert answer.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(KafkaError):
            broker.parts.own.can_take_refused()

    assert broker.parts.own.can_take_refused()
    broker.parts.controller_loop.on_news(BrokerReturned(0))

    assert (await broker.produce("new", [b"x"])).error_code == ErrorCode.NONE
    assert not broker.parts.own.can_take_refused()


async def test_a_log_that_may_not_be_created_takes_its_directory_offline(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("minibroker.storage.files.disk.mkdir", failing(errno.EACCES))

    assert decide(broker) is ErrorCode.KAFKA_STORAGE_ERROR
    assert broker.parts.replica_manager.log_manager.is_offline


async def test_a_follower_has_a_log_and_no_client_reads_it(broker: InMemoryBroker) -> None:
    decide(broker, leader=1)
    partitions = broker.parts.replica_manager.partitions
    role = partitions.any(NEW)

    assert isinstance(role, Following)
    assert (role.leader_id, role.leader_epoch, role.state) == (1, 4, State.TRUNCATING)
    assert broker.parts.replica_manager.log_manager.logs.get(NEW) is role.log
    with pytest.raises(KafkaError) as raised:
        partitions.led(NEW)
    assert raised.value.code is ErrorCode.NOT_LEADER_FOR_PARTITION


async def test_a_leader_follows_and_leads_again_on_the_same_log(broker: InMemoryBroker) -> None:
    decide(broker)
    partitions = broker.parts.replica_manager.partitions
    log = partitions.led(NEW).log
    decide(broker, leader=1, leader_epoch=5)
    following = partitions.any(NEW)
    decide(broker, leader=2, leader_epoch=6, replicas=(0, 1, 2))
    assert partitions.any(NEW) is following
    decide(broker, leader_epoch=7)

    assert partitions.led(NEW).log is log


@pytest.mark.parametrize(("epoch", "end"), [(1, 2), (2, -1)])  # another one may have led in the epoch 1
async def test_a_leader_in_the_next_epoch_knows_its_followers_still(
    broker: InMemoryBroker, epoch: int, end: int
) -> None:
    await assign(broker, "t", [0, 1])
    await broker.produce("t", [b"a", b"b"])
    await follow(broker, "t", 2)
    decide(broker, where=T0, leader_epoch=epoch, in_sync_replicas=(0, 1), replicas=(0, 1, 2), state_version=3)
    leading = broker.parts.replica_manager.partitions.led(T0)

    assert isinstance(leading, Leading)
    assert leading.leadership == (epoch, (0, 1), 3, ())
    ends = {each: replica.log_end_offset.message_offset for each, replica in leading.remote_replicas.items()}
    assert ends == {1: end, 2: -1}


async def test_a_stopped_replica_is_unknown_and_its_log_stays_unless_it_is_deleted(broker: InMemoryBroker) -> None:
    decide(broker)
    logs, partitions = broker.parts.replica_manager.log_manager, broker.parts.replica_manager.partitions

    assert outcome(broker, StopReplica(1, 5, False, [NEW, T0]), T0) is ErrorCode.NONE  # T0 is not here
    assert partitions.any(NEW) is None
    assert logs.logs.get(NEW) is not None
    assert outcome(broker, StopReplica(1, 5, True, [NEW]), NEW) is ErrorCode.NONE
    assert logs.logs.get(NEW) is None
