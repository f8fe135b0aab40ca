"""Topics and sections as values and as JSON: what a file and a journal of several brokers have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from minibroker.broker.cluster.sections import OF_CORE, Section, text_pairs, undeclared
from minibroker.broker.cluster.state import Change, Reassignment, TopicState, kafka_id_text, parse_kafka_id
from minibroker.broker.replica.decisions import FIRST_CONTROLLER_EPOCH, PartitionState
from minibroker.storage import chance

Value = TypeVar("Value")

Document = dict[str, Any]
TOPICS = "topics"  # beside the names of sections in a document


class StoredState:
    """The state as a broker knows it, with the sections of the core and those of its wings; empty at first."""

    def __init__(self, sections: Iterable[Section[Any]]) -> None:
        self.sections = {each.name: each for each in (*OF_CORE, *sections)}
        self.cluster_id = ""
        self.topics: dict[str, TopicState] = {}
        self._values: dict[str, Any] = {}

    def get(self, section: Section[Value]) -> Value:
        """The value of a section; another object after each change."""
        value: Value = self._values.get(section.name, section.empty)
        return value

    def section_named(self, name: str) -> Section[Any]:
        return self.sections.get(name) or self.sections.setdefault(name, undeclared(name))

    def install(self, change: Change) -> None:
        """Take a change."""
        for name, topic in change.topics.items():
            if topic is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = topic
        self._values |= {section.name: value for section, value in change.sections.items()}

    def document_of(self, change: Change) -> Document:
        """Write a change for a journal: what differs from the state as it is. Raises LookupError for an undeclared
        section."""
        document: Document = {}
        for section, value in change.sections.items():
            if self.sections.get(section.name) is not section:
                raise LookupError(f"this broker does not declare the section {section}")
            document[section.name] = section.difference(self.get(section), value)
        if change.topics:
            document[TOPICS] = {
                name: None if topic is None else changes_of(self.topics.get(name), topic)
                for name, topic in change.topics.items()
            }
        return document

    def change_of(self, document: Mapping[str, Any], *, controller_epoch: int | None = None) -> Change:
        """Read a change as `document_of` has written it."""
        return Change(
            {
                name: None if topic is None else self.changed_topic(name, topic)
                for name, topic in document.get(TOPICS, {}).items()
            },
            {
                section: section.merged(self.get(section), value)
                for name, value in document.items()
                if name != TOPICS and (section := self.section_named(name))
            },
            controller_epoch,
        )

    def changed_topic(self, name: str, document: Mapping[str, Any]) -> TopicState:
        """A topic after a difference; partitions that it does not name stay."""
        known = self.topics.get(name)
        if known is None:
            return parse_topic(name, document)
        changed = parse_topic(name, {**topic_document(known), **document})
        kept = {number: each for number, each in known.reassignments.items() if number not in changed.partitions}
        return changed._replace(
            partitions={**known.partitions, **changed.partitions}, reassignments={**kept, **changed.reassignments}
        )


def topic_document(topic: TopicState) -> Document:
    return {
        "topic_id": kafka_id_text(topic.topic_id),
        "configs": topic.configs,
        "partitions": {
            str(number): {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.in_sync_replicas,
                "version": partition.state_version,
                "controller_epoch": partition.controller_epoch,
                **({"reassignment": topic.reassignments[number]._asdict()} if number in topic.reassignments else {}),
            }
            for number, partition in topic.partitions.items()
        },
    }


def changes_of(known: TopicState | None, topic: TopicState) -> Document:
    """The difference to the known topic: partitions, and all else as a whole."""
    document = topic_document(topic)
    if known is None:
        return document
    before = topic_document(known)
    changed = {
        number: each for number, each in document["partitions"].items() if each != before["partitions"].get(number)
    }
    rest = {name: value for name, value in document.items() if name != "partitions"}
    is_same = all(before.get(name) == value for name, value in rest.items())
    return {"partitions": changed} if is_same else {**rest, "partitions": changed}


def parse_topic(name: str, document: Mapping[str, Any]) -> TopicState:
    partitions = {
        int(number): PartitionState(
            int(partition["leader"]),
            int(partition["leader_epoch"]),
            tuple(map(int, partition["isr"])),
            tuple(map(int, partition["replicas"])),
            int(partition.get("version", 0)),
            int(partition.get("controller_epoch", FIRST_CONTROLLER_EPOCH)),
        )
        for number, partition in document["partitions"].items()
    }
    reassignments = {
        int(number): parse_reassignment(partition["reassignment"])
        for number, partition in document["partitions"].items()
        if "reassignment" in partition
    }
    topic_id = parse_kafka_id(document["topic_id"]) if "topic_id" in document else chance.new_uuid()
    return TopicState(name, partitions, text_pairs(document["configs"]), topic_id, reassignments)


def parse_reassignment(document: Mapping[str, Any]) -> Reassignment:
    replicas, original, removing = (tuple(map(int, document[name])) for name in ("replicas", "original", "removing"))
    return Reassignment(replicas, original, removing, bool(document["is_caught_up"]))
