"""Groups of the consumer protocol as Apache Kafka 4.4.0 coordinated them: every answer is the recorded one.

To record anew: python -m tests.books kafka-4.4.0 kafka-4.4.0/BOOK --record
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
import trio

from minibroker.protocol.api import ApiKey
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.conformance import group_directory
from tests.conformance.comparing import Difference, first_difference
from tests.conformance.consumer_groups import (
    LATER_IN_KAFKA,
    SETTINGS,
    of_groups,
    prefix_of,
    recorded,
    script_of,
)
from tests.conformance.generated_consumer_groups import generated_consumer_groups
from tests.conformance.in_memory import InMemoryPeer
from tests.conformance.recordings import GOLDEN
from tests.conformance.scripts import OF_KAFKA_4_4
from tests.unpacking import unpack

pytestmark = pytest.mark.time_jumps

RECORDED = recorded()
GENERATED = [name for name in RECORDED if name.isdecimal()]
A_BROKER = 25
IN_CI = 25


@pytest.fixture
async def peer(make_broker: MakeBroker, tmp_path: Path, nursery: trio.Nursery) -> InMemoryPeer:
    settings = {setting.replace(".", "_"): value for setting, value in SETTINGS.items()}

    def started() -> InMemoryBroker:
        broker = make_broker(tmp_path, **settings)
        broker.clock.wall_now_ms = time.time_ns() // 1_000_000
        return broker

    broker = started()
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="any", key_type=0)
    return InMemoryPeer(broker, nursery, started)


async def difference(peer: InMemoryPeer, name: str) -> Difference | None:
    script = script_of(name)
    answers = await peer.hold(script, prefix_of(name))
    return first_difference(script, RECORDED[name], of_groups(script, answers))


@pytest.mark.parametrize("name", OF_KAFKA_4_4)
async def test_answers_are_those_of_apache_kafka(peer: InMemoryPeer, name: str) -> None:
    found = await difference(peer, name)

    assert (None if found is None else found.number) == LATER_IN_KAFKA.get(name), f"{name}, {found}"


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(first, marks=[pytest.mark.nightly] if first >= IN_CI else [])
        for first in range(0, len(GENERATED), A_BROKER)
    ],
)
async def test_generated_conversations_are_those_with_apache_kafka(peer: InMemoryPeer, first: int) -> None:
    for seed in GENERATED[first : first + A_BROKER]:
        found = await difference(peer, seed)

        assert found is None, f"seed {seed}, {found}"


def test_the_recording_has_every_conversation_and_a_seed_gives_the_same_again() -> None:
    assert {name for name in RECORDED if not name.isdecimal()} == OF_KAFKA_4_4.keys()
    assert len(GENERATED) >= 500
    assert repr(generated_consumer_groups(7)) == repr(script_of("7"))


async def test_groups_in_a_directory_of_apache_kafka_go_on_as_they_do_there(
    make_broker: MakeBroker, tmp_path: Path, nursery: trio.Nursery
) -> None:
    unpack(GOLDEN / group_directory.RECORDED, tmp_path)
    given = SETTINGS | group_directory.PATIENT
    broker = make_broker(tmp_path / "data", **{name.replace(".", "_"): value for name, value in given.items()})

    answers = await InMemoryPeer(broker, nursery).hold(group_directory.BOOK["after"](), group_directory.PREFIX)

    recorded = json.loads((tmp_path / group_directory.ANSWERS).read_text())
    assert first_difference(group_directory.BOOK["after"](), recorded, answers) is None
