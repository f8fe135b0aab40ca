"""Settings that other brokers of a cluster have changed hold here too: configs of topics, settings, those of wings.

As in Kafka, where each broker hears of changes in ZooKeeper and reads them there.
"""

from __future__ import annotations

from collections.abc import Sequence

from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.sections import BROKER_CONFIGS
from minibroker.broker.cluster.state import Change, News
from minibroker.broker.config.dynamic import DynamicConfig
from minibroker.broker.wing import Wing


class SharedSettings:
    """Takes what is in the news of the state."""

    def __init__(self, *, own: OwnBroker, dynamic_config: DynamicConfig, wings: Sequence[Wing]) -> None:
        self._own = own
        self._dynamic_config = dynamic_config
        self._wings = wings

    def on_news(self, news: News) -> None:
        """Take a change; what this broker has changed itself is the same already."""
        if not isinstance(news, Change):
            return
        for name, topic in news.topics.items():
            if topic is not None:
                self._own.set_topic_configs(name, topic.configs)
        if (broker_configs := news.get(BROKER_CONFIGS)) is not None:
            self._dynamic_config.take(broker_configs)
        for each in self._wings:
            each.on_change(news)
