"""Performs the plans of the controller: stores their changes, then has brokers obey their decisions.

The order makes a kill at any point harmless. A new topic is in the state before its first log exists: the next start
creates the log. A deleted topic leaves the state before its directories go; the state notes that directories may be
left, so that the next start removes them instead of taking them for a topic. All topics of one request are stored
together, all or none: one fsync instead of a hundred.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from minibroker.broker.cluster import controller, reassignment
from minibroker.broker.cluster.controller import NOTHING, Image, Plan, Replica
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.reassignment import Outcome, Wanted
from minibroker.broker.cluster.state import ClusterState
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import FIRST_CONTROLLER_EPOCH, Broker, Decision, Obeyed, StopReplica
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
        self._deleted: set[Replica] = set()  # of topics that are being deleted

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
            state.is_shared,
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
        self.go_on()

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
        self.go_on()
        return outcomes

    def reassign(self, wanted: Sequence[Wanted]) -> list[Outcome]:
        """Begin to move partitions to other brokers, None to move one back. Raises KafkaError as `perform`."""
        outcomes: list[Outcome] = []

        def begin(image: Image) -> Plan:
            nonlocal outcomes
            plan, outcomes = reassignment.reassign(image, wanted)
            return plan

        self.perform("the reassignment", begin)
        self.go_on()
        return outcomes

    def rebalance_leaders(self) -> None:
        """Have the preferred replicas lead, where a broker leads too few. Raises KafkaError as `perform`."""
        if self.is_active:
            percentage = self._config.leader_imbalance_per_broker_percentage
            self.perform("the leaders", partial(controller.rebalance_leaders, percentage=percentage))

    def go_on(self) -> None:
        """Take the steps of reassignments and deletions that are due: after in-sync replicas or brokers have changed,
        or a broker has deleted replicas. Raises KafkaError as `perform`."""
        is_due = True

        def next_step(image: Image) -> Plan:
            nonlocal is_due
            plan = reassignment.continue_reassignments(image)
            plan = controller.replicas_deleted(image, self._deleted) if plan is NOTHING else plan
            is_due = plan is not NOTHING
            return plan

        while is_due:
            self.perform("the reassignment", next_step)
        self._deleted = {replica for replica in self._deleted if replica[0].topic in self._state.being_deleted}

    def on_answer(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        """Another broker has obeyed: a topic is gone once all brokers have deleted their replicas of it.

        Raises KafkaError as `perform`.
        """
        self._note_deleted(broker_id, decision, obeyed)
        if isinstance(decision, StopReplica):
            self.go_on()

    def _note_deleted(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        if not self._state.is_shared or obeyed.error is not ErrorCode.NONE:
            return
        if isinstance(decision, StopReplica) and decision.delete_partitions:
            self._deleted |= {(each, broker_id) for each in decision.partitions if each not in obeyed.failures}

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
            obeyed = self._own.obey(decision)
            failures |= obeyed.failures
            self._note_deleted(self._config.broker_id, decision, obeyed)
        return failures
