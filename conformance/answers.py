"""Answers in a form that compares, and the one place that says what may rightly differ between two brokers.

What is masked, and nothing else: ids a broker draws (session, producer, cluster, member), its id and address, the time
it is, the order of hash maps, topics of other runs, how tightly lz4 packs, and what docs/differences.md lists.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import crc32c

from minibroker.broker.apis.configs import known_type
from minibroker.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0, is_later
from minibroker.conformance.steps import PREFIX_MARK
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.batches import batch_is_valid, scan_batches
from minibroker.protocol.compression import CODEC_MASK, Codec, compress, decompress
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.message_set import iter_message_records, read_message_header
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record_batch import (
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    RECORD_BATCH_OVERHEAD,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_is_valid,
    read_header,
)

DAY_MS = 24 * 60 * 60 * 1000
NOW = "now"
INSIDE = "inside"
LZ4 = "lz4"
NODES = ("node_id", "leader_id", "controller_id", "replica_nodes", "isr_nodes")
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")
SHOWN_INSIDES = re.compile(r"Request Request\(.*\) is", re.DOTALL)  # in the message for a lack of rights
FILLER = b"\xff" * 8
CODECS_OF_OURS_AND_KAFKAS = "gzip, zstd, producer", "gzip, producer"  # in what a wrong compression.type is told
SMALLEST_HEADER, MAGIC_AT = 17, 16
MAX_DECOMPRESSED_BYTES = 1 << 26
BATCH_CRC, BATCH_TIMES, PRODUCER_ID = slice(17, 21), slice(27, 43), slice(43, 51)

Plain = Any  # dicts, lists, numbers, texts


class Masks:
    """The masks of one conversation with one broker: session ids are told by the order in which they appear."""

    def __init__(self, prefix: str, now_ms: int, node_id: int = 0) -> None:
        self._prefix = prefix
        self._node_id = node_id
        self._now_ms = now_ms
        self._session_ids = {0: 0}
        self._producer_ids: dict[int, int] = {}
        self._topics: dict[bytes, str] = {}
        self._members: dict[str, str] = {}

    def learn_topic(self, topic_id: bytes, name: str) -> None:
        """Show an id that this broker drew as the topic's name."""
        self._topics[topic_id] = name

    def learn_member(self, member_id: str, name: str) -> None:
        """Show an id that this broker may have drawn as the name in the script."""
        self._members[member_id] = name

    def learn_producer(self, producer_id: int) -> None:
        """This broker drew that id: it is told by the order in which ids appear."""
        if producer_id >= 0:
            self._producer_ids.setdefault(producer_id, len(self._producer_ids))

    def apply(self, api: str, body: Any) -> Plain:
        answer = self._plain(body)
        if "session_id" in answer:
            answer["session_id"] = self._session_ids.setdefault(answer["session_id"], len(self._session_ids))
        mask = MASKS.get(api)
        if mask is not None:
            mask(answer)
        return answer

    def _plain(self, value: Any, name: str = "") -> Plain:
        if hasattr(value, "_fields"):
            return {each: self._plain(item, each) for each, item in zip(value._fields, value, strict=True)}
        if isinstance(value, list | tuple):
            return [self._plain(item, name if name in NODES else "") for item in value]
        if name in NODES and value == self._node_id:
            return 0
        if name == "topic_id" and value != ZERO_UUID:
            return self._topics.get(value, "id")
        if isinstance(value, str) and value in self._members:
            return self._members[value]
        if isinstance(value, str):
            known = value.replace(self._prefix, PREFIX_MARK).replace(*CODECS_OF_OURS_AND_KAFKAS)
            return UUID.sub("uuid", SHOWN_INSIDES.sub("Request is", known))
        if name in ("metadata", "member_metadata") and isinstance(value, bytes):
            value = value.replace(self._prefix.encode(), PREFIX_MARK.encode())
        if isinstance(value, memoryview | bytes | bytearray):
            return self._records(bytes(value))
        if name == "producer_id" and value in self._producer_ids:
            return f"producer {self._producer_ids[value]}"
        if name in ("timestamp", "log_append_time_ms") and self._is_now(value):
            return NOW
        return value

    def _is_now(self, timestamp_ms: int) -> bool:
        return abs(timestamp_ms - self._now_ms) < DAY_MS

    def _records(self, data: bytes) -> list[str]:
        """One text a batch: its bytes, those of a broker's time left out, and what follows the last whole one."""
        batches, position = [], 0
        while len(data) - position >= SMALLEST_HEADER:
            end = position + 12 + struct.unpack_from(">i", data, position + 8)[0]
            if not position < end <= len(data):
                break
            batches.append(self._batch(data[position:end]))
            position = end
        is_filled_up = data[position : position + len(FILLER)] == FILLER
        if is_filled_up and any(each.startswith((INSIDE, LZ4)) for each in batches):
            return batches  # up to the size of what was read, which is a matter of time or of the library
        if position < len(data):
            batches.append(f"cut after {len(data) - position}: {tail_text(data[position:])}")
        return batches

    def _batch(self, data: bytes) -> str:
        if data[22 if data[MAGIC_AT] == 2 else 17] & CODEC_MASK == Codec.LZ4:
            repacked = packed_anew(data)
            if repacked is not None:
                return f"{LZ4} {self._text(repacked)}"
        return self._text(data)

    def _text(self, data: bytes) -> str:
        if data[MAGIC_AT] == 2:
            header = read_header(data)
            seal = "" if crc_is_valid(data, 0, header) else " WRONG CRC"
            data = self._without_draws(data, header)
            if header.attributes & LOG_APPEND_TIME_FLAG and self._is_now(header.max_timestamp):
                return f"{NOW} {data[:17].hex()} {data[21:35].hex()} {data[43:].hex()}{seal}"
            return data.hex() + seal
        message = read_message_header(data)
        if message.magic == 0 or not (message.attributes & LOG_APPEND_TIME_FLAG and self._is_now(message.timestamp)):
            return data.hex()
        if not message.is_compressed:
            return f"{NOW} {data[:12].hex()} {data[16:18].hex()} {data[26:].hex()}"
        return f"{INSIDE} {NOW} {message.offset} {message.attributes} {self._inside(data)}"

    def _without_draws(self, data: bytes, header: BatchHeader) -> bytes:
        """A batch without what its broker drew: a producer's id, the time of a marker; and then without its CRC."""
        is_of_drawn_id = header.producer_id in self._producer_ids
        is_of_now = header.is_control and self._is_now(header.max_timestamp)
        if not (is_of_drawn_id or is_of_now):
            return data
        shown = bytearray(data)
        shown[BATCH_CRC] = bytes(len(shown[BATCH_CRC]))
        if is_of_drawn_id:
            shown[PRODUCER_ID] = self._producer_ids[header.producer_id].to_bytes(8, "big")
        if is_of_now:
            shown[BATCH_TIMES] = bytes(len(shown[BATCH_TIMES]))
        return bytes(shown)

    def _inside(self, data: bytes) -> str:
        """The records of a wrapper: its bytes depend on the times inside."""
        try:
            found = list(iter_message_records(data, 0, max_decompressed_bytes=MAX_DECOMPRESSED_BYTES))
        except KafkaError as error:
            return f"unreadable: {error}"
        return str([(each.offset, each.key, each.value) for each in found])


def packed_anew(data: bytes) -> bytes | None:
    """An lz4 batch as this library packs it, sizes and CRC made right; None if it cannot be, or its CRC is wrong."""
    magic = data[MAGIC_AT]
    start = RECORD_BATCH_OVERHEAD if magic == 2 else 26 + 8 * magic  # where what is packed begins
    view = next(scan_batches(data, 0, len(data)), None)
    if view is None or not batch_is_valid(data, view):
        return None
    try:
        unpacked = decompress(Codec.LZ4, data[start:], max_size=MAX_DECOMPRESSED_BYTES, magic=magic)
    except KafkaError:
        return None
    packed = compress(Codec.LZ4, unpacked, magic=magic)
    batch = bytearray(data[:start] + packed)
    struct.pack_into(">i", batch, 8, len(batch) - LOG_OVERHEAD)
    if magic == 2:
        struct.pack_into(">I", batch, 17, crc32c.crc32c(bytes(batch[21:])))
    else:
        struct.pack_into(">i", batch, start - 4, len(packed))
        struct.pack_into(">I", batch, 12, zlib.crc32(batch[MAGIC_AT:]))
    return bytes(batch)


def tail_text(data: bytes) -> str:
    """The beginning of a batch without its CRC, which may be of a broker's time, and without that time."""
    is_new = data[MAGIC_AT : MAGIC_AT + 1] == b"\2"
    attributes, crc, time = (22, slice(17, 21), slice(35, 43)) if is_new else (17, slice(12, 16), slice(18, 26))
    shown = bytearray(data)
    shown[crc] = bytes(len(shown[crc]))
    if data[attributes : attributes + 1] and data[attributes] & LOG_APPEND_TIME_FLAG:
        shown[time] = bytes(len(shown[time]))
    if is_new and data[attributes : attributes + 1] and data[attributes] & TRANSACTIONAL_FLAG:
        drawn = slice(BATCH_TIMES.start if data[attributes] & CONTROL_FLAG else PRODUCER_ID.start, PRODUCER_ID.stop)
        shown[drawn] = bytes(len(shown[drawn]))
    return shown.hex()


def sort_assignment(assignment: Plain) -> None:
    if assignment is not None:
        for topic in assignment["topic_partitions"]:
            topic["partitions"].sort()
        assignment["topic_partitions"].sort(key=lambda topic: (topic["topic_id"], topic.get("topic_name", "")))


def mask_consumer_heartbeat(answer: Plain) -> None:
    sort_assignment(answer["assignment"])


def mask_consumer_describe(answer: Plain) -> None:
    answer["groups"].sort(key=lambda group: group["group_id"])
    for group in answer["groups"]:
        group["members"].sort(key=lambda member: member["member_id"])
        for member in group["members"]:
            member["subscribed_topic_names"].sort()
            sort_assignment(member["assignment"])
            sort_assignment(member["target_assignment"])


def mask_metadata(answer: Plain) -> None:
    answer["topics"] = [topic for topic in answer["topics"] if PREFIX_MARK in topic["name"] or topic["error_code"]]
    sort_topics(answer, "partition")
    answer["cluster_id"] = answer["cluster_id"] and "cluster"
    for broker in answer["brokers"]:
        broker.update(host="host", port=0)


def unless_refused(**masked: Any) -> Callable[[Plain], None]:
    """A mask of these fields in an answer that is no error."""
    return lambda answer: None if answer["error_code"] else answer.update(masked)


def mask_markers(answer: Plain) -> None:
    answer["markers"].sort(key=lambda marker: str(marker["producer_id"]))
    for marker in answer["markers"]:
        sort_topics(marker)


def mask_api_versions(answer: Plain) -> None:
    """Keep the versions that both have, of the APIs that both have; none of a refusal, whose row Kafka 2.4 brought."""
    known = API_TABLE.keys() & LAST_VERSIONS_OF_KAFKA_2_0.keys()
    rows = {row["api_key"]: row for row in answer["api_keys"] if row["api_key"] in known}
    for key, row in rows.items():
        row["max_version"] = min(row["max_version"], LAST_VERSIONS_OF_KAFKA_2_0[key])
    answer["api_keys"] = [] if answer["error_code"] else [rows[key] for key in sorted(rows)]


def hide_unknown_types(rows: list[Plain]) -> None:
    """As 2.0.1, which calls a resource type that it does not know UNKNOWN (docs/differences.md)."""
    for row in rows:
        row["resource_type"] = known_type(row["resource_type"])


def mask_describe_configs(answer: Plain) -> None:
    hide_unknown_types(answer["results"])
    answer["results"].sort(key=lambda row: (row["resource_type"], row["resource_name"]))
    for row in answer["results"]:
        row["configs"] = [config for config in row["configs"] if not is_later(config["name"])]
        row["configs"].sort(key=lambda config: config["name"])


def mask_create_topics(answer: Plain) -> None:
    """Without what a Scala collection looks like; a wrong config is said as later Kafka does (docs/differences.md)."""
    sort_topics(answer)
    for topic in answer["topics"]:
        if (topic["error_message"] or "").startswith(("Invalid value ", "Version `")):
            topic["error_code"] = int(ErrorCode.INVALID_CONFIG)
        if (topic["error_message"] or "").startswith("Duplicate replica assignment found: "):
            topic["error_message"] = "Duplicate replica assignment found"


def mask_alter_configs(answer: Plain) -> None:
    """Without the codec 2.0.1 does not know; a topic there is not: as later Kafka says it (docs/differences.md)."""
    hide_unknown_types(answer["responses"])
    answer["responses"].sort(key=lambda row: (row["resource_type"], row["resource_name"]))
    for row in answer["responses"]:
        row["error_message"] = row["error_message"] and row["error_message"].replace("gzip,zstd,", "gzip,")
        if (row["error_message"] or "").startswith('Topic "'):
            row["error_code"] = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def mask_describe_log_dirs(answer: Plain) -> None:
    for directory in answer["results"]:
        directory["log_dir"] = "directory"
        directory["topics"] = [topic for topic in directory["topics"] if PREFIX_MARK in topic["name"]]
        sort_topics(directory)


def mask_described_acls(answer: Plain) -> None:
    """The order of Kafka's hash maps."""
    for resource in answer["resources"]:
        resource["acls"].sort(key=str)
    answer["resources"].sort(key=str)


def mask_deleted_acls(answer: Plain) -> None:
    for result in answer["filter_results"]:
        result["matching_acls"].sort(key=str)


def sorted_by(rows: str, field: str) -> Callable[[Plain], None]:
    """A mask of an answer whose rows come in the order of Kafka's hash maps."""
    return lambda answer: answer[rows].sort(key=lambda row: (row[field], str(row)))


def mask_described_groups(answer: Plain) -> None:
    answer["groups"].sort(key=lambda group: group["group_id"])
    for group in answer["groups"]:
        group["members"].sort(key=lambda member: (member["member_id"], str(member)))


def mask_listed_groups(answer: Plain) -> None:
    groups = [group for group in answer["groups"] if PREFIX_MARK in group["group_id"]]
    answer["groups"] = sorted(groups, key=lambda group: str(group["group_id"]))


def mask_fetched_offsets(answer: Plain) -> None:
    for each in (answer, *answer["groups"]):
        sort_topics(each)


def sort_topics(answer: Plain, partition: str = "partition") -> None:
    """The order of Kafka's hash maps."""
    answer["topics"].sort(key=lambda topic: topic.get("name") or topic.get("topic") or "")
    for topic in answer["topics"]:
        topic.get("partitions", []).sort(key=lambda row: row[partition])


APIS_OF_TOPICS = """
    Produce ListOffsets OffsetForLeaderEpoch DeleteTopics DeleteRecords OffsetCommit OffsetDelete
    AddPartitionsToTxn TxnOffsetCommit AlterReplicaLogDirs
""".split()
MASKS: dict[str, Callable[[Plain], None]] = dict.fromkeys(APIS_OF_TOPICS, sort_topics) | {
    "OffsetFetch": mask_fetched_offsets,
    "Metadata": mask_metadata,
    "ApiVersions": mask_api_versions,
    "CreateTopics": mask_create_topics,
    "ConsumerGroupHeartbeat": mask_consumer_heartbeat,
    "ConsumerGroupDescribe": mask_consumer_describe,
    "JoinGroup": sorted_by("members", "member_id"),
    "DescribeGroups": mask_described_groups,
    "ListGroups": mask_listed_groups,
    "DeleteGroups": sorted_by("results", "group_id"),
    "InitProducerId": unless_refused(producer_id="id"),
    "FindCoordinator": unless_refused(host="host", port=0),
    "WriteTxnMarkers": mask_markers,
    "DescribeConfigs": mask_describe_configs,
    "AlterConfigs": mask_alter_configs,
    "DescribeAcls": mask_described_acls,
    "DeleteAcls": mask_deleted_acls,
    "CreatePartitions": sorted_by("results", "name"),
    "DescribeLogDirs": mask_describe_log_dirs,
}


class Differing(NamedTuple):
    """A field that two brokers answered differently, by its path."""

    path: str
    kafkas: Plain
    other: Plain


def differing(kafkas: Plain, other: Plain, path: str = "") -> list[Differing]:
    """Every field that differs."""
    if isinstance(kafkas, dict) and isinstance(other, dict):
        found = []
        for name in kafkas:  # what a recording lacks is a field of later versions, declared after it was made
            found += differing(kafkas.get(name), other.get(name), f"{path}.{name}" if path else name)
        return found
    if isinstance(kafkas, list) and isinstance(other, list) and len(kafkas) == len(other):
        return [
            each
            for number, (left, right) in enumerate(zip(kafkas, other, strict=True))
            for each in differing(left, right, f"{path}[{number}]")
        ]
    return [] if kafkas == other else [Differing(path, kafkas, other)]


def differences(kafkas: Plain, ours: Plain) -> list[str]:
    """Every field that differs, as text."""
    return [f"{path}: Apache Kafka {left!r}, minibroker {right!r}" for path, left, right in differing(kafkas, ours)]
