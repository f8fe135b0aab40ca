"""The scripted conversations as Apache Kafka 2.0.1 answered them: every answer of this broker is the recorded one.

To record anew: python -m tests.conformance --record
"""

from __future__ import annotations

import time

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import KafkaProtocolError
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.conformance.answers import Plain
from tests.conformance.conversation import CLOSED, SILENT, WAITS, Transcript
from tests.conformance.generator import generated
from tests.conformance.pair import SETTINGS, first_difference
from tests.conformance.recording import abridged, prefix_of, recorded
from tests.conformance.scripts import ALL
from tests.conformance.shrinking import shrunk
from tests.conformance.steps import Script, Step, read_script, script_text

RECORDED = recorded()


class Parked:
    """A request that was sent and may wait."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.outcome: bytes | str = WAITS
        self.is_answered = trio.Event()
        self.scope = trio.CancelScope()


class InMemoryPeer:
    """Holds a script with a broker that is not a process."""

    def __init__(self, broker: InMemoryBroker, nursery: trio.Nursery) -> None:
        self._broker = broker
        self._nursery = nursery
        self._parked: dict[str, Parked] = {}

    async def hold(self, script: Script, prefix: str) -> list[Plain]:
        transcript = Transcript(prefix, self._broker.clock.wall_now_ms)
        for step in script:
            await self._move(step, transcript)
        return transcript.answers

    async def _move(self, step: Step, transcript: Transcript) -> None:
        name = step.connection
        if step.kind == "call":
            outcome = await self._ask(transcript.frame(step))
            while transcript.wants_again(step, outcome):
                outcome = await self._ask(transcript.frame(step))
            transcript.add(step, outcome)
        elif step.kind == "drop":
            if name in self._parked:
                self._parked.pop(name).scope.cancel()
        else:
            if step.kind == "park":
                self._parked[name] = Parked(step)
                self._nursery.start_soon(self._wait, self._parked[name], transcript.frame(step))
            parked = self._parked.get(name)
            if parked is None:
                transcript.add(step, "nothing asked")
                return
            if step.kind == "take":
                await parked.is_answered.wait()
            await wait_all_tasks_blocked()
            transcript.add(parked.step, parked.outcome)
            if parked.is_answered.is_set():
                del self._parked[name]

    async def _wait(self, parked: Parked, frame: bytes) -> None:
        with parked.scope:
            parked.outcome = await self._ask(frame)
            parked.is_answered.set()

    async def _ask(self, frame: bytes) -> bytes | str:
        try:
            answer = await self._broker.answer(frame[4:])
        except (KafkaProtocolError, CloseConnectionError):
            return CLOSED
        return SILENT if answer is None else answer


@pytest.mark.parametrize("name", ALL)
async def test_answers_are_those_of_apache_kafka(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock, name: str
) -> None:
    settings = {setting.replace(".", "_"): value for setting, value in SETTINGS.items()}
    broker = make_broker(**settings)
    broker.clock.wall_now_ms = time.time_ns() // 1_000_000  # ListOffsets v0 compares with file times
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="any", key_type=0)  # its topic is there, as in the harness
    script = ALL[name]()

    answers = await InMemoryPeer(broker, nursery).hold(script, prefix_of(name))

    difference = first_difference(script, RECORDED[name], [abridged(answer) for answer in answers])
    assert difference is None, f"{name}, {difference}"


def test_the_recording_has_every_script() -> None:
    assert list(RECORDED) == list(ALL)


def test_a_seed_gives_the_same_script_again_and_its_text_gives_it_too() -> None:
    script = generated(7)

    assert repr(generated(7)) == repr(script)
    assert repr(read_script(script_text(script))) == repr(script)
    assert repr(generated(8)) != repr(script)


def test_shrinking_leaves_what_makes_the_difference() -> None:
    script = next(script for script in map(generated, range(100)) if any(step.kind == "park" for step in script))

    smaller = shrunk(script, lambda candidate: any(step.kind == "park" for step in candidate))

    assert [step.kind for step in smaller[1:]] == ["park"]
