"""What tests ask of brokers that act as a release of Apache Kafka."""

from __future__ import annotations

from typing import Any

from minibroker.broker.config.profiles import RELEASES
from minibroker.protocol.api import ApiKey
from tests.broker.conftest import InMemoryBroker

TOPIC, BROKER = 2, 4  # types of resources
PROFILES = tuple(RELEASES)


async def create(broker: InMemoryBroker, name: str, **configs: str) -> Any:
    """In the version that all releases have; the topic's row of the answer."""
    rows = [(key.replace("_", "."), value) for key, value in configs.items()]
    answer = await broker.call(ApiKey.CREATE_TOPICS, 0, topics=[(name, 1, 1, [], rows)], timeout_ms=1000)
    return answer.topics[0]
