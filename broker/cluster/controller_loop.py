"""Performs the plans of the controller: stores their changes, then has brokers obey their decisions.

The order makes a kill at any point harmless. A new topic is in the state before its first log exists: the next start
creates the log. A deleted topic leaves the state before its directories go; the state notes that directories may be
left, so that the next start removes them instead of taking them for a topic. All topics of one request are stored
together, all or none: one fsync instead of a hundred.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from minibroker.broker.cluster import controller
from minibroker.broker.cluster.controller import Image, Plan
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.state import ClusterState
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import FIRST_CONTROLLER_EPOCH, Broker
from minibroker.broker.replica.isr import IsrChanges, IsrOutcomes
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition

logger = logging.getLogger(__name__)

Failures = Mapping[TopicPartition, KafkaError]


class ControllerLoop:
    """The controller of a cluster of one: `own` is the broker that obeys."""

    def __init__(self, *, config: KafkaConfig, state: ClusterState, own: OwnBroker) -> None:
        self._config = config
        self._state = state
        self._own = own

    def image(self) -> Image:
        config, state = self._config, self._state
        broker = Broker(config.advertised_endpoints, config.broker_rack)
        return Image(
            config.broker_id,
            FIRST_CONTROLLER_EPOCH,  # one broker: no controller replaces another
            {config.broker_id: broker},
            state.topics,
            state.being_deleted,
            config.unclean_leader_election_enable,
        )

    def start(self, newest_epochs: Mapping[TopicPartition, int]) -> None:
        """This broker has started: have it take the roles that the state gives it.

        Raises KafkaError if the state or a log cannot be written.
        """
        me = self._config.broker_id
        failures = self.perform(
            "the leaders", lambda image: controller.brokers_changed(image, returned=[me], newest_epochs=newest_epochs)
        )
        for error in failures.values():
            raise error

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return True

    def stop(self) -> None:
        """This broker is about to end: others take over what they can."""
        try:
            self.perform("the leaders", lambda image: controller.shut_down(image, self._config.broker_id))
        except KafkaError as error:
            logger.warning("no other broker leads before the end of this one: %s", error)

    def shut_down(self, broker_id: int) -> list[TopicPartition]:
        """A broker is about to end: others take over what they can; return the partitions that it leads still.

        One of a single replica does not count. Raises KafkaError: STALE_CONTROLLER_EPOCH if this broker is not the
        controller, BROKER_NOT_AVAILABLE for a broker that is not alive.
        As kafka 2.0.1 KafkaController.ControlledShutdown.
        """
        if not self.is_active:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "this broker is not the controller")
        if broker_id not in self.image().brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
        self.perform("the leaders", lambda image: controller.shut_down(image, broker_id))
        return [
            TopicPartition(name, number)
            for name, topic in self._state.topics.items()
            for number, state in topic.partitions.items()
            if state.leader == broker_id and len(state.replicas) > 1
        ]

    def save_isr(self, changes: IsrChanges) -> IsrOutcomes:
        """Save what leaders ask for. Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing.

        The leader changes its own set afterwards, as kafka 2.0.1 Partition.updateIsr.
        """
        outcomes: IsrOutcomes = {}

        def change(image: Image) -> Plan:
            nonlocal outcomes
            plan, outcomes = controller.change_isr(image, changes)
            return plan

        self.perform("the in-sync replicas", change)
        return outcomes

    def perform(self, what: str, event: Callable[[Image], Plan]) -> Failures:
        """Plan for an event until the plan is not stale, store it, and have it obeyed; return what failed of that.

        Raises KafkaError(KAFKA_STORAGE_ERROR) with `what`; then nothing has changed.
        """
        plan = event(self.image())
        while plan.change is not None and not self._state.save(what, plan.change):
            plan = event(self.image())
        for name, configs in plan.configs.items():
            self._own.set_topic_configs(name, configs)
        failures: dict[TopicPartition, KafkaError] = {}
        for decision in plan.decisions.get(self._config.broker_id, ()):
            failures |= self._own.obey(decision).failures
        return failures
