"""The answers of Apache Kafka 2.0.1 to the scripted conversations, kept in tests/golden/."""

from __future__ import annotations

import hashlib
import json
import tempfile
from pathlib import Path

from minibroker.conformance.answers import Plain
from tests.conformance.comparing import first_difference
from tests.conformance.pair import running_pair
from tests.conformance.recordings import Comparison, read
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


def compared(titles: list[str]) -> Comparison:
    """Hold these with a live Apache Kafka; what it answers otherwise than was recorded. Raises KafkaUnavailable."""
    with tempfile.TemporaryDirectory() as directory, running_pair(Path(directory)) as pair:
        scripts = {title: OF_KAFKA_2_0[title]() for title in titles}
        found = {
            title: [abridged(answer) for answer in pair.kafka.hold(script, prefix_of(title))]
            for title, script in scripts.items()
        }
    before = recorded()
    differences = {
        title: first_difference(script, before.get(title, []), found[title], strict=False)
        for title, script in scripts.items()
    }
    kept = before | found
    return Comparison(
        {title: kept[title] for title in OF_KAFKA_2_0},
        len(titles),
        [f"{title}: {each}" for title, each in differences.items() if each is not None],
    )


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = read(RECORDED)
    return found
