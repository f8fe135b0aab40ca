"""The file for the state that Kafka keeps in ZooKeeper: `minibroker.json` in the data directory.

One JSON object: the cluster id, the next block of producer ids, changed broker settings (by broker id, those for all
brokers under ""), the quotas of clients, the id, configs and partitions of each topic, the offsets of OffsetCommit v0,
the ACLs, the SCRAM credentials of users, and the topics of which directories may be left because the broker ended
during their deletion. It is written whole, to a temporary file that is fsynced and renamed; a change of few topics
among many is written to `change_journal.py`'s file first. Both happen before the change is answered, and a broker that
has stopped in order leaves one file. Apache Kafka ignores it; if it is missing (Apache Kafka wrote the data directory),
topics are read off the partition directories. A topic of an older file, which has no ids, gets one at load.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import uuid
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.broker.cluster.change_journal import ChangeJournal
from minibroker.broker.cluster.metadata_cache import PartitionState, TopicState
from minibroker.broker.quota.client_quotas import Quotas
from minibroker.broker.quota.entities import DEFAULT, Entity
from minibroker.broker.replica.isr import IsrChanges, IsrOutcomes
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.scram import ScramCredential
from minibroker.protocol.text import reason_of
from minibroker.storage.files.checkpoints import write_atomically

FILE_NAME = "minibroker.json"
FORMAT_VERSION = 1
JOURNAL_BYTES = 64 * 1024  # up to this size, and to that of the file, changes are not written into the file

USER, CLIENT_ID = NOUNS = "user", "client-id"

ScramCredentials = dict[str, dict[str, ScramCredential]]  # by user and mechanism
OldOffsets = dict[str, dict[TopicPartition, int]]  # of OffsetCommit v0: by group and partition


class Changed(NamedTuple):
    """What of the store has changed, besides its counters: topics, new, altered or gone; groups of OffsetCommit v0."""

    topics: Collection[str] = ()
    groups: Collection[str] = ()


class TopicStoreError(Exception):
    """The file is unreadable; the message names it and the next step."""


def new_cluster_id() -> str:
    return kafka_id_text(uuid.uuid4())


def kafka_id_text(identity: uuid.UUID) -> str:
    """Write a cluster or topic id as Kafka does: 22 characters, base64url."""
    return base64.urlsafe_b64encode(identity.bytes).rstrip(b"=").decode()


def parse_kafka_id(text: str) -> uuid.UUID:
    """Raises ValueError."""
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


class TopicStore:
    """Reads and writes the file. `load` fills `topics`; `save` stores what has changed."""

    def __init__(self, log_dir: Path, broker_id: int) -> None:
        self._path = log_dir / FILE_NAME
        self._journal = ChangeJournal(log_dir)
        self._written = ""  # names the file as it was last written
        self._written_bytes = 0
        self._broker_id = broker_id
        self.cluster_id = new_cluster_id()
        self.next_producer_id = 0
        self.topics: dict[str, TopicState] = {}
        self.broker_configs: dict[str, dict[str, str]] = {}
        self.client_quotas: dict[Entity, Quotas] = {}
        self.old_offsets: OldOffsets = {}
        self.acls: list[dict[str, str]] = []  # as `security/acls/acl_store.py` writes them
        self.scram_credentials: ScramCredentials = {}
        self.scram_salt_key = b""  # makes up the salts of unknown users
        self.being_deleted: set[str] = set()  # no longer in `topics`, but perhaps still on the disk

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Read the file, and add topics that only have directories; return the partitions left by a deletion.

        Raises TopicStoreError.
        """
        self.read()
        left = [each for each in partitions_on_disk if each.topic in self.being_deleted - self.topics.keys()]
        for topic_partition in sorted(set(partitions_on_disk) - set(left)):
            topic = self.topics.setdefault(topic_partition.topic, TopicState(topic_partition.topic, {}))
            topic.partitions.setdefault(topic_partition.partition, self.new_partition())
        self.being_deleted.clear()
        return left

    def read(self) -> None:
        """Read the file as it is, if there is one, and the changes since. Raises TopicStoreError."""
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
                raise TopicStoreError(
                    f"cannot read {path} ({reason_of(error)}); move it away, and topics are read off the directories"
                ) from error

    def new_partition(self) -> PartitionState:
        return PartitionState(self._broker_id, 0, [self._broker_id], [self._broker_id])

    def save(self, changed: Changed | None = None) -> None:
        """Store what has changed, with None everything. Raises OSError, and leaves what was stored as it was."""
        most_bytes = max(JOURNAL_BYTES, self._written_bytes)
        if changed is None or not self._written or self._journal.size_bytes > most_bytes:
            self._write()
        else:
            self._journal.append(self._written, self._change_document(changed))

    def close(self) -> None:
        """Leave one file, which an older minibroker reads, too. Raises OSError; what was stored is as it was."""
        if self._journal.size_bytes:
            self._write()

    def _change_document(self, changed: Changed) -> dict[str, Any]:
        found = {name: self.topics.get(name) for name in changed.topics}
        return {
            "topics": {name: None if topic is None else topic_document(topic) for name, topic in found.items()},
            "old_offsets": {each: rows_by_topic(self.old_offsets[each]) for each in changed.groups},
            "next_producer_id": self.next_producer_id,
            "being_deleted": sorted(self.being_deleted),
        }

    def _apply(self, change: dict[str, Any]) -> None:
        for name, topic in change["topics"].items():
            if topic is None:
                self.topics.pop(name, None)
            else:
                self.topics[name] = parse_topic(name, topic)
        self.old_offsets |= parse_old_offsets(change["old_offsets"])
        self.next_producer_id = int(change["next_producer_id"])
        self.being_deleted = {str(name) for name in change["being_deleted"]}

    def _write(self) -> None:
        """Write the file whole."""
        written = uuid.uuid4().hex
        document = {
            "version": FORMAT_VERSION,
            "written": written,
            "cluster_id": self.cluster_id,
            "next_producer_id": self.next_producer_id,
            "broker_configs": self.broker_configs,
            "client_quotas": [quotas_document(entity, quotas) for entity, quotas in self.client_quotas.items()],
            "topics": {topic.name: topic_document(topic) for topic in self.topics.values()},
            "being_deleted": sorted(self.being_deleted),
            "old_offsets": {group_id: rows_by_topic(rows) for group_id, rows in self.old_offsets.items()},
            "acls": self.acls,
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

    def save_or_undo(self, what: str, undo: Callable[[], object], changed: Changed | None = None) -> None:
        """Save; if that fails, undo the change and raise KafkaError(KAFKA_STORAGE_ERROR), which names `what`."""
        try:
            self.save(changed)
        except OSError as error:
            undo()
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot store {what}: {reason_of(error)}") from error

    def save_isr(self, changes: IsrChanges) -> IsrOutcomes:
        """Save the in-sync replicas of partitions, for Metadata too; a change of a state that has moved on is stale.

        Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing. The leader changes its own set afterwards, as kafka
        2.0.1 Partition.updateIsr.
        """
        states = {each: self.topics[each.topic].partitions[each.partition] for each in changes}
        taken = {each: state for each, state in states.items() if state.state_version == changes[each].state_version}
        before = {each: state.in_sync_replicas for each, state in taken.items()}
        for each, state in taken.items():
            state.in_sync_replicas = list(changes[each].in_sync_replicas)

        def restore() -> None:
            for each, state in taken.items():
                state.in_sync_replicas = before[each]

        if taken:
            self.save_or_undo("the in-sync replicas", restore, Changed({each.topic for each in taken}))
        for state in taken.values():
            state.state_version += 1
        return {each: state.state_version if each in taken else None for each, state in states.items()}

    def set_scram_credentials(self, credentials: ScramCredentials) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing."""
        before, self.scram_credentials = self.scram_credentials, credentials
        self.save_or_undo("the credentials", lambda: setattr(self, "scram_credentials", before))

    def set_scram_salt_key(self, key: bytes) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing."""
        before, self.scram_salt_key = self.scram_salt_key, key
        self.save_or_undo("a key", lambda: setattr(self, "scram_salt_key", before))

    def exists(self) -> bool:
        return os.path.exists(self._path)

    def _parse(self, document: dict[str, Any]) -> None:
        if document["version"] != FORMAT_VERSION:
            raise ValueError(f"format version {document['version']}, expected {FORMAT_VERSION}")
        self._written = str(document.get("written", ""))  # not in a file of an older minibroker
        self.cluster_id = str(document["cluster_id"])
        self.next_producer_id = int(document["next_producer_id"])
        self.broker_configs = {
            str(broker): text_pairs(configs) for broker, configs in document.get("broker_configs", {}).items()
        }
        self.client_quotas = dict(map(parse_quotas, document.get("client_quotas", ())))
        self.topics = {name: parse_topic(name, topic) for name, topic in document["topics"].items()}
        self.being_deleted = {str(name) for name in document.get("being_deleted", ())}
        self.old_offsets = parse_old_offsets(document.get("old_offsets", {}))
        self.acls = [text_pairs(rule) for rule in document.get("acls", ())]
        self.scram_credentials = {
            str(user): {str(mechanism): parse_credential(each) for mechanism, each in credentials.items()}
            for user, credentials in document.get("scram_credentials", {}).items()
        }
        self.scram_salt_key = base64.b64decode(document.get("scram_salt_key", ""), validate=True)


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
            [int(replica) for replica in partition["replicas"]],
            [int(replica) for replica in partition["isr"]],
        )
        for number, partition in document["partitions"].items()
    }
    topic = TopicState(name, partitions, text_pairs(document["configs"]))
    if "topic_id" in document:
        topic.topic_id = parse_kafka_id(document["topic_id"])
    return topic


def text_pairs(document: dict[str, Any]) -> dict[str, str]:
    return {str(key): str(value) for key, value in document.items()}
