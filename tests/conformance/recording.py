"""The answers of Apache Kafka 2.0.1 to the scripted conversations, kept in tests/golden/."""

from __future__ import annotations

import hashlib
import json

from tests.conformance.answers import Plain
from tests.conformance.conversation import SocketPeer
from tests.conformance.recordings import keep, read
from tests.conformance.scripts import OF_KAFKA_2_0

RECORDED = "kafka-2.0.1-conformance.json.gz"
MAX_RECORDED_CHARACTERS = 2000
MAX_RECORDED_ROWS = 300
PREFIX = "g{:06d}-"


def prefix_of(name: str) -> str:
    """The prefix of a script's topics, which their length and order may depend on."""
    return PREFIX.format(list(OF_KAFKA_2_0).index(name))


def abridged(answer: Plain) -> Plain:
    """The answer with what is very long in it, records mostly, as its length and digest."""
    if isinstance(answer, str) and len(answer) > MAX_RECORDED_CHARACTERS:
        return f"{len(answer)} characters, {hashlib.sha256(answer.encode()).hexdigest()}"
    if isinstance(answer, list):
        rows = [abridged(each) for each in answer]
        if len(rows) <= MAX_RECORDED_ROWS:
            return rows
        return f"{len(rows)} rows, {hashlib.sha256(json.dumps(rows, separators=(',', ':')).encode()).hexdigest()}"
    if isinstance(answer, dict):
        return {name: abridged(each) for name, each in answer.items()}
    return answer


def record(kafka: SocketPeer, only: str | None = None) -> int:
    """Hold every script with Apache Kafka, or `only` one, and keep its answers; those of the others stay."""
    before = recorded() if only else {}
    answers = {
        name: before[name]
        if name in before and name != only
        else [abridged(answer) for answer in kafka.hold(script(), prefix_of(name))]
        for name, script in OF_KAFKA_2_0.items()
    }
    keep(RECORDED, answers)
    print(f"{sum(map(len, answers.values()))} answers")
    return 0


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = read(RECORDED)
    return found
