"""The controller: from what the cluster is and what has happened, which states to write and which decisions to send.

Each function is an event; it returns a plan and does nothing. `controller_loop.py` performs plans. A plan's decisions
hold once its change is stored; to each broker they go in order, UpdateMetadata before a role that needs to know the
brokers. As kafka 2.0.1 KafkaController, PartitionStateMachine and ReplicaStateMachine, without their states: an event
compares the leaders with the brokers that are alive.

Replicas may be assigned to unknown brokers. A partition that never had a leader is in the state of the cluster, but as
in Kafka not in its metadata.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from minibroker.broker.cluster.state import Change, Configs, TopicState
from minibroker.broker.replica.decisions import (
    NO_LEADER,
    Broker,
    Decision,
    LeaderAndIsr,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.replica.isr import IsrChanges
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import TopicPartition

UNCLEAN = "unclean.leader.election.enable"

States = Mapping[TopicPartition, PartitionState]


class Image(NamedTuple):
    """The cluster as a controller sees it. `is_unclean` is the default of topics for unclean elections."""

    controller_id: int
    controller_epoch: int
    brokers: Mapping[int, Broker]  # alive
    topics: Mapping[str, TopicState]
    being_deleted: frozenset[str] = frozenset()
    is_unclean: bool = False

    def may_be_unclean(self, topic: TopicState) -> bool:
        own = topic.configs.get(UNCLEAN)
        return self.is_unclean if own is None else own.strip().lower() == "true"

    def state_of(self, topic_partition: TopicPartition) -> PartitionState | None:
        topic = self.topics.get(topic_partition.topic)
        return None if topic is None else topic.partitions.get(topic_partition.partition)


class Plan(NamedTuple):
    """A change to store, if there is one, and then the decisions of each broker, in their order."""

    change: Change | None = None
    decisions: Mapping[int, Sequence[Decision]] = {}
    configs: Mapping[str, Configs] = {}  # of topics, new for all brokers, before the decisions


NOTHING: Final = Plan()


# -- topics ---------------------------------------------------------------------------------------------------------


def new_partition(image: Image, replicas: Sequence[int]) -> PartitionState:
    """The first state of a partition: the first live replica leads, and all that are alive are in sync."""
    alive = tuple(replica for replica in replicas if replica in image.brokers)
    leader = alive[0] if alive else NO_LEADER
    return PartitionState(leader, 0, alive, tuple(replicas), controller_epoch=image.controller_epoch)


def create_topics(image: Image, topics: Mapping[str, TopicState]) -> Plan:
    """Create topics, or replace them by those that have more partitions.

    What is stored of a topic meanwhile stays: in-sync replicas, or the topic of that name which another broker made.
    """
    topics = created(image, topics)
    made: dict[TopicPartition, PartitionState] = {}
    for name, topic in topics.items():
        known = image.topics[name].partitions if name in image.topics else {}
        made |= {
            TopicPartition(name, number): state
            for number, state in sorted(topic.partitions.items())
            if number not in known
        }
    change = Change(topics, image.being_deleted - topics.keys())
    return Plan(
        change,
        with_update(image, leaders(image, made, is_new=True), topics, first=False),
        {name: topic.configs for name, topic in topics.items()},
    )


def enter_topics(image: Image, topics: Mapping[str, TopicState]) -> Plan:
    """Create topics at a broker that is not the controller: that one elects their leaders (`topics_appeared`)."""
    leaderless = {
        name: topic._replace(
            partitions={
                number: state._replace(leader=NO_LEADER, in_sync_replicas=())
                for number, state in topic.partitions.items()
            }
        )
        for name, topic in created(image, topics).items()
    }
    return Plan(Change(leaderless, image.being_deleted - leaderless.keys()))


def created(image: Image, topics: Mapping[str, TopicState]) -> dict[str, TopicState]:
    """The topics as they are to be stored: none of a name that another topic has, and no partition that is there."""
    found: dict[str, TopicState] = {}
    for name, topic in topics.items():
        stored = image.topics.get(name)
        if stored is None:
            found[name] = topic
        elif stored.topic_id == topic.topic_id:
            found[name] = stored._replace(partitions={**topic.partitions, **stored.partitions})
    return found


def delete_topics(image: Image, names: Collection[str]) -> Plan:
    """Delete topics: no client sees them any more, then their replicas go."""
    gone: dict[str, None] = dict.fromkeys(names)
    stopped = replicas_of(
        image,
        (
            (TopicPartition(name, number), state)
            for name in names
            for number, state in image.topics[name].partitions.items()
            if state.had_leader
        ),
    )
    stops = {
        broker_id: [StopReplica(image.controller_id, image.controller_epoch, True, list(states))]
        for broker_id, states in stopped.items()
    }
    return Plan(Change(gone, image.being_deleted | gone.keys()), with_update(image, stops, gone, first=True))


def change_configs(image: Image, *, name: str, configs: Configs) -> Plan:
    """Replace the configs of a topic."""
    return Plan(Change({name: image.topics[name]._replace(configs=configs)}), configs={name: configs})


def topics_changed(image: Image, names: Collection[str]) -> Plan:
    """Brokers have written topics into the state: leaders their in-sync replicas, and others topics without leaders."""
    states: dict[TopicPartition, PartitionState] = {}
    for name in names:
        topic = image.topics.get(name)
        for number, state in topic.partitions.items() if topic is not None else ():
            first = new_partition(image, state.replicas)
            if not state.had_leader and first.leader != NO_LEADER:
                states[TopicPartition(name, number)] = first._replace(state_version=state.state_version + 1)
    changed = changed_topics(image, states)
    seen = {name: changed.get(name) or image.topics.get(name) for name in names}
    decisions = with_update(image, leaders(image, states, is_new=True), seen, first=False)
    return Plan(Change(changed) if changed else None, decisions)


# -- brokers --------------------------------------------------------------------------------------------------------


def brokers_changed(
    image: Image,
    *,
    returned: Collection[int] = (),
    gone: Collection[int] = (),
    newest_epochs: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    """Brokers have started or ended: elect leaders, and have those that started take their roles.

    A leader that has started again leads in a new epoch, also larger than those in its logs (`newest_epochs`), so that
    no epoch of lost records is used again. Its followers stay in sync: it removes them itself
    if they do not come back.
    """
    epochs = newest_epochs or {}
    changed: dict[str, TopicState] = {}
    states: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.topics.items():
        partitions = {}
        for number, state in topic.partitions.items():
            topic_partition = TopicPartition(name, number)
            after = after_brokers(image, topic, state, returned, gone, epochs.get(topic_partition, -1))
            if after is not state:
                partitions[number] = states[topic_partition] = after
            elif any(replica in returned for replica in state.replicas):
                states[topic_partition] = state
        if partitions:
            changed[name] = topic._replace(partitions={**topic.partitions, **partitions})
    roles = leaders(image, states)
    return Plan(Change(changed), with_update(image, roles, {**image.topics, **changed}, first=True))


def controller_elected(image: Image) -> Plan:
    """This broker has become the controller: each broker gets the whole cluster, and its roles, in case it lacks some.

    Partitions without a leader get one, if they can. As kafka 2.0.1 KafkaController.onControllerFailover.
    """
    changed: dict[str, TopicState] = {}
    states: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.topics.items():
        partitions = {}
        for number, state in topic.partitions.items():
            after = after_brokers(image, topic, state, (), (), -1)
            states[TopicPartition(name, number)] = after
            if after is not state:
                partitions[number] = after
        if partitions:
            changed[name] = topic._replace(partitions={**topic.partitions, **partitions})
    roles = leaders(image, states)
    change = Change(changed) if changed else None
    return Plan(change, with_update(image, roles, {**image.topics, **changed}, first=True))


def after_brokers(
    image: Image,
    topic: TopicState,
    state: PartitionState,
    returned: Collection[int],
    gone: Collection[int],
    newest_epoch: int,
) -> PartitionState:
    """The state of a partition once brokers have started or ended; the same object if that changes nothing."""
    in_sync = tuple(each for each in state.in_sync_replicas if each not in gone)
    if state.leader in image.brokers:
        if state.leader not in returned and in_sync == state.in_sync_replicas:
            return state
        leader = state.leader
    else:
        leader = first_leader(image, topic, state)
        in_sync = tuple(each for each in state.in_sync_replicas if each in image.brokers)
        if leader == NO_LEADER:
            in_sync = in_sync or state.in_sync_replicas  # one of them has all records
            if state.leader == NO_LEADER and in_sync == state.in_sync_replicas:
                return state
        elif not state.in_sync_replicas:
            in_sync = tuple(each for each in state.replicas if each in image.brokers)
        elif leader not in in_sync:
            in_sync = (leader,)
    return successor(image, state, leader, in_sync, newest_epoch)


def first_leader(image: Image, topic: TopicState, state: PartitionState) -> int:
    """The first replica that is alive and in sync; without one, if the topic allows it, the first that is alive.

    Nothing is lost by the first leader of a partition.
    """
    alive = [each for each in state.replicas if each in image.brokers]
    may_lead = [each for each in alive if each in state.in_sync_replicas]
    if not may_lead and (not state.in_sync_replicas or image.may_be_unclean(topic)):
        may_lead = alive
    return may_lead[0] if may_lead else NO_LEADER


def broker_altered(image: Image) -> Plan:
    """A broker has other endpoints: all brokers show them. As kafka 2.0.1 KafkaController.BrokerModifications."""
    return Plan(decisions=with_update(image, {}, {}, first=True))


def shut_down(image: Image, broker_id: int) -> Plan:
    """A broker is about to end: others lead, and what it follows it stops, before clients notice.

    A partition without another in-sync replica stays. As kafka 2.0.1 KafkaController.ControlledShutdown.
    """
    states: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.topics.items():
        for number, state in topic.partitions.items():
            others = tuple(each for each in state.in_sync_replicas if each != broker_id)
            live = [each for each in state.replicas if each in others and each in image.brokers]
            if live and (state.leader == broker_id or others != state.in_sync_replicas):
                leader = live[0] if state.leader == broker_id else state.leader
                states[TopicPartition(name, number)] = successor(image, state, leader, others)
    plan = elections(image, states, without=broker_id)
    if plan is NOTHING:
        return plan
    stop = StopReplica(image.controller_id, image.controller_epoch, False, list(states))
    own = plan.decisions.get(broker_id, ())
    return plan._replace(decisions={**plan.decisions, broker_id: [*own, stop]})


# -- elections and in-sync replicas ---------------------------------------------------------------------------------


def elect(
    image: Image, topic_partitions: Iterable[TopicPartition], *, is_unclean: bool
) -> tuple[Plan, dict[TopicPartition, tuple[ErrorCode, str | None]]]:
    """Elect the preferred leader of each partition, or with `is_unclean` any, also one that lacks records.

    Return the outcomes, too. As Kafka's KafkaController.processReplicaLeaderElection (2.2 and later).
    """
    states: dict[TopicPartition, PartitionState] = {}
    outcomes: dict[TopicPartition, tuple[ErrorCode, str | None]] = {}
    for topic_partition in topic_partitions:
        state = image.state_of(topic_partition)
        error, message = refused_election(image, state, is_unclean=is_unclean)
        outcomes[topic_partition] = error, message
        if error is ErrorCode.NONE and state is not None:
            leader = next(each for each in state.replicas if each in image.brokers)
            states[topic_partition] = successor(
                image, state, leader, (leader,) if is_unclean else state.in_sync_replicas
            )
    return elections(image, states), outcomes


def refused_election(image: Image, state: PartitionState | None, *, is_unclean: bool) -> tuple[ErrorCode, str | None]:
    """Return the reason against an election; NONE if there is one."""
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if is_unclean:
        if state.leader in image.brokers:
            return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        if any(each in image.brokers for each in state.replicas):
            return ErrorCode.NONE, None
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is on a live broker."
    preferred = state.replicas[0]
    if state.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if preferred not in image.brokers:
        alive = ", ".join(map(str, image.brokers))
        message = f"The preferred leader, broker {preferred}, is not alive; broker {alive} is."
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message
    if preferred not in state.in_sync_replicas:
        message = f"The preferred leader, broker {preferred}, is not in sync."
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, message
    return ErrorCode.NONE, None


def change_isr(image: Image, changes: IsrChanges) -> tuple[Plan, dict[TopicPartition, int | None]]:
    """Leaders ask for other in-sync replicas. Return the version of each new state, None for one that is stale.

    The leader epoch stays: the leader itself has decided.
    """
    states: dict[TopicPartition, PartitionState] = {}
    for topic_partition, asked in changes.items():
        state = image.state_of(topic_partition)
        if state is not None and (state.leader_epoch, state.state_version) == asked[1:]:
            states[topic_partition] = state._replace(
                in_sync_replicas=tuple(asked.in_sync_replicas), state_version=state.state_version + 1
            )
    outcomes = {each: states[each].state_version if each in states else None for each in changes}
    topics = changed_topics(image, states)
    return (Plan(Change(topics), with_update(image, {}, topics, first=True)) if topics else NOTHING), outcomes


# -- steps ----------------------------------------------------------------------------------------------------------


def successor(
    image: Image, state: PartitionState, leader: int, in_sync_replicas: tuple[int, ...], newest_epoch: int = -1
) -> PartitionState:
    epoch = max(state.leader_epoch, newest_epoch) + 1
    version = state.state_version + 1
    return PartitionState(leader, epoch, in_sync_replicas, state.replicas, version, image.controller_epoch)


def changed_topics(image: Image, states: States) -> dict[str, TopicState]:
    """The topics with these states of their partitions."""
    by_topic: defaultdict[str, dict[int, PartitionState]] = defaultdict(dict)
    for (name, number), state in states.items():
        by_topic[name][number] = state
    return {
        name: (topic := image.topics[name])._replace(partitions={**topic.partitions, **partitions})
        for name, partitions in by_topic.items()
    }


def elections(image: Image, states: States, without: int | None = None) -> Plan:
    """Write the elected states; all replicas follow them, `without` a broker that is about to end."""
    topics = changed_topics(image, states)
    if not topics:
        return NOTHING
    roles = {each: decisions for each, decisions in leaders(image, states).items() if each != without}
    return Plan(Change(topics), with_update(image, roles, topics, first=False))


def replicas_of(
    image: Image, states: Iterable[tuple[TopicPartition, PartitionState]]
) -> dict[int, dict[TopicPartition, PartitionState]]:
    """The partitions of each live broker."""
    found: dict[int, dict[TopicPartition, PartitionState]] = {}
    for topic_partition, state in states:
        for broker_id in state.replicas:
            if broker_id in image.brokers:
                found.setdefault(broker_id, {})[topic_partition] = state
    return found


def leaders(image: Image, states: States, *, is_new: bool = False) -> dict[int, list[Decision]]:
    """A LeaderAndIsr for each live broker with replicas of these partitions."""
    return {
        broker_id: [LeaderAndIsr(image.controller_id, image.controller_epoch, its_states, is_new)]
        for broker_id, its_states in replicas_of(image, states.items()).items()
    }


def with_update(
    image: Image, roles: Mapping[int, Sequence[Decision]], topics: Mapping[str, TopicState | None], *, first: bool
) -> dict[int, list[Decision]]:
    """The decisions of each live broker, with the topics that change in its metadata before or after its roles."""
    seen = {name: None if topic is None else metadata_of(topic) for name, topic in topics.items()}
    known = {name: each for name, each in seen.items() if each is None or each.partitions}
    update = [UpdateMetadata(image.controller_id, image.controller_epoch, image.brokers, known)]
    return {
        broker_id: [*update, *roles.get(broker_id, ())] if first else [*roles.get(broker_id, ()), *update]
        for broker_id in image.brokers
    }


def metadata_of(topic: TopicState) -> TopicMetadata:
    """A topic with the partitions that clients see."""
    partitions = topic.partitions
    if not all(state.had_leader for state in partitions.values()):
        partitions = {number: state for number, state in partitions.items() if state.had_leader}
    return TopicMetadata(topic.name, topic.topic_id, partitions)
