"""Fetch sessions as Apache Kafka 2.0.1 answered them: every answer of this broker is the recorded one."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from trio.testing import MockClock

from minibroker.protocol.api import ApiKey
from tests.broker.asking import seconds
from tests.broker.conftest import InMemoryBroker, MakeBroker, Parked
from tests.broker.session_conversations import CONVERSATIONS, RECORDED, Conversation, Step, Transcript, settings_of
from tests.conformance.answers import differences


async def ask(broker: InMemoryBroker, step: Step) -> Any:
    frame = await broker.answer(step.frame[4:])
    assert frame is not None
    return step.answer_in(frame)


async def hold(conversation: Conversation, broker: InMemoryBroker) -> list[tuple[str, Any]]:
    """Hold a conversation; what was answered. A request that waits is parked before the next is sent."""
    transcript = Transcript()
    waiting: dict[str, tuple[Step, Parked]] = {}
    body = None
    while True:
        try:
            step = conversation.send(body)
        except StopIteration:
            return transcript.answers
        if step.kind == "send":
            waiting[step.connection] = step, await broker.park(ask, broker, step)
            body = None
        elif step.kind == "receive":
            sent, parked = waiting.pop(step.connection)
            body = await parked.seen()
            transcript.add(sent._replace(kind="call", label=step.label), body)
        else:
            took, body = await seconds(ask(broker, step))
            assert step.key != ApiKey.FETCH or took == 0, f"{step.label}: it waited"
            transcript.add(step, body)


@pytest.mark.parametrize("name", CONVERSATIONS)
async def test_sessions_are_those_of_apache_kafka(
    make_broker: MakeBroker, autojump_clock: MockClock, name: str
) -> None:
    broker = make_broker(**{key.replace(".", "_"): value for key, value in settings_of(name).items()})
    with gzip.open(RECORDED, "rt") as recorded:
        expected = json.load(recorded)[name]

    answers = await hold(CONVERSATIONS[name](), broker)

    for (label, kafkas), (_, ours) in zip(expected, answers, strict=True):
        assert differences(kafkas, ours) == [], f"{name}: {label}"


def test_the_recording_has_every_conversation() -> None:
    with gzip.open(RECORDED, "rt") as recorded:
        assert list(json.load(recorded)) == list(CONVERSATIONS)
