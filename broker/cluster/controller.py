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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.broker.cluster.sections import (
    ASKED_ELECTIONS,
    BEING_DELETED,
    NO_PARTITIONS,
    NO_SECTIONS,
    Configs,
    Section,
)
from minibroker.broker.cluster.state import NO_REASSIGNMENTS, Change, TopicState
from minibroker.broker.replica.decisions import (
    Broker,
    Decision,
    LeaderAndIsr,
    PartitionState,
    StopReplica,
    TopicMetadata,
    UpdateMetadata,
)
from minibroker.broker.replica.isr import IsrChanges
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition

UNCLEAN = "unclean.leader.election.enable"

States = Mapping[TopicPartition, PartitionState]
Logs = Mapping[TopicPartition, Collection[int]]
Replica = tuple[TopicPartition, int]  # of a partition on a broker


class Image(NamedTuple):
    """The cluster as a controller sees it. `is_unclean` is the default of topics for unclean elections.

    Brokers that are `leaving` are about to end: they obey until then, and nothing is given to them.
    Replicas that are `offline` were in a log directory of a live broker that has failed.
    Where `is_shared`, other brokers have replicas too: a topic that is deleted stays until all its replicas are.
    """

    controller_id: int
    controller_epoch: int
    brokers: Mapping[int, Broker]  # alive
    topics: Mapping[str, TopicState]
    being_deleted: frozenset[str] = frozenset()
    is_unclean: bool = False
    is_shared: bool = False
    leaving: frozenset[int] = frozenset()
    offline: frozenset[Replica] = frozenset()

    @property
    def staying(self) -> Collection[int]:
        """The brokers that may lead and be in sync. As kafka 2.0.1 ControllerContext.liveBrokerIds."""
        return self.brokers.keys() - self.leaving if self.leaving else self.brokers.keys()

    @property
    def kept_topics(self) -> Mapping[str, TopicState]:
        """The topics that are not being deleted."""
        if not self.being_deleted:
            return self.topics
        return {name: topic for name, topic in self.topics.items() if name not in self.being_deleted}

    def of(self, topic_partition: TopicPartition) -> Image:
        """The image without the brokers whose replica of a partition is offline."""
        offline = {broker_id for each, broker_id in self.offline if each == topic_partition}
        if not offline:
            return self
        return self._replace(brokers={each: broker for each, broker in self.brokers.items() if each not in offline})

    def may_be_unclean(self, topic: TopicState) -> bool:
        own = topic.configs.get(UNCLEAN)
        return self.is_unclean if own is None else own.strip().lower() == "true"

    def state_of(self, topic_partition: TopicPartition) -> PartitionState | None:
        name = topic_partition.topic
        topic = None if name in self.being_deleted else self.topics.get(name)
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
    staying = image.staying
    alive = tuple(replica for replica in replicas if replica in staying)
    leader = alive[0] if alive else NO_LEADER
    return PartitionState(leader, 0, alive, tuple(replicas), controller_epoch=image.controller_epoch)


def create_topics(image: Image, topics: Mapping[str, TopicState]) -> Plan:
    """Create topics, or replace them by topics with more partitions.

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
    return Plan(
        Change(topics, no_longer_deleted(image, topics)),
        with_update(image, leaders(image, made, logs={}), topics, first=False),
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
    return Plan(Change(leaderless, no_longer_deleted(image, leaderless)))


def topics_appeared(image: Image, names: Collection[str]) -> Plan:
    """Other brokers have created topics: elect the first leaders of their partitions, where a replica is alive."""
    states = {
        TopicPartition(name, number): first_state(image, state)
        for name in names
        if name in image.kept_topics
        for number, state in image.topics[name].partitions.items()
        if not state.had_leader and any(replica in image.staying for replica in state.replicas)
    }
    if not states:
        return NOTHING
    configs = {name: image.topics[name].configs for name, _ in states}
    return elections(image, states, logs={})._replace(configs=configs)


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


def no_longer_deleted(image: Image, names: Collection[str]) -> Mapping[Section[Any], Any]:
    """The topics that are being deleted, less the ones that exist again; nothing if that changes nothing."""
    left = image.being_deleted.difference(names)
    return NO_SECTIONS if left == image.being_deleted else {BEING_DELETED: left}


def delete_topics(image: Image, names: Collection[str]) -> Plan:
    """Delete topics: no client sees them any more, then their replicas go.

    Their states go at once, or after all replicas of a cluster of several brokers (`replicas_deleted`): until then
    nobody leads them, and the name is taken. What moves does so no longer.
    """
    gone: dict[str, None] = dict.fromkeys(names)
    change = Change(gone, {BEING_DELETED: image.being_deleted | gone.keys()})
    if image.is_shared:
        states = {
            TopicPartition(name, number): successor(image, state, NO_LEADER, state.in_sync_replicas)._replace(
                replicas=logs_of(image.topics[name], number)
            )
            for name in names
            for number, state in image.topics[name].partitions.items()
        }
        topics = changed_topics(image, states)
        change = change._replace(
            topics={name: topic._replace(reassignments=NO_REASSIGNMENTS) for name, topic in topics.items()}
        )
    return Plan(change, with_update(image, deletions(image, names), gone, first=True))


def deletions(image: Image, names: Iterable[str]) -> dict[int, list[Decision]]:
    """Have each live broker delete its replicas of topics."""
    stopped: defaultdict[int, list[TopicPartition]] = defaultdict(list)
    for topic_partition, broker_id in replicas_to_delete(image, names):
        if broker_id in image.brokers:
            stopped[broker_id].append(topic_partition)
    return {broker_id: [stop(image, replicas)] for broker_id, replicas in stopped.items()}


def replicas_to_delete(image: Image, names: Iterable[str]) -> Iterator[Replica]:
    """The replicas of topics that have a log: those of partitions that have had a leader."""
    for name in names:
        for number, state in image.topics[name].partitions.items():
            if state.had_leader:
                for broker_id in logs_of(image.topics[name], number):
                    yield TopicPartition(name, number), broker_id


def logs_of(topic: TopicState, number: int) -> tuple[int, ...]:
    """The brokers that may have a log of a partition: also those from which it moves."""
    replicas, move = topic.partitions[number].replicas, topic.reassignments.get(number)
    return replicas if move is None else tuple(dict.fromkeys((*replicas, *move.removing)))


def stop(image: Image, replicas: Sequence[TopicPartition]) -> StopReplica:
    return StopReplica(image.controller_id, image.controller_epoch, True, replicas)


def replicas_deleted(image: Image, deleted: Collection[Replica]) -> Plan:
    """Brokers have deleted replicas, which are noted in `deleted`: forget topics without any replica left."""
    gone = [
        name
        for name in image.being_deleted & image.topics.keys()
        if all(replica in deleted for replica in replicas_to_delete(image, [name]))
    ]
    left = {BEING_DELETED: image.being_deleted.difference(gone)}
    return Plan(Change(dict.fromkeys(gone), left)) if gone else NOTHING


def delete_again(image: Image, replicas: Collection[Replica]) -> Plan:
    """Brokers could not delete these replicas: have them try again, unless the replicas count by now."""
    decisions: dict[int, list[Decision]] = {}
    for topic_partition, broker_id in sorted(replicas):
        state = image.state_of(topic_partition)
        if broker_id in image.brokers and (state is None or broker_id not in state.replicas):
            decisions.setdefault(broker_id, []).append(stop(image, [topic_partition]))
    return Plan(decisions=decisions)


def change_configs(image: Image, *, name: str, configs: Configs) -> Plan:
    """Replace the configs of a topic."""
    return Plan(Change({name: image.topics[name]._replace(configs=configs)}), configs={name: configs})


# -- brokers --------------------------------------------------------------------------------------------------------


def brokers_changed(
    image: Image,
    *,
    returned: Collection[int] = (),
    gone: Collection[int] = (),
    newest_epochs: Mapping[TopicPartition, int] | None = None,
) -> Plan:
    """Brokers have started or ended: elect leaders, and have the started ones take their roles.

    A leader that has started again leads in a new epoch, also larger than those in its logs (`newest_epochs`), so that
    no epoch of lost records is used again. Its followers stay in sync: it removes them itself
    if they do not come back.
    One that is gone may be alive again: its return is an event of its own, and comes next. As kafka 2.2
    KafkaController.BrokerChange (2.0.1 does not see that such a broker was gone).
    """
    if not image.brokers.keys().isdisjoint(gone):
        image = image._replace(brokers={each: broker for each, broker in image.brokers.items() if each not in gone})
    epochs = newest_epochs or {}
    changed: dict[TopicPartition, PartitionState] = {}
    repeated: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.kept_topics.items():
        for number, state in topic.partitions.items():
            topic_partition = TopicPartition(name, number)
            own_image = image.of(topic_partition)
            after = after_brokers(own_image, topic, state, returned, gone, epochs.get(topic_partition, -1))
            if after is not state:
                changed[topic_partition] = after
            elif any(replica in returned for replica in state.replicas):
                repeated[topic_partition] = state
    return roles_anew(image, changed, repeated, returned)


def log_directory_failed(image: Image, broker_id: int) -> Plan:
    """A log directory of a broker has failed: repeat its roles to it, so that its answer names the replicas that were
    there. As kafka 2.0.1 KafkaController.onBrokerLogDirFailure."""
    states = {
        TopicPartition(name, number): state
        for name, topic in image.kept_topics.items()
        for number, state in topic.partitions.items()
        if broker_id in state.replicas and state.had_leader
    }
    return Plan(decisions={broker_id: leaders(image, states).get(broker_id, [])})


def replicas_offline(image: Image, replicas: Collection[Replica]) -> Plan:
    """Replicas are offline, as the image has them: others lead, and they are not in sync any more.

    As kafka 2.0.1 KafkaController.onReplicasBecomeOffline.
    """
    states: dict[TopicPartition, PartitionState] = {}
    shown: set[str] = set()
    for topic_partition in {each for each, _ in replicas}:
        before = image.state_of(topic_partition)
        if before is None:
            continue
        shown.add(topic_partition.topic)
        gone = [broker_id for each, broker_id in replicas if each == topic_partition]
        topic = image.topics[topic_partition.topic]
        after = after_brokers(image.of(topic_partition), topic, before, (), gone, -1)
        if after is not before:
            states[topic_partition] = after
    if not shown:
        return NOTHING
    topics = changed_topics(image, states)
    seen = {name: topics.get(name, image.topics[name]) for name in shown}
    return Plan(Change(topics) if topics else None, with_update(image, leaders(image, states), seen, first=False))


def controller_elected(image: Image) -> Plan:
    """This broker controls from now on: repeat to all brokers what holds, and elect where a leader is gone.

    Followers that are gone stay in sync: their leaders remove them. As kafka 2.0.1
    KafkaController.onControllerFailover.
    """
    changed: dict[TopicPartition, PartitionState] = {}
    repeated: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.kept_topics.items():
        for number, state in topic.partitions.items():
            after = after_brokers(image, topic, state, (), (), -1)
            (repeated if after is state else changed)[TopicPartition(name, number)] = after
    return roles_anew(image, changed, repeated, image.brokers)


def roles_anew(image: Image, changed: States, repeated: States, brokers: Collection[int]) -> Plan:
    """Show all topics, and send the roles in changed and in `repeated` partitions.

    Also have `brokers` delete what else they have of topics that are being deleted.
    """
    topics = changed_topics(image, changed)
    logs = {each: state.replicas if state.had_leader else () for each, state in states_before(image, changed)}
    logs |= {each: state.replicas for each, state in repeated.items()}
    roles = leaders(image, {**changed, **repeated}, logs=logs)
    stops = deletions(image, image.being_deleted & image.topics.keys())
    for broker_id in stops.keys() & set(brokers):
        roles.setdefault(broker_id, []).extend(stops[broker_id])
    return Plan(Change(topics), with_update(image, roles, {**image.kept_topics, **topics}, first=True))


def states_before(image: Image, states: States) -> Iterator[tuple[TopicPartition, PartitionState]]:
    """The stored states of these partitions."""
    return ((each, image.topics[each.topic].partitions[each.partition]) for each in states)


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
    if not state.had_leader:
        has_replica = any(each in image.staying for each in state.replicas)
        return first_state(image, state, newest_epoch) if has_replica else state
    if state.leader in image.brokers:
        if state.leader not in returned and in_sync == state.in_sync_replicas:
            return state
        leader = state.leader
    else:
        leader = first_leader(image, topic, state)
        in_sync = tuple(each for each in state.in_sync_replicas if each in image.staying)
        if leader == NO_LEADER:
            in_sync = in_sync or state.in_sync_replicas  # one of them has all records
            if state.leader == NO_LEADER and in_sync == state.in_sync_replicas:
                return state
        elif leader not in in_sync:
            in_sync = (leader,)
    return successor(image, state, leader, in_sync, newest_epoch)


def first_leader(image: Image, topic: TopicState, state: PartitionState) -> int:
    """The first replica that is alive and in sync; without one, if the topic allows it, the first that is alive."""
    staying = image.staying
    alive = [each for each in state.replicas if each in staying]
    may_lead = [each for each in alive if each in state.in_sync_replicas]
    if not may_lead and image.may_be_unclean(topic):
        may_lead = alive
    return may_lead[0] if may_lead else NO_LEADER


def broker_altered(image: Image) -> Plan:
    """A broker has other endpoints: all brokers show them. As kafka 2.0.1 KafkaController.BrokerModifications."""
    return Plan(decisions=with_update(image, {}, {}, first=True))


def shut_down(image: Image, broker_id: int) -> Plan:
    """A broker is about to end: others lead, and what it follows it stops, before clients notice.

    A partition without another in-sync replica stays. As kafka 2.0.1 KafkaController.ControlledShutdown.
    """
    leaving = {*image.leaving, broker_id}
    states: dict[TopicPartition, PartitionState] = {}
    for name, topic in image.kept_topics.items():
        for number, state in topic.partitions.items():
            others = tuple(each for each in state.in_sync_replicas if each not in leaving)
            brokers = image.of(TopicPartition(name, number)).brokers
            live = [each for each in state.replicas if each in others and each in brokers]
            if live and (state.leader == broker_id or others != state.in_sync_replicas):
                leader = live[0] if state.leader == broker_id else state.leader
                states[TopicPartition(name, number)] = successor(image, state, leader, others)
    plan = elections(image, states, without=broker_id)
    if plan is NOTHING:
        return plan
    stopped = stop(image, list(states))._replace(delete_partitions=False)
    own = plan.decisions.get(broker_id, ())
    return plan._replace(decisions={**plan.decisions, broker_id: [*own, stopped]})


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
        own_image = image.of(topic_partition)
        error, message = refused_election(own_image, state, is_unclean=is_unclean)
        outcomes[topic_partition] = error, message
        if error is ErrorCode.NONE and state is not None:
            leader = next(each for each in state.replicas if each in own_image.staying)
            states[topic_partition] = successor(
                image, state, leader, (leader,) if is_unclean else state.in_sync_replicas
            )
    return elections(image, states), outcomes


def unclean_elections(image: Image, change: Change) -> list[TopicPartition]:
    """Return the partitions that a replica leads from now on which was not in sync."""
    return [
        TopicPartition(name, number)
        for name, topic in change.topics.items()
        if topic is not None and name in image.topics
        for number, state in topic.partitions.items()
        if (before := image.topics[name].partitions.get(number)) is not None
        and before.had_leader
        and state.leader != NO_LEADER
        and state.leader not in before.in_sync_replicas
    ]


def choose_leader(image: Image, topic_partition: TopicPartition, broker_id: int, *, is_unclean: bool) -> Plan:
    """Have one replica lead, as a test wants it; with `is_unclean` also one that lacks records, which are lost then.

    Raises KafkaError for a replica that cannot lead; nothing changes if it does already.
    """
    state = image.state_of(topic_partition)
    if state is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic_partition}")
    if state.leader == broker_id:
        return NOTHING
    if broker_id not in state.replicas:
        message = f"broker {broker_id} has no replica of {topic_partition}; its replicas: {listed(state.replicas)}"
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, message)
    if broker_id not in image.of(topic_partition).brokers:
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, f"broker {broker_id} is not alive; start it first")
    is_in_sync = broker_id in state.in_sync_replicas
    if not is_in_sync and not is_unclean:
        message = (
            f"broker {broker_id} is not in sync in {topic_partition}: {listed(state.in_sync_replicas)} are; wait until "
            "it is, or ask for an unclean election"
        )
        raise KafkaError(ErrorCode.REPLICA_NOT_AVAILABLE, message)
    in_sync_replicas = state.in_sync_replicas if is_in_sync else (broker_id,)
    return elections(image, {topic_partition: successor(image, state, broker_id, in_sync_replicas)})


def listed(broker_ids: Iterable[int]) -> str:
    return ", ".join(map(str, broker_ids)) or "none"


def refused_election(image: Image, state: PartitionState | None, *, is_unclean: bool) -> tuple[ErrorCode, str | None]:
    """Return the reason against an election; NONE if there is one."""
    if state is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist."
    if is_unclean:
        if state.leader in image.brokers:
            return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
        if any(each in image.staying for each in state.replicas):
            return ErrorCode.NONE, None
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "No replica of the partition is on a live broker."
    preferred = state.replicas[0]
    if state.leader == preferred:
        return ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition."
    if preferred not in image.staying:
        alive = ", ".join(map(str, image.staying))
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
    outcomes: dict[TopicPartition, int | None] = {}
    for topic_partition, asked in changes.items():
        outcomes[topic_partition] = None
        state, in_sync = image.state_of(topic_partition), tuple(asked.in_sync_replicas)
        if state is None or state.leader_epoch != asked.leader_epoch:
            continue
        if state.state_version == asked.state_version:
            state = state._replace(in_sync_replicas=in_sync, state_version=state.state_version + 1)
            states[topic_partition] = state
        if state.in_sync_replicas == in_sync:  # or it was stored before, and the answer was lost
            outcomes[topic_partition] = state.state_version
    topics = changed_topics(image, states)
    return (Plan(Change(topics), with_update(image, {}, topics, first=True)) if topics else NOTHING), outcomes


def elect_preferred(image: Image, asked: Collection[TopicPartition]) -> Plan:
    """Kafka's tool asks for these preferred leaders, in the state: elect each that may lead, in any case anew.

    As kafka 2.0.1 KafkaController.PreferredReplicaLeaderElection and PartitionStateMachine.
    """
    states = {
        each: successor(image, state, state.replicas[0], state.in_sync_replicas)
        for each in asked
        if (state := image.state_of(each)) is not None
        and state.replicas[0] in image.of(each).brokers
        and state.replicas[0] in state.in_sync_replicas
    }
    change = Change(changed_topics(image, states), {ASKED_ELECTIONS: NO_PARTITIONS})
    return elections(image, states)._replace(change=change)


def isr_changed(image: Image, names: Collection[str]) -> Plan:
    """Leaders have changed in-sync replicas of these topics in the state: all brokers show them.

    As kafka 2.0.1 KafkaController.IsrChangeNotification.
    """
    topics = {name: image.topics[name] for name in names if name in image.kept_topics}
    return Plan(decisions=with_update(image, {}, topics, first=True)) if topics else NOTHING


def rebalance_leaders(image: Image, *, percentage: int) -> Plan:
    """Elect the preferred leaders of each broker that should lead more than this share of its partitions, and does not.

    Not while a partition moves. As kafka 2.0.1 KafkaController.checkAndTriggerAutoLeaderRebalance.
    """
    topics = image.kept_topics
    if any(topic.reassignments for topic in topics.values()):
        return NOTHING
    preferred: defaultdict[int, list[tuple[TopicPartition, PartitionState]]] = defaultdict(list)
    for name, topic in topics.items():
        for number, state in topic.partitions.items():
            preferred[state.replicas[0]].append((TopicPartition(name, number), state))
    wanted: list[TopicPartition] = []
    for broker_id, partitions in preferred.items():
        led_by_others = [each for each, state in partitions if state.had_leader and state.leader != broker_id]
        if broker_id in image.staying and len(led_by_others) * 100 > percentage * len(partitions):
            wanted += led_by_others
    plan, _ = elect(image, wanted, is_unclean=False)
    return plan


# -- steps ----------------------------------------------------------------------------------------------------------


def successor(
    image: Image, state: PartitionState, leader: int, in_sync_replicas: tuple[int, ...], newest_epoch: int = -1
) -> PartitionState:
    epoch = max(state.leader_epoch, newest_epoch) + 1
    version = state.state_version + 1
    return PartitionState(leader, epoch, in_sync_replicas, state.replicas, version, image.controller_epoch)


def first_state(image: Image, state: PartitionState, newest_epoch: int = -1) -> PartitionState:
    """The state with which a partition gets its first leader, which loses no records: in the epoch that it has."""
    epoch, version = max(state.leader_epoch, newest_epoch + 1), state.state_version + 1
    return new_partition(image, state.replicas)._replace(leader_epoch=epoch, state_version=version)


def changed_topics(image: Image, states: States) -> dict[str, TopicState]:
    """The topics with these states of their partitions."""
    by_topic: defaultdict[str, dict[int, PartitionState]] = defaultdict(dict)
    for (name, number), state in states.items():
        by_topic[name][number] = state
    return {
        name: (topic := image.topics[name])._replace(partitions={**topic.partitions, **partitions})
        for name, partitions in by_topic.items()
    }


def elections(image: Image, states: States, *, without: int | None = None, logs: Logs | None = None) -> Plan:
    """Write the elected states; all replicas follow them, `without` a broker that is about to end."""
    topics = changed_topics(image, states)
    if not topics:
        return NOTHING
    roles = {each: decisions for each, decisions in leaders(image, states, logs=logs).items() if each != without}
    return Plan(Change(topics), with_update(image, roles, topics, first=False))


def replicas_of(
    image: Image, states: Iterable[tuple[TopicPartition, PartitionState]]
) -> dict[int, dict[TopicPartition, PartitionState]]:
    """The partitions of each live broker."""
    found: dict[int, dict[TopicPartition, PartitionState]] = {}
    for topic_partition, state in states:
        for broker_id in state.replicas:
            if broker_id in image.brokers and (topic_partition, broker_id) not in image.offline:
                found.setdefault(broker_id, {})[topic_partition] = state
    return found


def leaders(image: Image, states: States, *, logs: Logs | None = None) -> dict[int, list[Decision]]:
    """A LeaderAndIsr for each live broker with replicas of these partitions; another one for new partitions.

    `logs` are, by partition, the brokers that have had a log before; None for all.
    """
    roles: dict[int, list[Decision]] = {}
    for broker_id, its_states in replicas_of(image, states.items()).items():
        new = (
            {}
            if logs is None
            else {each: state for each, state in its_states.items() if broker_id not in logs.get(each, ())}
        )
        old = {each: state for each, state in its_states.items() if each not in new} if new else its_states
        roles[broker_id] = [
            LeaderAndIsr(image.controller_id, image.controller_epoch, partitions, is_new)
            for partitions, is_new in ((old, False), (new, True))
            if partitions
        ]
    return roles


def with_update(
    image: Image, roles: Mapping[int, Sequence[Decision]], topics: Mapping[str, TopicState | None], *, first: bool
) -> dict[int, list[Decision]]:
    """The decisions of each live broker, with the topics that change in its metadata before or after its roles."""
    seen = {name: None if topic is None else metadata_of(topic, image.offline) for name, topic in topics.items()}
    known = {name: each for name, each in seen.items() if each is None or each.partitions}
    update = [UpdateMetadata(image.controller_id, image.controller_epoch, image.brokers, known)]
    return {
        broker_id: [*update, *roles.get(broker_id, ())] if first else [*roles.get(broker_id, ()), *update]
        for broker_id in image.brokers
    }


def metadata_of(topic: TopicState, offline: Collection[Replica]) -> TopicMetadata:
    """A topic with the partitions that clients see."""
    partitions = topic.partitions
    if not all(state.had_leader for state in partitions.values()):
        partitions = {number: state for number, state in partitions.items() if state.had_leader}
    offline_replicas: dict[int, tuple[int, ...]] = {}
    for (name, number), broker_id in offline:
        if name == topic.name:
            offline_replicas[number] = (*offline_replicas.get(number, ()), broker_id)
    return TopicMetadata(topic.name, topic.topic_id, partitions, offline_replicas)
