"""The nodes of topics in ZooKeeper, as the topics of a ClusterState: read, watched and written.

Each topic has a node with its replicas, one with its configs, and one for the state of each partition. All of them are
watched, so what leaders and another controller write is seen at once.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from minibroker.broker.cluster.sections import (
    ASKED_ELECTIONS,
    ASKED_MOVES,
    BEING_DELETED,
    NO_MOVES,
    NO_PARTITIONS,
    Configs,
    Moves,
    Section,
)
from minibroker.broker.cluster.state import NO_REASSIGNMENTS, Change, TopicState
from minibroker.broker.cluster.stored_state import StoredState
from minibroker.broker.replica.decisions import PartitionState
from minibroker.broker.wings.zookeeper_nodes import nodes
from minibroker.broker.wings.zookeeper_nodes.nodes import NO_NODE
from minibroker.broker.wings.zookeeper_nodes.setting_nodes import entity_writes
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.zookeeper.messages import (
    Create,
    Delete,
    Exists,
    GetData,
    NodeData,
    ReplyCode,
    SetData,
    Stat,
    Write,
    ZooKeeperError,
    is_error,
)
from minibroker.zookeeper.session import ZooKeeperClient

NO_CONFIGS: Configs = {}
# Of a partition that has no state node yet: a controller makes it with version 0.
NO_STATE: Final = PartitionState(NO_LEADER, 0, (), (), NO_NODE)


OF_TOPICS: Final = (BEING_DELETED, ASKED_ELECTIONS, ASKED_MOVES)


class StaleChangeError(Exception):
    """A change does not follow what is known."""


class Known(NamedTuple):
    """A topic's node as it was read: its creation, its version, and the version of its configs."""

    czxid: int
    version: int
    config_version: int


class TopicNodes:
    """`known` gets the topics in the order of creation. `note` is called with each change of them that others have
    made, `take` with sections as they were read. All methods raise ConnectionLost and ZooKeeperError.
    """

    def __init__(
        self,
        client: ZooKeeperClient,
        known: StoredState,
        note: Callable[[Change], None],
        take: Callable[[Mapping[Section[Any], Any]], None],
    ) -> None:
        self._client = client
        self._state = known
        self._note = note
        self._take = take
        self.topics = known.topics
        self._moves_version = NO_NODE
        self._known: dict[str, Known] = {}

    # -- reading ----------------------------------------------------------------------------------------------

    def read(self) -> None:
        """Read all topics, and watch them."""
        self._read_names(everything=True)
        self._read_asked()

    def refresh(self, paths: Collection[str]) -> None:
        """Read what watches of these paths have shown."""
        if nodes.TOPICS in paths:
            self._read_names()
        below = [path.split("/")[3:] for path in paths if path.startswith(f"{nodes.TOPICS}/")]
        self.read_known([names[0] for names in below if len(names) == 1])
        self._read_states([TopicPartition(names[0], int(names[2])) for names in below if len(names) == 4])
        if nodes.DELETE_TOPICS in paths:
            self._read_being_deleted()
        if nodes.PREFERRED_ELECTION in paths:
            self._read_elections()
        if nodes.REASSIGNMENT in paths:
            self._read_moves()

    def read_again(self, change: Change) -> None:
        """Read what a change is about: it was stale."""
        self.read_topics([name for name, topic in change.topics.items() if topic is not None])
        self._read_names()
        self._read_asked()

    def _read_asked(self) -> None:
        self._read_being_deleted()
        self._read_elections()
        self._read_moves()

    def versions(self, change: Change) -> object:
        """The versions by which a change may be stale."""
        topics = {name: (self._known.get(name), self.topics.get(name)) for name in change.topics}
        return topics, self._state.get(BEING_DELETED), self._state.get(ASKED_ELECTIONS), self._moves_version

    def _read_names(self, *, everything: bool = False) -> None:
        names = self._client.children(nodes.TOPICS, watch=True)
        gone = self.topics.keys() - set(names)
        for name in gone:
            self._forget(name)
        if gone:
            self._note(Change(dict.fromkeys(gone)))
        self.read_topics(names if everything else [name for name in names if name not in self.topics])
        if everything:
            in_order = sorted(self.topics.items(), key=lambda item: self._known[item[0]].czxid)
            self.topics.clear()
            self.topics.update(in_order)

    def _forget(self, name: str) -> None:
        self.topics.pop(name, None)
        self._known.pop(name, None)

    def read_known(self, names: Iterable[str]) -> None:
        """Read those of these topics that are known, again."""
        self.read_topics([name for name in dict.fromkeys(names) if name in self.topics])

    def read_topics(self, names: Sequence[str], *, with_states: bool = True) -> None:
        """Read these topics; note the ones that differ as news, except for what this broker is about to note itself."""
        if not names:
            return
        found = self._client.data_of(map(nodes.topic_path, names), watch=True)
        config_nodes = self._client.data_of(nodes.config_path(f"topics/{name}") for name in names)
        before = {name: self.topics.get(name) for name in names}
        for name, node, config in zip(names, found, config_nodes, strict=True):
            if node is None:
                self._forget(name)
                continue
            known, czxid = before[name], node.stat.czxid
            if known is not None and self._known[name].czxid != czxid:
                self._forget(name)
                self._note(Change({name: None}))
                known = None
            configs, config_version = (NO_CONFIGS, NO_NODE) if config is None else nodes.configs_of(config)
            self._known[name] = Known(czxid, node.stat.version, config_version)
            replicas = nodes.TOPIC.decode(node.data)
            partitions = {} if known is None else known.partitions
            self.topics[name] = TopicState(
                name,
                {
                    number: partitions.get(number, NO_STATE)._replace(replicas=replicas[number])
                    for number in sorted(replicas)
                },
                configs,
                self._topic_id(name, czxid),
                NO_REASSIGNMENTS if known is None else known.reassignments,
            )
        if with_states:
            self._read_states(
                [
                    TopicPartition(name, number)
                    for name in names
                    if name in self.topics
                    for number in self.topics[name].partitions
                ],
                before,
            )

    def _topic_id(self, name: str, czxid: int) -> uuid.UUID:
        """The same at every broker of ours: Kafka 2.0.1 has no ids."""
        return uuid.uuid5(uuid.NAMESPACE_OID, f"{self._state.cluster_id}/{name}/{czxid}")

    def _read_states(
        self, topic_partitions: Sequence[TopicPartition], before: Mapping[str, TopicState | None] | None = None
    ) -> None:
        """Read the states of partitions; note as news the topics that differ from before."""
        names = dict.fromkeys(each.topic for each in topic_partitions)
        if before is None:
            before = {name: self.topics.get(name) for name in names}
        self._set_states([each for each in topic_partitions if self._has_partition(each)])
        changed = {name: self.topics.get(name) for name in before if self.topics.get(name) != before[name]}
        if changed:
            self._note(Change(changed))

    def _has_partition(self, topic_partition: TopicPartition) -> bool:
        topic = self.topics.get(topic_partition.topic)
        return topic is not None and topic_partition.partition in topic.partitions

    def _set_states(self, topic_partitions: Sequence[TopicPartition]) -> None:
        """Read and watch these states, as they are now."""
        read = self._states_of(topic_partitions)
        by_topic: dict[str, dict[int, PartitionState]] = {}
        for topic_partition, state in read.items():
            by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = state
        for name, states in by_topic.items():
            topic = self.topics[name]
            changed = {
                number: state._replace(replicas=topic.partitions[number].replicas) for number, state in states.items()
            }
            self.topics[name] = topic._replace(partitions={**topic.partitions, **changed})

    def _states_of(self, topic_partitions: Sequence[TopicPartition]) -> dict[TopicPartition, PartitionState]:
        found = dict.fromkeys(topic_partitions, NO_STATE)
        wanted = list(topic_partitions)
        while wanted:
            answers = self._client.ask_all([GetData(nodes.state_path(each), watch=True) for each in wanted])
            missing: list[TopicPartition] = []
            for topic_partition, answer in zip(wanted, answers, strict=True):
                if isinstance(answer, NodeData):
                    found[topic_partition] = state_of(answer)
                elif is_error(answer, ReplyCode.NO_NODE):
                    missing.append(topic_partition)
                elif isinstance(answer, ZooKeeperError):
                    raise answer
            # A watch for a node that is not there yet; one that has come meanwhile is read.
            stats = self._client.ask_all([Exists(nodes.state_path(each), watch=True) for each in missing])
            wanted = [each for each, stat in zip(missing, stats, strict=True) if isinstance(stat, Stat)]
        return found

    def _read_being_deleted(self) -> None:
        self._take({BEING_DELETED: frozenset(self._client.children(nodes.DELETE_TOPICS, watch=True))})

    def _read_elections(self) -> None:
        node = self._client.watched(nodes.PREFERRED_ELECTION)
        asked = NO_PARTITIONS if node is None else frozenset(nodes.PARTITIONS.decode(node.data))
        self._take({ASKED_ELECTIONS: asked})

    def _read_moves(self) -> None:
        """Read which partitions are to move; the ones that are no longer named there do not."""
        node = self._client.watched(nodes.REASSIGNMENT)
        asked = NO_MOVES if node is None else nodes.MOVES.decode(node.data)
        self._moves_version = NO_NODE if node is None else node.stat.version
        for name, topic in self.topics.items():
            if topic.reassignments:
                kept = {
                    number: move
                    for number, move in topic.reassignments.items()
                    if asked.get(TopicPartition(name, number)) == move.replicas
                }
                self.topics[name] = topic._replace(reassignments=kept)
        self._take({ASKED_MOVES: asked})

    # -- writing ----------------------------------------------------------------------------------------------

    def writes(self, change: Change) -> Iterator[Write]:
        """The writes that store a change. Raises StaleChangeError."""
        for name, topic in change.topics.items():
            known = self.topics.get(name)
            if topic is None:
                yield from self._writes_of_deletion(name)
            elif known is None:
                yield from self._writes_of_creation(topic)
            else:
                yield from self._writes_of_topic(known, topic)
        if (names := change.get(BEING_DELETED)) is not None:
            before = self._state.get(BEING_DELETED)
            yield from (Create(f"{nodes.DELETE_TOPICS}/{name}") for name in sorted(names - before))
            yield from (Delete(f"{nodes.DELETE_TOPICS}/{name}") for name in sorted(before - names))
        if change.get(ASKED_ELECTIONS) is not None and self._state.get(ASKED_ELECTIONS):
            yield Delete(nodes.PREFERRED_ELECTION)
        yield from self._writes_of_moves(change)

    def _writes_of_moves(self, change: Change) -> Iterator[Write]:
        """Keep the node of moves as they are: another controller goes on with them."""
        moves = self._moves_after(change)
        if moves == self._state.get(ASKED_MOVES):
            return
        if moves:
            yield nodes.written(nodes.REASSIGNMENT, nodes.MOVES.encode(moves), self._moves_version)
        else:
            yield Delete(nodes.REASSIGNMENT, self._moves_version)

    def _moves_after(self, change: Change) -> Moves:
        asked, before_change = change.get(ASKED_MOVES), self._state.get(ASKED_MOVES)
        moves = dict(before_change if asked is None else asked)
        for name, topic in change.topics.items():
            known = self.topics.get(name)
            before = NO_REASSIGNMENTS if known is None else known.reassignments
            after = NO_REASSIGNMENTS if topic is None else topic.reassignments
            for number in before.keys() - after.keys():
                moves.pop(TopicPartition(name, number), None)
            moves |= {TopicPartition(name, number): move.replicas for number, move in after.items()}
        return moves

    def _writes_of_creation(self, topic: TopicState) -> Iterator[Write]:
        path = nodes.config_path(f"topics/{topic.name}")
        data = nodes.CONFIG.encode(topic.configs)
        yield Create(path, data) if self._client.missing([path]) else SetData(path, data)
        yield Create(nodes.topic_path(topic.name), nodes.TOPIC.encode(replicas_of(topic)))
        states = {number: state for number, state in topic.partitions.items() if state.had_leader}
        if states:
            yield Create(nodes.partitions_path(topic.name))
        for number, state in states.items():
            topic_partition = TopicPartition(topic.name, number)
            yield Create(nodes.partition_path(topic_partition))
            yield Create(nodes.state_path(topic_partition), state_data(state))

    def _writes_of_topic(self, known: TopicState, topic: TopicState) -> Iterator[Write]:
        name, node = topic.name, self._known[topic.name]
        if topic.configs != known.configs:
            yield from entity_writes(f"topics/{name}", topic.configs, node.config_version)
        if (replicas := replicas_of(topic)) != replicas_of(known):
            yield SetData(nodes.topic_path(name), nodes.TOPIC.encode(replicas), node.version)
        missing: list[str] = []
        states: list[Write] = []
        for number, state in topic.partitions.items():
            before, topic_partition = known.partitions.get(number), TopicPartition(name, number)
            version = NO_NODE if before is None else before.state_version
            if topic.topic_id != known.topic_id:
                raise StaleChangeError  # of a topic that was deleted, and made again
            if state is before or (before is not None and state.state_version == version):
                continue
            if state.state_version != version + 1:
                raise StaleChangeError
            if version != NO_NODE:
                states.append(SetData(nodes.state_path(topic_partition), state_data(state), version))
            elif state.had_leader:
                missing.append(nodes.partition_path(topic_partition))
                states.append(Create(nodes.state_path(topic_partition), state_data(state)))
        if missing:
            yield from map(Create, self._client.missing([nodes.partitions_path(name), *missing]))
        yield from states

    def _writes_of_deletion(self, name: str) -> Iterator[Write]:
        """Delete a topic's nodes, from the bottom."""
        partitions = nodes.partitions_path(name)
        for number in self._client.children_if_any(partitions):
            path = f"{partitions}/{number}"
            yield from (Delete(f"{path}/{each}") for each in self._client.children_if_any(path))
            yield Delete(path)
        config = nodes.config_path(f"topics/{name}")
        paths = [partitions, nodes.topic_path(name), config]
        missing = self._client.missing(paths)
        yield from (Delete(path) for path in paths if path not in missing)

    def install(self, change: Change) -> None:
        """Take what was stored; watch what is new."""
        moves_before, moves = self._state.get(ASKED_MOVES), self._moves_after(change)
        for name, topic in change.topics.items():
            if topic is None:
                self._forget(name)
        written = [topic for topic in change.topics.values() if topic is not None]
        self.read_topics([topic.name for topic in written], with_states=False)
        for topic in written:
            if topic.name in self.topics:
                self._take_states(topic)
        sections = {section: value for section, value in change.sections.items() if section in OF_TOPICS}
        self._state.install(Change(sections={**sections, ASKED_MOVES: moves}))
        if moves != moves_before:
            self._read_moves()

    def _take_states(self, topic: TopicState) -> None:
        """Take the states that this broker has written; read those of partitions that had no node, to watch them."""
        known = self.topics[topic.name]
        written = {
            number: state._replace(replicas=before.replicas)
            for number, before in known.partitions.items()
            if (state := topic.partitions.get(number, before)).had_leader
        }
        new = [number for number, before in known.partitions.items() if before.state_version == NO_NODE]
        self.topics[topic.name] = known._replace(
            partitions={**known.partitions, **written}, reassignments=topic.reassignments
        )
        self._set_states([TopicPartition(topic.name, number) for number in new])


def replicas_of(topic: TopicState) -> dict[int, tuple[int, ...]]:
    return {number: state.replicas for number, state in topic.partitions.items()}


def state_data(state: PartitionState) -> bytes:
    return nodes.STATE.encode(
        nodes.StateNode(state.controller_epoch, state.leader, state.leader_epoch, state.in_sync_replicas)
    )


def state_of(answer: NodeData) -> PartitionState:
    """The state of a partition in its node; the replicas are in the topic's."""
    node = nodes.STATE.decode(answer.data)
    return PartitionState(
        node.leader, node.leader_epoch, node.in_sync_replicas, (), answer.stat.version, node.controller_epoch
    )
