"""Performs the plans of the controller: stores their changes, then has brokers obey their decisions.

In a cluster of several brokers the controller hears of changes that others have written, such as the in-sync replicas
of a leader, as news of the state (`on_news`). This broker obeys in a call, the others by `channels`.

The order makes a kill at any point harmless. A new topic is in the state before its first log exists: the next start
creates the log. A deleted topic leaves the state before its directories go; the state notes that directories may be
left, so that the next start removes them instead of taking them for a topic. All topics of one request are stored
together, all or none: one fsync instead of a hundred.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol

from minibroker.broker.cluster import controller
from minibroker.broker.cluster.controller import NOTHING, Image, Plan, Replica
from minibroker.broker.cluster.own_broker import OwnBroker
from minibroker.broker.cluster.sections import ASKED_ELECTIONS, BEING_DELETED, Section
from minibroker.broker.cluster.state import (
    BrokerGone,
    BrokerReturned,
    Change,
    ClusterState,
    ControllerChanged,
    LogDirectoryFailed,
    News,
)
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.replica.decisions import Broker, Decision, LeaderAndIsr, Obeyed, StopReplica
from minibroker.broker.replica.isr import IsrChanges, IsrOutcomes
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import reason_of

logger = logging.getLogger(__name__)

Failures = Mapping[TopicPartition, KafkaError]


class Channels(Protocol):
    """The ways to the other brokers."""

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        """Reach these brokers from now on, and no others."""

    def forget(self, broker_id: int) -> None:
        """A broker has ended: drop what it was to obey."""

    def send(self, broker_id: int, decisions: Sequence[Decision]) -> None:
        """Have a broker obey, in order, and until it has; return at once."""


class NoChannels:
    """The channels of a broker that is alone."""

    def set_brokers(self, brokers: Mapping[int, Broker]) -> None:
        pass

    def forget(self, broker_id: int) -> None:
        pass

    def send(self, broker_id: int, decisions: Sequence[Decision]) -> None:
        pass


class ControllerLoop:
    """The controller, if this broker is it; `own` is this broker as it obeys."""

    def __init__(self, *, config: KafkaConfig, state: ClusterState, own: OwnBroker) -> None:
        self._config = config
        self._state = state
        self._own = own
        self._channels: Channels = NoChannels()
        self._steps: list[Callable[[Image], Plan]] = [self._end_deletions]
        self._asked: dict[Section[Any], Callable[[Image, Any], Plan]] = {ASKED_ELECTIONS: controller.elect_preferred}
        self._ended: set[int] = set()  # brokers that have ended, and not returned
        self._leaving: set[int] = set()  # brokers that are about to end, and have not yet
        self._is_behind = False  # whether a plan was not stored, or was stored and not done
        self._offline: set[Replica] = set()  # in log directories of live brokers that have failed
        self._deleted: set[Replica] = set()  # of topics that are being deleted
        self._undeleted: set[Replica] = set()  # which their brokers could not delete
        self.unclean_elections = 0  # of partitions, that this broker has decided on as the controller

    def reach_by(self, channels: Channels) -> None:
        """Send decisions to the other brokers by these channels, from now on."""
        self._channels = channels

    def add_step(self, step: Callable[[Image], Plan]) -> None:
        """Take this step too whenever it is due (`go_on`), before the steps that are known already."""
        self._steps.insert(0, step)

    def obey(self, section: Section[Any], plan: Callable[[Image, Any], Plan]) -> None:
        """Plan for what Kafka's tools ask of the controller in a section of the state."""
        self._asked[section] = plan

    def image(self) -> Image:
        config, state = self._config, self._state
        return Image(
            config.broker_id,
            state.controller_epoch,
            state.brokers or {config.broker_id: Broker(config.advertised_endpoints, config.broker_rack)},
            state.topics,
            state.get(BEING_DELETED),
            config.unclean_leader_election_enable,
            state.is_shared,
            frozenset(self._leaving),
            frozenset(self._offline),
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

    def look(self) -> None:
        """Read what other brokers have written, so as not to decide on what the cluster was.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        try:
            self._state.look()
        except OSError as error:
            message = f"cannot read the state of the cluster: {reason_of(error)}"
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error

    @property
    def is_active(self) -> bool:
        """Whether this broker is the controller."""
        return self._state.is_controller

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
        self.look()
        if not self.is_active:
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "this broker is not the controller")
        if broker_id not in self.image().brokers:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not alive")
        self._leaving.add(broker_id)  # also if others cannot lead yet
        self.perform("the leaders", lambda image: controller.shut_down(image, broker_id))
        return [
            TopicPartition(name, number)
            for name, topic in self._state.topics.items()
            for number, state in topic.partitions.items()
            if state.leader == broker_id and len(state.replicas) > 1
        ]

    def save_isr(self, changes: IsrChanges) -> IsrOutcomes:
        """Save what leaders of this broker ask for. Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing.

        The leader changes its own set afterwards, as kafka 2.0.1 Partition.updateIsr. The controller hears of it.
        """
        outcomes: IsrOutcomes = {}

        def change(image: Image) -> Plan:
            nonlocal outcomes
            plan, outcomes = controller.change_isr(image, changes)
            return plan

        plan = self._stored("the in-sync replicas", change)
        if not self._state.is_shared:
            self._have_obeyed(plan)
            self.go_on()
        return outcomes

    def rebalance_leaders(self) -> None:
        """Have the preferred replicas lead, where a broker leads too few."""
        if self.is_active:
            percentage = self._config.leader_imbalance_per_broker_percentage
            self._react(partial(controller.rebalance_leaders, percentage=percentage))

    def go_on(self) -> None:
        """Take the steps that are due after in-sync replicas or brokers have changed, or a broker has deleted replicas.

        Raises KafkaError as `perform`.
        """
        is_due = True

        def next_step(image: Image) -> Plan:
            nonlocal is_due
            plan = next((plan for step in self._steps if (plan := step(image)) is not NOTHING), NOTHING)
            is_due = plan is not NOTHING
            return plan

        while is_due:
            self.perform("the next step", next_step)
        self._deleted = {replica for replica in self._deleted if replica[0].topic in self._state.get(BEING_DELETED)}

    def _end_deletions(self, image: Image) -> Plan:
        return controller.replicas_deleted(image, self._deleted)

    def on_answer(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        """Another broker has obeyed: a topic is gone once all brokers have deleted their replicas of it.

        Replicas that it cannot serve, for their log directory has failed, are offline.
        """
        self._note_deleted(broker_id, decision, obeyed)
        if isinstance(decision, LeaderAndIsr):
            self._take_offline(broker_id, decision, obeyed)
        if isinstance(decision, StopReplica):
            self._react(lambda image: NOTHING)

    def _take_offline(self, broker_id: int, decision: LeaderAndIsr, obeyed: Obeyed) -> None:
        codes = {each: obeyed.failures[each].code if each in obeyed.failures else None for each in decision.partitions}
        failed = {(each, broker_id) for each, code in codes.items() if code is ErrorCode.KAFKA_STORAGE_ERROR}
        new = failed - self._offline
        if new:
            self._offline |= new
            logger.warning("broker %d has lost a log directory, with %d of its replicas", broker_id, len(failed))
            self._react(partial(controller.replicas_offline, replicas=new))

    def _note_deleted(self, broker_id: int, decision: Decision, obeyed: Obeyed) -> None:
        if not self._state.is_shared or obeyed.error is not ErrorCode.NONE:
            return
        if isinstance(decision, StopReplica) and decision.delete_partitions:
            replicas = {(each, broker_id) for each in decision.partitions}
            failed = {(each, broker_id) for each in obeyed.failures}
            self._deleted |= replicas - failed
            self._undeleted |= replicas & failed

    def perform(self, what: str, event: Callable[[Image], Plan]) -> Failures:
        """Plan for an event until the plan is not stale, store it, and have it obeyed; return what failed here of that.

        Raises KafkaError: KAFKA_STORAGE_ERROR with `what`, or NOT_CONTROLLER if another broker is the controller; then
        nothing has changed.
        """
        return self._have_obeyed(self._stored(what, event, as_controller=True))

    def enter(self, what: str, event: Callable[[Image], Plan]) -> Failures:
        """Store what any broker may change: the controller hears of it. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        return self._have_obeyed(self._stored(what, event))

    def _stored(self, what: str, event: Callable[[Image], Plan], *, as_controller: bool = False) -> Plan:
        """Plan for an event, again if its change is stale, and store it."""
        self.look()
        while True:
            if as_controller and not self.is_active:
                raise KafkaError(ErrorCode.NOT_CONTROLLER)
            image = self.image()
            plan = event(image)
            if plan.change is None:
                return plan
            epoch = image.controller_epoch if as_controller else None
            unclean_elections = controller.unclean_elections(image, plan.change)
            try:
                is_stored = self._state.save(what, plan.change._replace(controller_epoch=epoch))
            except KafkaError:  # all brokers may read it all the same, where its fsync has failed
                self._is_behind = True
                raise
            if is_stored:
                self.unclean_elections += len(unclean_elections)
                return plan

    def _have_obeyed(self, plan: Plan) -> Failures:
        for name, configs in plan.configs.items():
            self._own.set_topic_configs(name, configs)
        failures: dict[TopicPartition, KafkaError] = {}
        for broker_id, decisions in plan.decisions.items():
            if broker_id != self._config.broker_id:
                self._channels.send(broker_id, decisions)
                continue
            for decision in decisions:
                obeyed = self._own.obey(decision)
                failures |= obeyed.failures
                self._note_deleted(broker_id, decision, obeyed)
        return failures

    # -- news -------------------------------------------------------------------------------------------------

    def on_news(self, news: News) -> None:
        """Act on what has changed in the state of a cluster, if this broker is its controller."""
        match news:
            case BrokerReturned(broker_id):
                self._ended.discard(broker_id)
                self._offline = {replica for replica in self._offline if replica[1] != broker_id}
            case BrokerGone(broker_id):
                self._ended.add(broker_id)
                self._leaving.discard(broker_id)
                self._offline = {replica for replica in self._offline if replica[1] != broker_id}
            case ControllerChanged():
                self._leaving.clear()
                self._offline.clear()
        if not self.is_active:
            if isinstance(news, ControllerChanged):
                self._channels.set_brokers({})  # send nothing while another broker controls
            return
        match news:
            case ControllerChanged():
                self._take_over()
            case BrokerReturned(broker_id):
                self._reach_brokers()
                self._react(partial(controller.brokers_changed, returned=[broker_id]))
            case BrokerGone(broker_id):
                self._channels.forget(broker_id)
                self._reach_brokers()
                self._react(partial(controller.brokers_changed, gone=[broker_id]))
            case LogDirectoryFailed(broker_id):
                self._react(partial(controller.log_directory_failed, broker_id=broker_id))
            case Change(controller_epoch=None) as change:
                self._on_change(change)

    def _on_change(self, change: Change) -> None:
        """Others have changed the state: brokers, or Kafka's tools."""
        if change.topics:
            self._react(partial(controller.topics_appeared, names=change.topics.keys()))
            self._react(partial(controller.isr_changed, names=change.topics.keys()))
        if any(change.sections.get(section) for section in (BEING_DELETED, *self._asked)):
            self._do_as_asked()

    def _do_as_asked(self) -> None:
        """Do what Kafka's tools have asked for in the state: deletions, moves and elections."""
        state = self._state
        deleted = [
            name
            for name in state.get(BEING_DELETED) & state.topics.keys()
            if any(each.leader != NO_LEADER for each in state.topics[name].partitions.values())
        ]
        if deleted:
            self._react(partial(controller.delete_topics, names=deleted))
        for section, plan in self._asked.items():
            if asked := state.get(section):
                self._react(partial(self._plan_as_asked, plan, asked))

    @staticmethod
    def _plan_as_asked(plan: Callable[[Image, Any], Plan], asked: Any, image: Image) -> Plan:
        return plan(image, asked)

    def catch_up(self) -> None:
        """Do again what could not be stored, or deleted, and what was stored although an error was told."""
        if self._is_behind and self.is_active:
            self._is_behind = False
            self._take_over()
        undeleted, self._undeleted = self._undeleted, set()
        if undeleted and self.is_active:
            self._react(partial(controller.delete_again, replicas=undeleted))

    def _take_over(self) -> None:
        """Begin as the controller. As kafka 2.0.1 KafkaController.onControllerFailover.

        Brokers that have ended, perhaps before the last controller acted, leave the in-sync replicas: in Kafka acks=all
        waits until they lag by replica.lag.time.max.ms.
        """
        self._reach_brokers()
        self._react(controller.controller_elected)
        if self._ended:
            self._react(partial(controller.brokers_changed, gone=frozenset(self._ended)))
        self._do_as_asked()

    def _reach_brokers(self) -> None:
        me = self._config.broker_id
        self._channels.set_brokers({each: broker for each, broker in self._state.brokers.items() if each != me})

    def _react(self, event: Callable[[Image], Plan]) -> None:
        try:
            for topic_partition, error in self.perform("the leaders", event).items():
                if error.code is not ErrorCode.STALE_CONTROLLER_EPOCH:  # a repeated decision
                    logger.error("%s: %s", topic_partition, error)
            self.go_on()
        except KafkaError as error:
            if error.code is ErrorCode.NOT_CONTROLLER:  # another one has been elected, while this broker stood still
                return
            self._is_behind = True
            logger.error("the controller cannot act: %s", error)
