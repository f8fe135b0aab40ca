"""Apache Kafka 2.0.1 and minibroker answer alike, byte for byte: scripted conversations, and some generated.

test_recorded_conversations.py compares every scripted one with what was recorded; here a sample is held again, all of
them by `make nightly`. `make conformance` goes through many more seeds.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from minibroker.conformance.generator import generated
from minibroker.conformance.steps import script_text
from tests.conformance.pair import Pair, running_pair
from tests.conformance.recordings import live_kafka
from tests.conformance.scripts import OF_KAFKA_2_0

SEEDS = 10
# One of each book: that a recording is what Apache Kafka answers is seen in these.
SAMPLE = {
    "wrong batches",
    "offsets by time",
    "sessions",
    "control batches for old clients",
    "created topics",
    "changed topics",
    "log directories",
    "acks of all replicas",
    "life of a group",
    "transactions committed and aborted",
    "ends of leader epochs",
}

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    with live_kafka(), running_pair(tmp_path_factory.mktemp("pair")) as running:
        yield running


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SAMPLE else [pytest.mark.nightly]) for name in OF_KAFKA_2_0]
)
def test_scripted_conversations_are_answered_alike(pair: Pair, name: str) -> None:
    difference = pair.difference(OF_KAFKA_2_0[name]())

    assert difference is None, f"{name}, {difference}"


def test_generated_conversations_are_answered_alike(pair: Pair) -> None:
    for seed in range(1, SEEDS + 1):
        script = generated(seed)

        difference = pair.difference(script)

        assert difference is None, (
            f"seed {seed}, {difference}\nshrink it: python -m tests.conformance --seed {seed} --seeds 1"
            f"\n{script_text(script)}"
        )
