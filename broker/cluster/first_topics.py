"""The topics of `serve --create-topics` and KAFKA_CREATE_TOPICS: NAME, or NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY.

They are there when the broker is ready. One that exists stays as it is. As the image wurstmeister/kafka, which waits
for its broker too.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

import trio

from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.topic_changes import NewTopic
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

OTHERS_SECONDS = 10.0
POLL_SECONDS = 0.05
LACKS_BROKERS = ErrorCode.INVALID_REPLICATION_FACTOR
TOPIC = re.compile("([^:]+)(?::([0-9]{0,5})(?::([0-9]{0,5})(?::([a-z]*))?)?)?")


def first_topics(text: str, config: KafkaConfig) -> list[NewTopic]:
    """Parse the topics, with commas or line ends between them; counts that are left out are the defaults of topics.

    Raises ValueError.
    """
    return [first_topic(each.strip(), config) for each in re.split("[,\n]", text) if each.strip()]


def first_topic(text: str, config: KafkaConfig) -> NewTopic:
    found = TOPIC.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY, such as orders:3 or state:1:1:compact"
        )
    name, partitions, replicas, policy = found.groups()
    return NewTopic(
        name,
        int(partitions or config.num_partitions),
        int(replicas or config.default_replication_factor),
        {},
        {"cleanup.policy": policy} if policy else {},
    )


async def create_first_topics(topic_admin: TopicAdmin, topics: Sequence[NewTopic], *, are_others: bool) -> None:
    """Create the topics that are missing, and log those that cannot be created.

    In a cluster it waits up to OTHERS_SECONDS for the brokers that replicas need.
    """
    deadline = trio.current_time() + (OTHERS_SECONDS if are_others else 0)
    missing = {each.name: each for each in topics if topic_admin.topic(each.name) is None}
    while missing:
        outcomes = topic_admin.create_topics(missing.values())
        is_late = trio.current_time() >= deadline
        for name, outcome in outcomes.items():
            if isinstance(outcome, KafkaError) and not is_late and outcome.code is LACKS_BROKERS:
                continue
            del missing[name]
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                logger.error("cannot create topic %s: %s", name, outcome.message or outcome.code.name)
        await trio.sleep(POLL_SECONDS if missing else 0)
