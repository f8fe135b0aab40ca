"""Coordinators of the partitions that this broker leads: what they load with them, and what they give up."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minibroker.broker.replica.decisions import UpdateMetadata
from minibroker.broker.transaction.transaction import COMPLETE_COMMIT, PREPARE_COMMIT
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.group_clients import SETTINGS, GroupClient
from tests.broker.scripted_follower import FOLLOWER, LEADER, lead
from tests.broker.transactional import FEW, Producer, committed, started, state_of, with_open_transaction

pytestmark = pytest.mark.time_jumps

GROUPS = TopicPartition("__consumer_offsets", 0)
NONE, LOADING, ELSEWHERE = ErrorCode.NONE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize("is_lost_meanwhile", [False, True])
async def test_groups_are_loaded_beside_the_requests(
    make_broker: MakeBroker, is_lost_meanwhile: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker = make_broker(**SETTINGS, offsets_load_buffer_size=1)
    client = GroupClient(broker)
    await broker.create_topic("t")
    member = await client.stable()
    await client.commit(("t", 0, 5), joined=member)
    lead(broker, GROUPS, FOLLOWER, 5)

    lead(broker, GROUPS, LEADER, 6)
    answers = [await client.describe(), await client.sync(member), await broker.call(ApiKey.LIST_GROUPS, 2)]
    meanwhile = [await client.heartbeat(member), *(each.error_code for each in answers)]
    if is_lost_meanwhile:
        lead(broker, GROUPS, FOLLOWER, 7)
    await wait_all_tasks_blocked()

    assert meanwhile == [NONE, LOADING, ErrorCode.REBALANCE_IN_PROGRESS, LOADING]
    assert "background work failed" not in caplog.text
    assert await client.heartbeat(member) == (ELSEWHERE if is_lost_meanwhile else NONE)
    assert (await broker.call(ApiKey.LIST_GROUPS, 2)).error_code == NONE


async def test_a_transaction_is_completed_by_its_next_coordinator(
    make_broker: MakeBroker, autojump_clock: MockClock
) -> None:
    broker = make_broker(**FEW | {"transaction_state_log_num_partitions": 1})
    producer = await with_open_transaction(broker)
    here = TopicPartition("__transaction_state", 0)
    seen_by_clients(broker, "a", leader=FOLLOWER)

    assert await producer.end() is NONE
    await trio.sleep(2)
    assert state_of(broker) is PREPARE_COMMIT, "the leader of its partition cannot be reached"
    lead(broker, here, FOLLOWER, 5)
    assert await producer.end() is await Producer(broker, "t").initialize() is ELSEWHERE
    assert broker.parts.transactions.transactions == {}
    waiting = len(broker.parts.timers.timer)
    await trio.sleep(2)
    assert len(broker.parts.timers.timer) == waiting - 1, "it is not tried again"

    seen_by_clients(broker, "a", leader=LEADER)
    lead(broker, here, LEADER, 6)

    assert (state_of(broker), await committed(broker, "a")) == (COMPLETE_COMMIT, [b"1"])


async def test_ids_are_loaded_beside_the_requests(make_broker: MakeBroker) -> None:
    broker = make_broker(**FEW | {"transaction_state_log_num_partitions": 1}, transaction_state_log_load_buffer_size=1)
    here = TopicPartition("__transaction_state", 0)
    producers = [await started(broker, name) for name in ("t", "u")]
    await wait_all_tasks_blocked()  # the broker has started
    lead(broker, here, FOLLOWER, 5)

    lead(broker, here, LEADER, 6)
    meanwhile = [await producer.initialize() for producer in producers]
    await wait_all_tasks_blocked()

    assert meanwhile == [LOADING] * 2
    assert [await producer.initialize() for producer in producers] == [NONE] * 2


def seen_by_clients(broker: InMemoryBroker, topic: str, *, leader: int) -> None:
    """Let a controller show another leader of the topic's first partition."""
    cache = broker.parts.metadata_cache
    known = cache.topics[topic]
    state = known.partitions[0]._replace(leader=leader)
    broker.parts.own.obey(UpdateMetadata(0, 1, cache.brokers, {topic: known._replace(partitions={0: state})}))
