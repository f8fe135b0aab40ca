"""Groups of the consumer protocol (KIP-848): a kind of group, its two APIs, and how many groups are in each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.sections import GROUP_CONFIGS
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.metric import Found, families
from minibroker.broker.parts import BrokerParts
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing
from minibroker.broker.wings.consumer.consumer_group_apis import ConsumerGroupApis
from minibroker.broker.wings.consumer.consumer_groups import ConsumerGroups
from minibroker.broker.wings.consumer.group import ConsumerGroup, ConsumerGroupState

FAMILIES = families("""\
groups = minibroker:type=ConsumerGroups (state)
  Count | self | gauge groups | of the consumer protocol in this state | minibroker_consumer_groups
""")


class ConsumerWing(Wing):
    """Beside brokers of Apache Kafka 2.0.1 there are no such groups: those cannot load their records."""

    def __init__(self, parts: BrokerParts) -> None:
        state = parts.state
        self._groups = parts.groups
        kind = ConsumerGroups(
            parts.groups,
            GroupTopics(parts.metadata_cache),
            config=parts.config,
            group_configs=GroupConfigs(parts.config, lambda: state.get(GROUP_CONFIGS)),
            clock=parts.timers.clock,
            timer=parts.timers.timer,
            run_steps=parts.background.run_steps,
            afterwards=parts.afterwards.call,
        )
        parts.groups.cache.add_kind(kind)
        self._apis = ConsumerGroupApis(kind)

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.zookeeper is None

    def routes(self) -> Routes:
        return self._apis.routes()

    def metrics(self) -> Iterator[Found]:
        states = Counter(group.state for group in self._groups.all() if isinstance(group, ConsumerGroup))
        for state in ConsumerGroupState:
            yield FAMILIES["groups"].row((state.value,), states[state])
