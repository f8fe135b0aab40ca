"""Share groups as Apache Kafka 4.4.0 served them: every answer is the recorded one.

To record anew: python -m tests.books kafka-4.4.0 kafka-4.4.0/share-groups --record
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
import trio

from minibroker.protocol.api import ApiKey
from tests.broker.conftest import MakeBroker
from tests.conformance.generated_share_groups import generated_share_group
from tests.conformance.in_memory import InMemoryPeer
from tests.conformance.share_groups import GENERATED, SETTINGS, difference, of_shares, prefix_of, recorded

pytestmark = pytest.mark.time_jumps

RECORDED = recorded()
A_BROKER = 30


@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.nightly] * (first > 0)) for first in range(0, GENERATED, A_BROKER)],
)
async def test_generated_conversations_are_those_with_apache_kafka(
    make_broker: MakeBroker, tmp_path: Path, nursery: trio.Nursery, first: int
) -> None:
    broker = make_broker(tmp_path, **{name.replace(".", "_"): value for name, value in SETTINGS.items()})
    broker.clock.wall_now_ms = time.time_ns() // 1_000_000
    await broker.call(ApiKey.FIND_COORDINATOR, 1, key="any", key_type=0)
    peer = InMemoryPeer(broker, nursery)
    for seed in list(RECORDED)[first : first + A_BROKER]:
        script = generated_share_group(int(seed))
        answers = of_shares(script, await peer.hold(script, prefix_of(seed)))

        found = difference(seed, RECORDED[seed], answers)

        assert found is None, f"seed {seed}, {found}"


def test_the_recording_has_so_many_conversations_and_a_seed_gives_the_same_again() -> None:
    assert len(RECORDED) >= GENERATED
    assert repr(generated_share_group(7)) == repr(generated_share_group(7))
