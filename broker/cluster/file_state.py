"""The file for the state that Kafka keeps in ZooKeeper: `minibroker.json` in the data directory.

It is written whole, to a temporary file that is fsynced and renamed. Each change since is a line of the journal
`minibroker.changes`. The journal's first line names the file that it continues: so a journal that a crash has left
behind is not read again. A long journal is written into the file, and a broker that has stopped in order leaves one
file. docs/log_format.md has both.

Apache Kafka ignores the file. If it is missing (Apache Kafka wrote the data directory), topics are read off the
partition directories, with their ids where there are some (Kafka 2.8). A topic of an older file, which has no ids, gets
one at load.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from minibroker.broker.cluster.journal import Journal
from minibroker.broker.cluster.sections import BEING_DELETED, Section
from minibroker.broker.cluster.state import Change, TopicState, kafka_id_text, parse_kafka_id
from minibroker.broker.cluster.stored_state import TOPICS, Document, StoredState, parse_topic, topic_document
from minibroker.broker.replica.decisions import Broker, PartitionState
from minibroker.broker.starting import StartError
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import OTHER_FORM, reason_of
from minibroker.storage import chance
from minibroker.storage.files import disk
from minibroker.storage.files.checkpoints import read_topic_id, write_atomically
from minibroker.storage.files.file_names import PARTITION_METADATA, partition_directory_name
from minibroker.storage.files.storage_errors import CorruptFileError

logger = logging.getLogger(__name__)

FILE_NAME = "minibroker.json"
JOURNAL_NAME = "minibroker.changes"
SINCE = "since"  # in the first line of a journal: the file that it continues
FORMAT_VERSION = 1
JOURNAL_BYTES = 64 * 1024  # a journal up to this size, or that of the file, is not written into the file
OF_FILE = "version", "written", "cluster_id", TOPICS  # what the file has beside sections


class FileStateError(StartError):
    """The file is unreadable; the message names it and the next step."""


class FileState(StoredState):
    """Reads and writes the file; a ClusterState of one broker, which is its controller."""

    is_shared = False
    is_beside_kafka = False
    is_controller = True
    controller_epoch = 1
    brokers: Mapping[int, Broker] = {}

    def __init__(self, log_dir: Path, broker_id: int, sections: Iterable[Section[Any]] = ()) -> None:
        super().__init__(sections)
        self._path = log_dir / FILE_NAME
        self._journal_path = log_dir / JOURNAL_NAME
        self._journal: Journal | None = None  # since the first change
        self._written = ""  # names the file as it was last written
        self._written_bytes = 0
        self._broker_id = broker_id
        self.cluster_id = kafka_id_text(chance.new_uuid())

    def load(self, partitions_on_disk: Collection[TopicPartition]) -> list[TopicPartition]:
        """Read the file, and add topics that only have directories; return the partitions left by a deletion.

        The next change is written into the file. Raises FileStateError.
        """
        self.read()
        left = [each for each in partitions_on_disk if each.topic in self.get(BEING_DELETED) - self.topics.keys()]
        found: dict[str, dict[int, PartitionState]] = {}
        for name, number in sorted(set(partitions_on_disk) - set(left)):
            if name not in self.topics or number not in self.topics[name].partitions:
                state = PartitionState(self._broker_id, 0, (self._broker_id,), (self._broker_id,))
                found.setdefault(name, {})[number] = state
        for name, partitions in found.items():
            topic = self.topics.get(name) or TopicState(name, {}, {}, self._id_on_disk(name, partitions))
            self.topics[name] = topic._replace(partitions={**topic.partitions, **partitions})
        self.install(Change(sections={BEING_DELETED: BEING_DELETED.empty}))
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
        return chance.new_uuid()

    def read(self) -> None:
        """Read the file as it is, if there is one, and the changes since. Raises FileStateError."""
        if disk.exists(self._path):
            path = self._path
            try:
                content = disk.read_file(path)
                self._parse(json.loads(content))
                self._written_bytes = len(content)
                path = self._journal_path
                if self._written and disk.exists(path):
                    self._read_journal()
            except OTHER_FORM as error:
                raise FileStateError(
                    f"cannot read {path} ({reason_of(error)}); move it away, and topics are read off the directories"
                ) from error

    def _read_journal(self) -> None:
        journal = Journal(self._journal_path)
        lines = (line for _, line in journal.read())
        if next(lines, None) == {SINCE: self._written}:
            self._journal = journal
            for line in lines:
                self.install(self.change_of(line))
        else:
            journal.close()

    def look(self) -> None:
        """Read nothing: no other broker changes this file."""

    def save(self, what: str, change: Change) -> bool:
        """Store a change; return False for a stale one. Raises KafkaError(KAFKA_STORAGE_ERROR) and changes nothing."""
        if not change.fits(self.topics):
            return False
        line = self.document_of(change)
        try:
            if not self._written:
                self._write()
            if self._journal is None:
                self._journal = Journal(self._journal_path)
            head = [] if self._journal.position else [{SINCE: self._written}]
            if head or self._ends_deletion(change):
                # The names of the file and of the journal, or of directories, which would come back with the power, and
                # be taken for topics of Kafka's.
                disk.sync_directory(self._path.parent)
            self._journal.append(*head, line)
        except OSError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"cannot store {what}: {reason_of(error)}") from error
        self.install(change)
        if self._journal.position > max(JOURNAL_BYTES, self._written_bytes):
            try:
                self._write()
            except OSError as error:  # the next change tries again
                logger.error("cannot write %s, the journal goes on: %s", self._path, reason_of(error))
        return True

    def _ends_deletion(self, change: Change) -> bool:
        left = change.get(BEING_DELETED)
        return left is not None and not left >= self.get(BEING_DELETED)

    def close(self) -> None:
        """Leave one file. Raises OSError; what was stored is as it was."""
        if self._journal is not None:
            self._write()

    def _write(self) -> None:
        """Write the file whole, and end the journal. Raises OSError."""
        written = chance.new_uuid().hex
        secret = [each for each in self.sections.values() if each.is_secret and self.get(each) != each.empty]
        public = [each for each in self.sections.values() if not each.is_secret]
        document = {
            "version": FORMAT_VERSION,
            "written": written,
            "cluster_id": self.cluster_id,
            **{each.name: each.to_json(self.get(each)) for each in (*public, *secret)},
            TOPICS: {topic.name: topic_document(topic) for topic in self.topics.values()},
        }
        content = lines_of(document).encode()
        write_atomically(self._path, content, is_private=bool(secret))
        self._written, self._written_bytes = written, len(content)
        if self._journal is not None:
            self._journal.close()
            self._journal = None
        with suppress(OSError):  # what is left names an older file, and is not read
            disk.unlink(self._journal_path)

    def _parse(self, document: Document) -> None:
        if document["version"] != FORMAT_VERSION:
            raise ValueError(f"format version {document['version']}, expected {FORMAT_VERSION}")
        self._written = str(document.get("written", ""))  # not in a file of an older minibroker
        self.cluster_id = str(document["cluster_id"])
        self.topics = {name: parse_topic(name, topic) for name, topic in document[TOPICS].items()}
        sections = {self.section_named(name): value for name, value in document.items() if name not in OF_FILE}
        self.install(Change(sections={section: section.from_json(value) for section, value in sections.items()}))


def lines_of(document: Document) -> str:
    """JSON with a line for each entry, and for each topic. `json` alone would indent in Python, ten times as slowly."""

    def lines(entries: Mapping[str, Any], indent: str) -> str:
        return ",\n".join(f"{indent}{json.dumps(name)}: {json.dumps(value)}" for name, value in entries.items())

    rest = {name: value for name, value in document.items() if name != "topics"}
    topics = lines(document["topics"], "  ")
    return f'{{\n{lines(rest, " ")},\n "topics": {{\n{topics}\n }}\n}}\n'
