"""The members of a cluster: each sees at once who joins and who ends, and one of them controls."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest
import trio

from minibroker.broker.cluster.controller_loop import ControllerLoop
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.state import BrokerGone, BrokerReturned, Change, ControllerChanged, News, TopicState
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.topic_changes import NewTopic
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Broker, Obeyed, PartitionState, StopReplica
from minibroker.broker.wings.several.member import ClusterMember
from minibroker.broker.wings.several.reassignment import continue_reassignments
from minibroker.broker.wings.several.reassignment_apis import begin
from minibroker.broker.wings.several.shared_state import SharedState
from minibroker.broker.wings.several.wing import SeveralWing
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files import disk
from tests.broker.state_promises import TOPIC

SESSION_TIMEOUT_MS = 600
CONFIG = KafkaConfig({"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)})
WAIT_SECONDS = 0.002
WAITS = 2500


class Member:
    """A broker that only lives in the cluster; `kill` drops its lock as the kernel does, without a word."""

    def __init__(self, directory: Path, broker_id: int) -> None:
        self.news: list[News] = []
        self.on_news: Callable[[News], None] = self.news.append
        self.state = SharedState(directory, broker_id)
        self.state.open()
        self.member = ClusterMember(
            self.state,
            broker_id=broker_id,
            broker=lambda: Broker({"PLAINTEXT": ("127.0.0.1", 9000 + broker_id)}),
            session_timeout_ms=CONFIG.zookeeper_session_timeout_ms,
            on_news=lambda news: self.on_news(news),
        )
        self.scope = trio.CancelScope()

    async def run(self) -> None:
        with self.scope:
            await self.member.run()

    def kill(self) -> None:
        self.scope.cancel()
        self.state.locks.release()

    async def until(self, condition: Callable[[SharedState], bool]) -> None:
        for _ in range(WAITS):
            if condition(self.state):
                return
            await trio.sleep(WAIT_SECONDS)
        raise AssertionError(f"not within {WAITS * WAIT_SECONDS} s: {self.state.brokers}")


def has_joined(broker_id: int, state: SharedState) -> bool:
    return broker_id in state.lives


@pytest.fixture
async def members(nursery: trio.Nursery, tmp_path: Path) -> list[Member]:
    """Three brokers, of which the first controls."""
    members = []
    for broker_id in (1, 2, 3):
        member = Member(tmp_path, broker_id)
        nursery.start_soon(member.run)
        await member.until(partial(has_joined, broker_id))
        members.append(member)
    for member in members:
        await member.until(lambda state: list(state.brokers) == [1, 2, 3] and state.controller_id == 1)
    return members


async def test_all_members_get_the_same_news(members: list[Member]) -> None:
    expected = [BrokerReturned(1), ControllerChanged(1), BrokerReturned(2), BrokerReturned(3)]
    for member in members:
        await member.until(lambda state: not state.has_news)
        assert member.news == expected


async def test_a_dead_controller_is_replaced_at_once(members: list[Member]) -> None:
    first, second, third = members
    began = trio.current_time()
    first.kill()
    for member in (second, third):
        await member.until(lambda state: 1 not in state.lives and state.controller_id in (2, 3))
    assert trio.current_time() - began < SESSION_TIMEOUT_MS / 1000 / 2
    assert second.state.controller_id == third.state.controller_id
    assert second.state.controller_epoch == third.state.controller_epoch == 2
    assert BrokerGone(1) in second.news


async def test_a_controller_hands_over_to_another_and_may_control_again(members: list[Member]) -> None:
    first, second, third = members
    with pytest.raises(KafkaError, match="broker 2 is not the controller, broker 1 is"):
        second.member.hand_over_control()

    first.member.hand_over_control()
    for member in members:
        await member.until(lambda state: state.controller_id in (2, 3))

    second.kill()
    third.kill()
    await first.until(lambda state: state.controller_id == 1)
    await first.until(lambda state: list(state.lives) == [1])
    with pytest.raises(KafkaError, match="no other broker is alive to control; start one first"):
        first.member.hand_over_control()
    assert first.state.is_controller


async def test_a_change_that_the_disk_has_refused_is_tried_again(
    members: list[Member], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, _ = members
    monkeypatch.setattr(disk, "write", lambda fd, content: 0)
    first.kill()
    await second.until(lambda state: "No space left on device" in caplog.text)
    assert 1 in second.state.lives
    monkeypatch.undo()
    await second.until(lambda state: 1 not in state.lives and state.controller_id in (2, 3))


async def test_a_broker_that_stands_still_expires_and_joins_again(
    members: list[Member], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = members
    monkeypatch.setattr(first.state.locks, "beat", lambda: None)
    monkeypatch.setattr(first.state, "look", lambda: None)
    await second.until(lambda state: 1 not in state.lives)
    await second.until(lambda state: state.controller_id in (2, 3))
    monkeypatch.undo()
    await third.until(lambda state: 1 in state.lives)
    await first.until(lambda state: state.controller_id in (2, 3))
    assert not first.state.is_controller
    assert first.state.is_registered


class Controlled:
    """Two brokers, of which the first controls; both lead a partition."""

    def __init__(self, directory: Path) -> None:
        self.first, self.second = Member(directory, 1), Member(directory, 2)
        self.loop = ControllerLoop(
            config=KafkaConfig({"broker.id": "1"}),
            state=self.first.state,
            own=Mock(obey=lambda decision: Obeyed(ErrorCode.NONE, {})),
        )
        self.first.on_news = self.loop.on_news
        states = {0: PartitionState(1, 0, (1, 2), (1, 2)), 1: PartitionState(2, 0, (2, 1), (1, 2))}
        assert self.first.state.save("a topic", Change({"t": TopicState("t", states, {}, uuid.UUID(int=1))}))
        for member in (self.first, self.second):
            member.member.join()
        self.first.member.look()

    def in_sync(self) -> dict[int, tuple[int, tuple[int, ...]]]:
        """The leader and the in-sync replicas of each partition."""
        states = self.first.state.topics["t"].partitions
        return {number: (state.leader, state.in_sync_replicas) for number, state in states.items()}


async def test_a_controller_that_was_taken_for_dead_and_controls_again_leads_on(tmp_path: Path) -> None:
    controlled = Controlled(tmp_path)
    controlled.second.state.look()
    controlled.second.state.end_life_of(1)

    controlled.first.member.look()

    assert controlled.first.state.is_controller
    assert controlled.in_sync() == {0: (1, (1, 2)), 1: (2, (2, 1))}


async def test_the_dead_leave_the_in_sync_replicas_also_if_a_controller_between_died_before_it_acted(
    tmp_path: Path,
) -> None:
    third = Member(tmp_path, 3)
    third.member.join()
    assert third.state.claim_controller()
    controlled = Controlled(tmp_path)
    first, second = controlled.first, controlled.second
    states = {0: PartitionState(1, 0, (1, 2, 3), (1, 2, 3))}
    assert first.state.save("a topic", Change({"u": TopicState("u", states, {}, uuid.UUID(int=2))}))
    second.state.look()
    second.state.end_life_of(3)
    assert second.state.claim_controller()
    first.member.look()
    first.state.end_life_of(2)

    first.member.look()

    assert first.state.is_controller
    assert first.state.topics["u"].partitions[0].in_sync_replicas == (1,)


async def test_a_controller_that_another_has_replaced_acts_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    controlled = Controlled(tmp_path)
    controlled.second.state.look()
    controlled.second.state.end_life_of(1)
    assert controlled.second.state.claim_controller()

    assert controlled.loop.is_active  # it has not heard of that
    controlled.loop.rebalance_leaders()
    controlled.loop.on_answer(2, StopReplica(1, 1, True, []), Obeyed(ErrorCode.NONE, {}))

    assert not controlled.loop.is_active
    assert controlled.in_sync() == {0: (1, (1, 2)), 1: (2, (2, 1))}
    assert caplog.messages == []


async def test_a_controller_catches_up_once_it_can_write_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    controlled = Controlled(tmp_path)
    refused = Mock(side_effect=KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the disk is full"))
    with monkeypatch.context() as full:
        full.setattr(controlled.first.state, "save", refused)
        controlled.first.state.end_life_of(2)
        controlled.first.member.look()
        controlled.loop.catch_up()
        assert controlled.in_sync()[1] == (2, (2, 1))

    controlled.loop.catch_up()

    assert controlled.in_sync()[1] == (1, (1,))


async def test_a_controller_decides_on_what_others_have_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    controlled = Controlled(tmp_path)
    controlled.loop.add_step(continue_reassignments)
    first, second, loop = controlled.first.state, controlled.second.state, controlled.loop
    config = KafkaConfig({"broker.id": "1"})
    admin = TopicAdmin(config=config, dynamic_config=DynamicConfig(config), state=first, controller_loop=loop)
    states = {0: PartitionState(2, 0, (2,), (2,))}

    def elsewhere(name: str) -> None:
        second.look()
        assert second.save("a topic", Change({name: TopicState(name, states, {}, uuid.uuid4())}))

    elsewhere("moved")
    assert begin(loop, [(TopicPartition("moved", 0), [1])]) == [(ErrorCode.NONE, None)]
    elsewhere("deleted")
    admin.check_is_controller()
    assert isinstance(admin.delete_topics(["deleted"])["deleted"], TopicState)
    Member(tmp_path, 3).member.join()
    assert loop.shut_down(3) == []

    save = first.save

    def save_later(what: str, change: Change) -> bool:
        monkeypatch.undo()
        elsewhere("made")
        return save(what, change)

    monkeypatch.setattr(first, "save", save_later)
    outcome = admin.create_topics([NewTopic("made", 1, 1, {}, {})])["made"]
    assert isinstance(outcome, KafkaError) and outcome.code is ErrorCode.TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("is_deleted", [False, True])
def test_what_has_moved_is_dropped_when_a_broker_hears_of_its_topic_and_when_it_returns(*, is_deleted: bool) -> None:
    kept, moved, only_a_log = (TopicPartition("t", number) for number in range(3))
    states = {number: PartitionState(2, 0, (2,), (1, 2) if number == 0 else (2, 3), 0) for number in range(3)}
    topic = TopicState("t", states, {}, uuid.uuid4())
    manager = Mock()
    manager.partitions.items.return_value = [(kept, None), (moved, None)]
    manager.log_manager.logs = [kept, moved, only_a_log]
    own = OwnBroker(manager, Mock(), Mock(topics={"t": topic}), broker_id=1)
    own.has_roles.set()

    for news in (BrokerReturned(2), Change({"other": None}), BrokerReturned(1), Change({"t": topic})):
        own.drop_moved_in(news, is_deleted=is_deleted)

    dropped = [moved, only_a_log] if is_deleted else [moved]
    asked = [call.args[0] for call in manager.partitions.apply.call_args_list]
    assert asked == [StopReplica(1, 0, is_deleted, dropped)] * 2


def test_a_broker_drops_what_has_moved_with_each_news(tmp_path: Path) -> None:
    state = SharedState(tmp_path, CONFIG.broker_id)
    state.open()
    parts, news = Mock(state=state, config=CONFIG), list[News]()
    member = SeveralWing(parts).member(lambda: Broker({"PLAINTEXT": ("127.0.0.1", 1)}), news.append)
    assert member is not None
    member.join()
    member.look()
    assert state.save("a topic", Change({"topic": TOPIC._replace(name="topic")}))
    member.look()

    assert [type(each) for each in news] == [BrokerReturned, ControllerChanged, Change]
    assert [each.args[0] for each in parts.own.drop_moved_in.call_args_list] == news
