"""Fetch sessions as Apache Kafka 2.0.1 answered them: every answer of this broker is the recorded one."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from minibroker.protocol.api import ApiKey
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.session_conversations import (
    CONVERSATIONS,
    RECORDED,
    Conversation,
    Step,
    Transcript,
    settings_of,
)
from tests.conformance.answers import differences


class Waiting:
    """The answer to a request that was sent and may wait."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.body: Any = None
        self.is_answered = trio.Event()


async def ask(broker: InMemoryBroker, step: Step) -> Any:
    frame = await broker.answer(step.frame[4:])
    assert frame is not None
    return step.answer_in(frame)


async def hold(conversation: Conversation, broker: InMemoryBroker, nursery: trio.Nursery) -> list[tuple[str, Any]]:
    """Hold a conversation; what was answered. A request that waits is parked before the next is sent."""

    async def answer(waiting: Waiting) -> None:
        waiting.body = await ask(broker, waiting.step)
        waiting.is_answered.set()

    transcript = Transcript()
    waiting: dict[str, Waiting] = {}
    body = None
    while True:
        try:
            step = conversation.send(body)
        except StopIteration:
            return transcript.answers
        body = None
        if step.kind == "send":
            waiting[step.connection] = Waiting(step)
            nursery.start_soon(answer, waiting[step.connection])
            await wait_all_tasks_blocked()
            assert not waiting[step.connection].is_answered.is_set(), f"{step.label}: it did not wait"
        elif step.kind == "receive":
            sent = waiting.pop(step.connection)
            await sent.is_answered.wait()
            body = sent.body
            transcript.add(sent.step._replace(kind="call", label=step.label), body)
        else:
            asked = trio.current_time()
            body = await ask(broker, step)
            assert step.key != ApiKey.FETCH or trio.current_time() == asked, f"{step.label}: it waited"
            transcript.add(step, body)


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_sessions_are_those_of_apache_kafka(
    make_broker: MakeBroker, nursery: trio.Nursery, autojump_clock: MockClock, name: str
) -> None:
    broker = make_broker(**{key.replace(".", "_"): value for key, value in settings_of(name).items()})
    with gzip.open(RECORDED, "rt") as recorded:
        expected = json.load(recorded)[name]

    answers = await hold(CONVERSATIONS[name](), broker, nursery)

    for (label, kafkas), (_, ours) in zip(expected, answers, strict=True):
        assert differences(kafkas, ours) == [], f"{name}: {label}"


def test_the_recording_has_every_conversation() -> None:
    with gzip.open(RECORDED, "rt") as recorded:
        assert list(json.load(recorded)) == list(CONVERSATIONS)
