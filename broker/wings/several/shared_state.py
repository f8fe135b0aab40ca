"""The state of a cluster of several brokers on one machine, in a directory that they share. A ClusterState.

    state        the journal: each change of the state is a line, in the order that the kernel gave them
    brokers/ID   held by the broker ID as long as it lives (`broker_locks.py`)
    state.ID.*   of broker ID, to continue the journal: a broker that starts writes a long journal anew
                 (`shared_journal.py` has the rule), which is no news for those that run

The journal is the arbiter. To change something is to append a line, and then to read up to it: all brokers read the
same lines in the same order, and refuse the same ones. A line is refused if what it knew is no longer so:

    a line with                    is refused if
    a state of a partition         its version does not follow the one before (as a conditional setData of ZooKeeper)
    a topic made, gone or set      the topic has changed since the place in the journal that the writer knew
    another section                the section has changed since then
    the epoch of a controller      a newer controller has been elected
    a controller                   its epoch does not follow the last one, or that controller lives
    the end of a broker            it has begun another life since

What ZooKeeper's ephemeral nodes and watches are is here a broker's life, begun and ended by a line, and `take_news`.
"""

from __future__ import annotations

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.broker.cluster.journal import Line
from minibroker.broker.cluster.member import StateOfSeveral
from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import (
    NO_CONTROLLER,
    BrokerGone,
    BrokerReturned,
    Change,
    ControllerChanged,
    News,
    kafka_id_text,
)
from minibroker.broker.cluster.stored_state import TOPICS
from minibroker.broker.replica.decisions import Broker
from minibroker.broker.starting import StartError
from minibroker.broker.wings.several.broker_locks import BrokerLocks
from minibroker.broker.wings.several.local_disk import network_file_system
from minibroker.broker.wings.several.shared_journal import SharedJournal
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import OTHER_FORM, reason_of
from minibroker.storage import chance
from minibroker.storage.files import disk

COMPACTED_BYTES = 64 * 1024  # a journal up to this size is left as it is


class SharedStateError(StartError):
    """The directory cannot be used; the message names it and the next step."""


class Life(NamedTuple):
    """A live broker; `incarnation` differs in each of its lives."""

    incarnation: str
    broker: Broker


class Known(NamedTuple):
    """The cluster as a broker has read it."""

    lives: Mapping[int, Life]
    controller_id: int
    controller_epoch: int
    everything: Change


class SharedState(StateOfSeveral):
    """`open` it, `register` this broker, and `close` it."""

    is_beside_kafka = False

    def __init__(self, directory: Path, broker_id: int, sections: Iterable[Section[Any]] = ()) -> None:
        super().__init__(sections)
        self._forget()
        self.directory = directory
        self.locks = BrokerLocks(directory / "brokers")
        self._broker_id = broker_id
        self._incarnation = ""
        self._line_count = 0
        self._outcomes: dict[str, bool] = {}  # of own lines that were read
        self._journal: SharedJournal
        self.is_open = False

    def _forget(self) -> None:
        """Know nothing of the journal."""
        super().__init__(self.sections.values())
        self.lives: dict[int, Life] = {}
        self._changed_at: dict[str, int] = {}  # by section or topic, the position of its last change

    # -- life -------------------------------------------------------------------------------------------------

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Begin this broker's life, and read the state; return the partitions that have moved to other brokers.

        Raises SharedStateError.
        """
        self.open()
        return [each for each in partitions_on_disk if each.topic in self.topics and not self._has(each)]

    def _has(self, topic_partition: TopicPartition) -> bool:
        state = self.topics[topic_partition.topic].partitions.get(topic_partition.partition)
        return state is not None and self._broker_id in state.replicas

    def open(self) -> None:
        """Begin this broker's life, and read the state. Raises SharedStateError."""
        try:
            disk.makedirs(self.directory / "brokers", exist_ok=True)
            kind = network_file_system(self.directory)
            if kind is not None:
                raise SharedStateError(
                    f"the cluster's directory {self.directory} is on a network ({kind}), where locks do not hold; name "
                    "one on a local disk: a cluster over several machines is Apache Kafka's"
                )
            if not self.locks.hold(self._broker_id):
                raise SharedStateError(
                    f"broker {self._broker_id} of the cluster in {self.directory} is running; choose another broker.id"
                )
            self._journal = SharedJournal(self.directory / "state")
            self.is_open = True
            self.look()
            if self._journal.position > COMPACTED_BYTES:
                self._compact()
            for name in disk.listdir(self.directory):
                if name.startswith(f"state.{self._broker_id}."):  # what continues the journal has another name by now
                    disk.unlink(self.directory / name)
        except OSError as error:
            raise SharedStateError(
                f"cannot use the cluster's directory {self.directory}: {reason_of(error)}; name another"
            ) from error
        if not self.cluster_id:
            self._put("the cluster's id", {"cluster_id": kafka_id_text(chance.new_uuid())})

    def register(self, broker: Broker) -> None:
        """Show this broker to the cluster, or its new endpoints. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        if not self.is_registered:
            self._incarnation = chance.new_uuid().hex
        self._put("this broker", life_line(self._broker_id, Life(self._incarnation, broker)))

    @property
    def is_registered(self) -> bool:
        """Whether this broker lives for the others: it was not taken for dead while it stood still."""
        life = self.lives.get(self._broker_id)
        return life is not None and life.incarnation == self._incarnation

    @property
    def brokers(self) -> Mapping[int, Broker]:
        """The live brokers by id."""
        return {broker_id: self.lives[broker_id].broker for broker_id in sorted(self.lives)}

    @property
    def is_controller(self) -> bool:
        """Whether this broker is the controller."""
        return self.controller_id == self._broker_id and self.is_registered

    def end_life_of(self, broker_id: int) -> None:
        """A broker was found dead: show that to all. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        life = self.lives.get(broker_id)
        if life is not None:
            self._put("the end of a broker", {"gone": {"id": broker_id, "incarnation": life.incarnation}})

    def claim_controller(self) -> bool:
        """Ask to be the controller; return whether this broker is it now. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        claim = {"id": self._broker_id, "epoch": self.controller_epoch + 1}
        return self._put("the controller", {"controller": claim})

    def resign_controller(self) -> None:
        """Have another broker elected, if this one is the controller. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        if self.is_controller:
            self._put("the controller", {"controller": {"id": NO_CONTROLLER, "epoch": self.controller_epoch}})

    def close(self) -> None:
        """End this broker's life. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        try:
            if self.is_registered:
                self.end_life_of(self._broker_id)
        finally:
            self.is_open = False
            self.locks.release()
            self._journal.close()

    # -- changes ----------------------------------------------------------------------------------------------

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False for a stale one. Raises KafkaError(KAFKA_STORAGE_ERROR), with `what`."""
        line: Line = {"after": self._journal.position, "change": self.document_of(change)}
        if change.controller_epoch is not None:
            line["controller_epoch"] = change.controller_epoch
        return self._put(what, line)

    def look(self) -> None:
        """Read what others have changed. Raises OSError, also for a line that no broker has written."""
        for position, line in self._journal.read():
            try:
                is_accepted = self._take(position, line)
            except OTHER_FORM as error:
                message = f"the line that ends at byte {position} is damaged"
                raise OSError(errno.EBADMSG, message, str(self._journal.path)) from error
            name = str(line.get("line"))
            if name in self._outcomes:
                self._outcomes[name] = is_accepted
        if self._journal.continued_by is not None:
            self._read_next()

    def _read_next(self) -> None:
        """Read the journal that continues the one that has ended: the news is what differs. Raises OSError."""
        self._journal = self._journal.next()
        news, before = self.take_news(), self._known()
        self._forget()
        try:
            self.look()
        finally:
            self._news = [*news, *news_between(before, self._known())]

    def _known(self) -> Known:
        everything = Change(self.topics, {section: self.get(section) for section in self.sections.values()})
        return Known(self.lives, self.controller_id, self.controller_epoch, everything)

    def _put(self, what: str, line: Line) -> bool:
        """Append a line, and read up to it; return whether it was accepted."""
        self._line_count += 1
        name = f"{self._broker_id}-{self._incarnation}-{self._line_count}"
        self._outcomes[name] = False
        try:
            while True:
                journal = self._journal
                journal.append({"line": name, **line})
                self.look()
                if self._outcomes[name] or journal is self._journal or "after" in line:
                    break  # else the journal may have ended before this line
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot store {what}: {reason_of(error)}") from error
        finally:
            is_accepted = self._outcomes.pop(name)
        return is_accepted

    # -- lines ------------------------------------------------------------------------------------------------

    def _take(self, position: int, line: Line) -> bool:
        """Apply a line; return False, and change nothing, for one that is refused."""
        if "change" in line:
            return self._take_change(position, line)
        if "broker" in line:
            return self._take_broker(line["broker"])
        if "gone" in line:
            return self._take_end(line["gone"])
        if "controller" in line:
            return self._take_controller(line["controller"])
        if "cluster_id" in line and not self.cluster_id:
            self.cluster_id = str(line["cluster_id"])
            self.controller_epoch = int(line.get("controller_epoch", 0))
            return True
        return False

    def _take_broker(self, document: Line) -> bool:
        broker_id, life = int(document["id"]), Life(str(document["incarnation"]), parse_broker(document["broker"]))
        before = self.lives.get(broker_id)
        self.lives[broker_id] = life
        if before is not None and before.incarnation != life.incarnation:
            self._news.append(BrokerGone(broker_id))
            self._vacate(broker_id)
        self._news.append(BrokerReturned(broker_id))
        return True

    def _take_end(self, document: Line) -> bool:
        broker_id = int(document["id"])
        life = self.lives.get(broker_id)
        if life is None or life.incarnation != document["incarnation"]:
            return False
        del self.lives[broker_id]
        self._news.append(BrokerGone(broker_id))
        self._vacate(broker_id)
        return True

    def _vacate(self, broker_id: int) -> None:
        if self.controller_id == broker_id:
            self.controller_id = NO_CONTROLLER
            self._news.append(ControllerChanged(NO_CONTROLLER))

    def _take_controller(self, document: Line) -> bool:
        controller_id, epoch = int(document["id"]), int(document["epoch"])
        if controller_id == NO_CONTROLLER:
            if epoch != self.controller_epoch or self.controller_id == NO_CONTROLLER:
                return False
        elif (
            epoch != self.controller_epoch + 1 or self.controller_id != NO_CONTROLLER or controller_id not in self.lives
        ):
            return False
        self.controller_id, self.controller_epoch = controller_id, epoch
        self._news.append(ControllerChanged(controller_id))
        return True

    def _take_change(self, position: int, line: Line) -> bool:
        document, after = line["change"], int(line["after"])
        controller_epoch = line.get("controller_epoch")
        topics = document.get(TOPICS, {})
        sections = [name for name in document if name != TOPICS]
        if (
            controller_epoch not in (None, self.controller_epoch)
            or any(self._changed_at.get(name, 0) > after for name in sections)
            or not all(self._fits(name, topic, after) for name, topic in topics.items())
        ):
            return False
        change = self.change_of(document, controller_epoch=controller_epoch)
        self.install(change)
        whole = [name for name, each in topics.items() if each is None or each.keys() != {"partitions"}]
        self._changed_at |= dict.fromkeys((*sections, *map(topic_key, whole)), position)
        self._news.append(change)
        return True

    def _fits(self, name: str, document: Line | None, after: int) -> bool:
        known = self.topics.get(name)
        if document is None or document.keys() != {"partitions"}:
            if self._changed_at.get(topic_key(name), 0) > after:
                return False
            if document is None:
                return known is not None
        if known is None:
            return "topic_id" in document
        return all(
            (before := known.partitions.get(number)) is None
            or state.state_version == before.state_version + 1
            or state == before  # only its reassignment differs
            for number, state in self.changed_topic(name, document).partitions.items()
            if str(number) in document["partitions"]
        )

    def _compact(self) -> None:
        """Have a new journal with the whole state continue this one, if no broker changes it meanwhile.

        Raises OSError.
        """
        lives, controller_id, epoch, everything = self._known()
        nothing = SharedState(self.directory, self._broker_id, self.sections.values())
        elections = [{"controller": {"id": controller_id, "epoch": epoch}}] if controller_id != NO_CONTROLLER else []
        lines = [
            {"cluster_id": self.cluster_id, "controller_epoch": epoch - len(elections)},
            {"after": 0, "change": nothing.document_of(everything)},
            *(life_line(broker_id, life) for broker_id, life in lives.items()),
            *elections,
        ]
        self._journal.compact(f"state.{self._broker_id}.{chance.new_uuid().hex}", lines)
        self.look()


def news_between(before: Known, now: Known) -> Iterator[News]:
    """Yield the news of the lines between, which were not read."""
    for broker_id, life in before.lives.items():
        if broker_id not in now.lives or now.lives[broker_id].incarnation != life.incarnation:
            yield BrokerGone(broker_id)
    for broker_id, life in now.lives.items():
        if before.lives.get(broker_id) != life:
            yield BrokerReturned(broker_id)
    if (before.controller_id, before.controller_epoch) != (now.controller_id, now.controller_epoch):
        yield ControllerChanged(now.controller_id)
    was, now_is = before.everything, now.everything
    topics = {name: topic for name, topic in now_is.topics.items() if was.topics.get(name) != topic}
    topics |= dict.fromkeys(was.topics.keys() - now_is.topics.keys())
    sections = {section: value for section, value in now_is.sections.items() if value != was.get(section)}
    if topics or sections:
        yield Change(topics, sections)


def topic_key(name: str) -> str:
    """Tells a topic from a section, in one dict."""
    return f"topic {name}"


def broker_document(broker: Broker) -> Line:
    return {"endpoints": {name: list(address) for name, address in broker.endpoints.items()}, "rack": broker.rack}


def life_line(broker_id: int, life: Life) -> Line:
    return {"broker": {"id": broker_id, "incarnation": life.incarnation, "broker": broker_document(life.broker)}}


def parse_broker(document: Line) -> Broker:
    endpoints = {str(name): (str(host), int(port)) for name, (host, port) in document["endpoints"].items()}
    return Broker(endpoints, document["rack"])
