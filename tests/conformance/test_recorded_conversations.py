"""The scripted conversations as Apache Kafka 2.0.1 answered them: every answer of this broker is the recorded one.

To record anew: python -m tests.books kafka-2.0.1 kafka-2.0.1/BOOK --record
"""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock

from minibroker.conformance.generator import generated
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.shrinking import shrunk
from minibroker.conformance.steps import read_script, script_text
from minibroker.protocol.api import ApiKey
from tests.broker.conftest import MakeBroker
from tests.conformance.comparing import first_difference
from tests.conformance.in_memory import InMemoryPeer
from tests.conformance.recording import abridged, prefix_of, recorded
from tests.conformance.scripts import OF_KAFKA_2_0

RECORDED = recorded()


@pytest.mark.parametrize("name", OF_KAFKA_2_0)
async def test_answers_are_those_of_apache_kafka(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock, name: str
) -> None:
    settings = {setting.replace(".", "_"): value for setting, value in SETTINGS.items()}
    broker = make_broker(**settings)
    broker.clock.wall_now_ms = time.time_ns() // 1_000_000  # ListOffsets v0 compares with file times
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="any", key_type=0)  # its topic is there, as in the harness
    script = OF_KAFKA_2_0[name]()

    answers = await InMemoryPeer(broker, nursery).hold(script, prefix_of(name))

    difference = first_difference(script, RECORDED[name], [abridged(answer) for answer in answers])
    assert difference is None, f"{name}, {difference}"


def test_the_recording_has_every_script() -> None:
    assert list(RECORDED) == list(OF_KAFKA_2_0)


def test_a_seed_gives_the_same_script_again_and_its_text_gives_it_too() -> None:
    script = generated(7)

    assert repr(generated(7)) == repr(script)
    assert repr(read_script(script_text(script))) == repr(script)
    assert repr(generated(8)) != repr(script)


def test_shrinking_leaves_what_makes_the_difference() -> None:
    script = next(script for script in map(generated, range(100)) if any(step.kind == "park" for step in script))

    smaller = shrunk(script, lambda candidate: any(step.kind == "park" for step in candidate))

    assert [step.kind for step in smaller[1:]] == ["park"]
