"""The file for the state that Kafka keeps in ZooKeeper: `minibroker.json` in the data directory.

One JSON object: the cluster id, the next block of producer ids, changed broker settings (by broker id, those for all
brokers under ""), the configs of groups, the quotas of clients, the levels of features, the id, configs and partitions
of each topic, the offsets of OffsetCommit v0, the ACLs, the SCRAM credentials of users, and the topics of which
directories may be left because the broker ended during their deletion. It is written whole, to a temporary file that
is fsynced and renamed; a change of few topics among many is written to `change_journal.py`'s file first. Both happen
before the change is answered, and a broker that has stopped in order leaves one file. Apache Kafka ignores it; if it is
missing (Apache Kafka wrote the data directory), topics are read off the partition directories, with their ids where
there are some (Kafka 2.8). A topic of an older file, which has no ids, gets one at load. The versions of partition
states begin at 0 with each start.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import uuid
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

from minibroker.broker.cluster.change_journal import ChangeJournal
from minibroker.broker.cluster.state import (
    Change,
    Configs,
    FeatureLevels,
    OldOffsets,
    Reassignment,
    Sections,
    TopicState,
    kafka_id_text,
    parse_kafka_id,
)
from minibroker.broker.replica.decisions import FIRST_CONTROLLER_EPOCH, Broker, PartitionState
from minibroker.broker.wings.quotas.client_quotas import Quotas
from minibroker.broker.wings.quotas.entities import DEFAULT, Entity
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.protocol.text import reason_of
from minibroker.storage.files.checkpoints import read_topic_id, write_atomically
from minibroker.storage.files.file_names import PARTITION_METADATA, partition_directory_name
from minibroker.storage.files.storage_errors import CorruptFileError

FILE_NAME = "minibroker.json"
FORMAT_VERSION = 1
JOURNAL_BYTES = 64 * 1024  # up to this size, and to that of the file, changes are not written into the file
SECTIONS_OF_CHANGES = frozenset({"being_deleted", "next_producer_id", "old_offsets"})  # of the journal, besides topics

USER, CLIENT_ID = NOUNS = "user", "client-id"


class FileStateError(Exception):
    """The file is unreadable; the message names it and the next step."""


class FileState(Sections):
    """Reads and writes the file; a ClusterState of one broker, which is its controller."""

    is_shared = False
    is_beside_kafka = False
    is_controller = True
    controller_epoch = 1
    brokers: Mapping[int, Broker] = {}

    def __init__(self, log_dir: Path, broker_id: int) -> None:
        super().__init__()
        self._path = log_dir / FILE_NAME
        self._journal = ChangeJournal(log_dir)
        self._written = ""  # names the file as it was last written
        self._written_bytes = 0
        self._broker_id = broker_id
        self.cluster_id = kafka_id_text(uuid.uuid4())

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Read the file, and add topics that only have directories; return the partitions left by a deletion.

        The next change is written into the file. Raises FileStateError.
        """
        self.read()
        left = [each for each in partitions_on_disk if each.topic in self.being_deleted - self.topics.keys()]
        found: dict[str, dict[int, PartitionState]] = {}
        for name, number in sorted(set(partitions_on_disk) - set(left)):
            if name not in self.topics or number not in self.topics[name].partitions:
                state = PartitionState(self._broker_id, 0, (self._broker_id,), (self._broker_id,))
                found.setdefault(name, {})[number] = state
        for name, partitions in found.items():
            topic = self.topics.get(name) or TopicState(name, {}, {}, self._id_on_disk(name, partitions))
            self.topics[name] = topic._replace(partitions={**topic.partitions, **partitions})
        self.being_deleted = frozenset()
        self._written = ""
        return left

    def _id_on_disk(self, name: str, partitions: Iterable[int]) -> uuid.UUID:
        """The id that a later Kafka gave to a topic, by which groups of the consumer protocol know it; or a new one.

        Raises FileStateError.
        """
        for number in partitions:
            directory = self._path.parent / partition_directory_name(TopicPartition(name, number))
            try:
                found = read_topic_id(directory / PARTITION_METADATA)
            except CorruptFileError as error:
                raise FileStateError(f"{error}; move the file away, and the topic gets a new one") from error
            if found is not None:
                return parse_kafka_id(found)
        return uuid.uuid4()

    def read(self) -> None:
        """Read the file as it is, if there is one, and the changes since. Raises FileStateError."""
        if self._path.exists():
            path = self._path
            try:
                text = path.read_text(encoding="utf-8")
                self._parse(json.loads(text))
                self._written_bytes = len(text)
                path = self._journal.path
                for change in self._journal.read(self._written) if self._written else ():
                    self._apply(change)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise FileStateError(
                    f"cannot read {path} ({reason_of(error)}); move it away, and topics are read off the directories"
                ) from error

    def look(self) -> None:
        """Read nothing: no other broker changes this file."""

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False for a stale one. Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing."""
        if not change.fits(self.topics):
            return False
        rest = change._replace(controller_epoch=None)  # of a cluster of one
        sections = {name: value for name, value in rest._asdict().items() if value is not None and name != "topics"}
        before = {name: getattr(self, name) for name in sections}
        topics_before = {name: self.topics.get(name) for name in change.topics}
        self._install(change.topics, sections)
        try:
            self._store(change, sections.keys(), before)
        except OSError as error:
            self._install(topics_before, before)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot store {what}: {reason_of(error)}") from error
        return True

    def _install(self, topics: Mapping[str, TopicState | None], sections: Mapping[str, Any]) -> None:
        for name, topic in topics.items():
            if topic is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = topic
        for name, value in sections.items():
            setattr(self, name, value)

    def _store(self, change: Change, sections: Collection[str], before: Mapping[str, Any]) -> None:
        """Write a change to the journal if it is a small one, else the file whole. Raises OSError."""
        old = before.get("old_offsets", self.old_offsets)
        is_small = SECTIONS_OF_CHANGES.issuperset(sections) and old.keys() <= self.old_offsets.keys()
        most_bytes = max(JOURNAL_BYTES, self._written_bytes)
        if not is_small or not self._written or self._journal.size_bytes > most_bytes:
            self._write()
            return
        offsets = {each: rows for each, rows in self.old_offsets.items() if rows is not old.get(each)}
        document = {
            "topics": {name: None if topic is None else topic_document(topic) for name, topic in change.topics.items()},
            "old_offsets": {group_id: rows_by_topic(rows) for group_id, rows in offsets.items()},
            "next_producer_id": self.next_producer_id,
            "being_deleted": sorted(self.being_deleted),
        }
        self._journal.append(self._written, document)

    def close(self) -> None:
        """Leave one file, which an older minibroker reads, too. Raises OSError; what was stored is as it was."""
        if self._journal.size_bytes:
            self._write()

    def _apply(self, change: dict[str, Any]) -> None:
        topics = change["topics"].items()
        self._install(
            {name: None if topic is None else parse_topic(name, topic) for name, topic in topics},
            {
                "old_offsets": {**self.old_offsets, **parse_old_offsets(change["old_offsets"])},
                "next_producer_id": int(change["next_producer_id"]),
                "being_deleted": frozenset(map(str, change["being_deleted"])),
            },
        )

    def _write(self) -> None:
        """Write the file whole."""
        written = uuid.uuid4().hex
        document = {
            "version": FORMAT_VERSION,
            "written": written,
            "cluster_id": self.cluster_id,
            "next_producer_id": self.next_producer_id,
            "broker_configs": self.broker_configs,
            "group_configs": self.group_configs,
            "client_metrics": self.client_metrics,
            "client_quotas": [quotas_document(entity, quotas) for entity, quotas in self.client_quotas.items()],
            "topics": {topic.name: topic_document(topic) for topic in self.topics.values()},
            "being_deleted": sorted(self.being_deleted),
            "old_offsets": {group_id: rows_by_topic(rows) for group_id, rows in self.old_offsets.items()},
            "acls": self.acls,
            "features": self.features._asdict(),
        }
        is_private = bool(self.scram_credentials or self.scram_salt_key)
        if is_private:
            document["scram_credentials"] = {
                user: {mechanism: credential_document(each) for mechanism, each in credentials.items()}
                for user, credentials in self.scram_credentials.items()
            }
            document["scram_salt_key"] = base64_text(self.scram_salt_key)
        content = lines_of(document).encode()
        write_atomically(self._path, content, is_private=is_private)
        self._written, self._written_bytes = written, len(content)
        self._journal.remove()

    def exists(self) -> bool:
        return os.path.exists(self._path)

    def _parse(self, document: dict[str, Any]) -> None:
        if document["version"] != FORMAT_VERSION:
            raise ValueError(f"format version {document['version']}, expected {FORMAT_VERSION}")
        self._written = str(document.get("written", ""))  # not in a file of an older minibroker
        self.cluster_id = str(document["cluster_id"])
        self.next_producer_id = int(document["next_producer_id"])
        self.broker_configs = configs_by_name(document.get("broker_configs", {}))
        self.group_configs = configs_by_name(document.get("group_configs", {}))
        self.client_metrics = configs_by_name(document.get("client_metrics", {}))
        self.client_quotas = dict(map(parse_quotas, document.get("client_quotas", ())))
        self.topics = {name: parse_topic(name, topic) for name, topic in document["topics"].items()}
        self.being_deleted = frozenset(map(str, document.get("being_deleted", ())))
        self.old_offsets = parse_old_offsets(document.get("old_offsets", {}))
        self.acls = [text_pairs(rule) for rule in document.get("acls", ())]
        self.features = parse_features(document.get("features", {}))
        self.scram_credentials = {
            str(user): {str(mechanism): parse_credential(each) for mechanism, each in credentials.items()}
            for user, credentials in document.get("scram_credentials", {}).items()
        }
        self.scram_salt_key = base64.b64decode(document.get("scram_salt_key", ""), validate=True)


def parse_features(document: dict[str, Any]) -> FeatureLevels:
    levels = {str(name): int(level) for name, level in document.get("levels", {}).items()}
    return FeatureLevels(int(document.get("epoch", 0)), levels)


def lines_of(document: dict[str, Any]) -> str:
    """JSON with a line for each entry, and for each topic. `json` alone would indent in Python, ten times as slowly."""

    def lines(entries: Mapping[str, Any], indent: str) -> str:
        return ",\n".join(f"{indent}{json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())

    rest = {name: value for name, value in document.items() if name != "topics"}
    topics = lines(document["topics"], "  ")
    return f'{{\n{lines(rest, " ")},\n "topics": {{\n{topics}\n }}\n}}\n'


def topic_document(topic: TopicState) -> dict[str, Any]:
    return {
        "topic_id": kafka_id_text(topic.topic_id),
        "configs": topic.configs,
        "partitions": {
            str(number): {
                "leader": partition.leader,
                "leader_epoch": partition.leader_epoch,
                "replicas": partition.replicas,
                "isr": partition.in_sync_replicas,
                **({"reassignment": topic.reassignments[number]._asdict()} if number in topic.reassignments else {}),
            }
            for number, partition in topic.partitions.items()
        },
    }


def quotas_document(entity: Entity, quotas: Quotas) -> dict[str, Any]:
    """The default of a user or client id is null; one that the entity does not name is missing."""
    names = {USER: entity.user, CLIENT_ID: entity.client_id}
    named = {noun: None if name is DEFAULT else name for noun, name in names.items() if name is not None}
    return {"entity": named, "quotas": dict(quotas)}


def parse_quotas(document: dict[str, Any]) -> tuple[Entity, Quotas]:
    named = document["entity"]
    names = [None if noun not in named else DEFAULT if named[noun] is None else str(named[noun]) for noun in NOUNS]
    return Entity(*names), {str(key): float(value) for key, value in document["quotas"].items()}


def credential_document(credential: ScramCredential) -> dict[str, Any]:
    """As kafka 2.0.1 has it in ZooKeeper, ScramCredentialUtils."""
    return {
        "salt": base64_text(credential.salt),
        "stored_key": base64_text(credential.stored_key),
        "server_key": base64_text(credential.server_key),
        "iterations": credential.iterations,
    }


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def parse_credential(document: dict[str, Any]) -> ScramCredential:
    """Raises ValueError without the values: they are secret."""
    try:
        salt, stored_key, server_key = (
            base64.b64decode(document[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(document["iterations"]))
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("a malformed SCRAM credential") from None


def rows_by_topic(offsets: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in offsets.items():
        topics.setdefault(topic, {})[str(number)] = offset
    return topics


def parse_old_offsets(document: dict[str, Any]) -> OldOffsets:
    return {
        str(group_id): {
            TopicPartition(str(topic), int(number)): int(offset)
            for topic, rows in topics.items()
            for number, offset in rows.items()
        }
        for group_id, topics in document.items()
    }


def parse_topic(name: str, document: dict[str, Any]) -> TopicState:
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
    topic_id = parse_kafka_id(document["topic_id"]) if "topic_id" in document else uuid.uuid4()
    return TopicState(name, partitions, text_pairs(document["configs"]), topic_id, reassignments)


def parse_reassignment(document: dict[str, Any]) -> Reassignment:
    replicas, original, removing = (tuple(map(int, document[name])) for name in ("replicas", "original", "removing"))
    return Reassignment(replicas, original, removing, bool(document["is_caught_up"]))


def configs_by_name(document: dict[str, Any]) -> dict[str, Configs]:
    return {str(name): text_pairs(configs) for name, configs in document.items()}


def text_pairs(document: dict[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in document.items()}
