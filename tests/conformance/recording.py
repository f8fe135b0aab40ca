"""What Apache Kafka 2.0.1 answered to the scripted conversations, kept in tests/golden/."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

from tests.conformance.answers import Plain
from tests.conformance.conversation import SocketPeer
from tests.conformance.scripts import ALL

RECORDED = Path(__file__).parent.parent / "golden" / "kafka-2.0.1-conformance.json.gz"
PREFIX = "g{:06d}-"


def prefix_of(name: str) -> str:
    """The prefix of a script's topics, which their length and order may depend on."""
    return PREFIX.format(list(ALL).index(name))


def record(kafka: SocketPeer) -> int:
    """Hold every script with Apache Kafka and keep its answers."""
    answers = {name: kafka.hold(script(), prefix_of(name)) for name, script in ALL.items()}
    # No time in the file: the same answers are the same bytes.
    text = json.dumps(answers, separators=(",", ":"))
    RECORDED.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{sum(map(len, answers.values()))} answers, {RECORDED.stat().st_size} bytes")
    return 0


def recorded() -> dict[str, list[Plain]]:
    found: dict[str, list[Plain]] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return found
