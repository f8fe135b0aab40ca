"""The members of a cluster: each sees at once who joins and who ends, and one of them controls."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from minibroker.broker.cluster.member import ClusterMember
from minibroker.broker.cluster.shared_state import SharedState
from minibroker.broker.cluster.state import BrokerGone, BrokerReturned, ControllerChanged, News
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Broker
from minibroker.protocol.errors import KafkaError

SESSION_TIMEOUT_MS = 600
CONFIG = KafkaConfig({"zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS)})
WAIT_SECONDS = 0.002
WAITS = 2500


class Member:
    """A broker that only lives in the cluster; `kill` drops its lock as the kernel does, without a word."""

    def __init__(self, directory: Path, broker_id: int) -> None:
        self.news: list[News] = []
        self.state = SharedState(directory, broker_id)
        self.state.open()
        self.member = ClusterMember(
            self.state,
            broker_id=broker_id,
            broker=lambda: Broker({"PLAINTEXT": ("127.0.0.1", 9000 + broker_id)}),
            session_timeout_ms=CONFIG.zookeeper_session_timeout_ms,
            on_news=self.news.append,
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


async def test_what_the_disk_has_refused_is_tried_again(
    members: list[Member], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, _ = members
    monkeypatch.setattr(os, "write", lambda fd, content: 0)
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
