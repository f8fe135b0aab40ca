"""The topics of `serve --create-topics` and KAFKA_CREATE_TOPICS: NAME, or NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY.

They exist when the broker is ready; a broker that cannot create one ends. An existing topic stays as it is. The
variable is of the image wurstmeister/kafka, which runs kafka-topics.sh with it: `--config` may follow the policy.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import NamedTuple

import trio

from minibroker.broker.cluster.metadata_cache import check_topic_name
from minibroker.broker.cluster.topic_admin import TopicAdmin
from minibroker.broker.cluster.topic_changes import NewTopic
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.starting import StartError
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import counted

logger = logging.getLogger(__name__)

SEPARATORS = ",\n"
OTHERS_SECONDS = 10.0
POLL_SECONDS = 0.05
LACKS_BROKERS = ErrorCode.INVALID_REPLICATION_FACTOR
TOPIC = re.compile("([^:]+)(?::([0-9]{0,5})(?::([0-9]{0,5})(?::([a-z,]*)((?:\\s+--config[= ]\\S+=\\S+)*))?)?)?")
CONFIG = re.compile(r"--config[= ](\S+?)=(\S+)")


class FirstTopicsError(StartError):
    """The broker cannot be ready without a topic; the message has a line for each."""


class FirstTopic(NamedTuple):
    """A topic to create, and its number of partitions as far as the text has one."""

    new: NewTopic
    partitions: int | None


def first_topics(text: str, config: KafkaConfig, separators: str = SEPARATORS) -> list[FirstTopic]:
    """Parse the topics between separators, each a character; counts that are left out are the defaults of topics.

    Raises ValueError.
    """
    texts: dict[str, str] = {}
    topics: dict[str, FirstTopic] = {}
    for each in re.split(f"[{re.escape(separators)}]", text):
        if entry := each.strip():
            topic = first_topic(entry, config)
            name = topic.new.name
            if topics.setdefault(name, topic) != topic:
                raise ValueError(f"topic {name} is there twice: {texts[name]!r} and {entry!r}")
            texts[name] = entry
    return list(topics.values())


def first_topic(text: str, config: KafkaConfig) -> FirstTopic:
    found = TOPIC.fullmatch(text)
    if found is None:
        raise ValueError(
            f"{text!r} is not NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY, such as orders:3 or state:1:1:compact"
        )
    name, partitions, replicas, policy, options = found.groups()
    try:
        check_topic_name(name)
    except KafkaError as error:
        raise ValueError(error.message) from error
    configs = {"cleanup.policy": policy} if policy else {}
    new = NewTopic(
        name,
        int(partitions or config.num_partitions),
        int(replicas or config.default_replication_factor),
        {},
        configs | dict(CONFIG.findall(options or "")),
    )
    return FirstTopic(new, int(partitions) if partitions else None)


async def create_first_topics(topic_admin: TopicAdmin, topics: Sequence[FirstTopic], *, are_others: bool) -> None:
    """Create the topics that do not exist. Raises FirstTopicsError.

    In a cluster it waits up to OTHERS_SECONDS for the brokers that replicas need.
    """
    deadline = trio.current_time() + (OTHERS_SECONDS if are_others else 0)
    missing: dict[str, NewTopic] = {}
    for new, partitions in topics:
        existing = topic_admin.topic(new.name)
        if existing is None:
            missing[new.name] = new
        elif partitions not in (None, count := len(existing.partitions)):
            logger.warning(
                "topic %s exists with %s, not %d: it stays as it is", new.name, counted(count, "partition"), partitions
            )
    failures = []
    while missing:
        outcomes = topic_admin.create_topics(missing.values())
        is_late = trio.current_time() >= deadline
        for name, outcome in outcomes.items():
            if isinstance(outcome, KafkaError) and not is_late and outcome.code is LACKS_BROKERS:
                continue
            del missing[name]
            if isinstance(outcome, KafkaError) and outcome.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                failures.append(f"cannot create topic {name}: {outcome.message or outcome.code.name}")
        await trio.sleep(POLL_SECONDS if missing else 0)
    if failures:
        raise FirstTopicsError("\n".join(failures))
