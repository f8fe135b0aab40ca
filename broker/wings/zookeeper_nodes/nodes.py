"""The nodes that Kafka 2.0.1 keeps in ZooKeeper: their paths, and their data as values.

`encode` writes what Kafka writes, to the byte; `decode` takes any order of keys, and the older forms that Kafka takes.
As kafka 2.0.1 zk/ZkData.scala. Decoders raise ValueError, KeyError or TypeError for other data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from minibroker.protocol.primitives import TopicPartition

CLUSTER_ID: Final = "/cluster/id"
BROKERS: Final = "/brokers/ids"
TOPICS: Final = "/brokers/topics"
CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
DELETE_TOPICS: Final = "/admin/delete_topics"
PREFERRED_ELECTION: Final = "/admin/preferred_replica_election"
REASSIGNMENT: Final = "/admin/reassign_partitions"
PRODUCER_IDS: Final = "/latest_producer_id_block"
ISR_CHANGES: Final = "/isr_change_notification"
LOG_DIR_EVENTS: Final = "/log_dir_event_notification"
CONFIG_CHANGES: Final = "/config/changes"
CONSUMERS: Final = "/consumers"
ACL_CHANGES: Final = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES: Final = "/kafka-acl-extended-changes"
DEFAULT_ENTITY: Final = "<default>"

# What every broker creates if it is missing; as kafka 2.0.1 ZkData.PersistentZkPaths.
PERSISTENT: Final = (
    CONSUMERS,
    BROKERS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    "/brokers/seqid",
    ISR_CHANGES,
    PRODUCER_IDS,
    LOG_DIR_EVENTS,
    "/config/topics",
    "/config/clients",
    "/config/users",
    "/config/brokers",
)


# -- paths ----------------------------------------------------------------------------------------------------------


def broker_path(broker_id: int) -> str:
    return f"{BROKERS}/{broker_id}"


def topic_path(name: str) -> str:
    return f"{TOPICS}/{name}"


def partitions_path(name: str) -> str:
    return f"{TOPICS}/{name}/partitions"


def partition_path(topic_partition: TopicPartition) -> str:
    return f"{partitions_path(topic_partition.topic)}/{topic_partition.partition}"


def state_path(topic_partition: TopicPartition) -> str:
    return f"{partition_path(topic_partition)}/state"


def config_path(entity_path: str) -> str:
    """The configs of an entity such as `topics/orders`, `brokers/<default>` or `users/alice/clients/app`."""
    return f"/config/{entity_path}"


def sanitized(name: str) -> str:
    """A user or client id in a path, as kafka 2.0.1 Sanitizer.sanitize."""
    return quote(name, safe="-_.", errors="surrogatepass").replace("~", "%7E")


def unsanitized(name: str) -> str:
    return unquote(name)


def parents(path: str) -> Iterable[str]:
    """The paths above this one, from the top."""
    names = path.split("/")[1:-1]
    return ("/" + "/".join(names[: count + 1]) for count in range(len(names)))


# -- data -----------------------------------------------------------------------------------------------------------


def to_json(document: Any) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode()


def from_json(data: bytes) -> Any:
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


class ClusterIdNode(NamedTuple):
    cluster_id: str

    def encode(self) -> bytes:
        return to_json({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, data: bytes) -> ClusterIdNode:
        return cls(str(from_json(data)["id"]))


class BrokerNode(NamedTuple):
    """A live broker: its listeners by name, with host and port, and the security protocol of each."""

    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1

    def encode(self) -> bytes:
        plain = [address for name, address in self.endpoints.items() if self.protocols[name] == "PLAINTEXT"]
        host, port = plain[0] if plain else (None, -1)
        document = {
            "listener_security_protocol_map": dict(self.protocols),
            "endpoints": [f"{name}://{in_brackets(host)}:{port}" for name, (host, port) in self.endpoints.items()],
            **({} if self.rack is None else {"rack": self.rack}),
            "jmx_port": self.jmx_port,
            "host": host,
            "timestamp": str(self.timestamp_ms),
            "port": port,
            "version": 4,
        }
        return to_json(document)

    @classmethod
    def decode(cls, data: bytes) -> BrokerNode:
        document = from_json(data)
        endpoints: dict[str, tuple[str, int]] = {}
        for each in document.get("endpoints") or [f"PLAINTEXT://{document['host']}:{document['port']}"]:
            name, _, address = str(each).partition("://")
            host, _, port = address.rpartition(":")
            endpoints[name] = host.strip("[]"), int(port)
        protocols = document.get("listener_security_protocol_map") or {name: name for name in endpoints}
        return cls(
            endpoints,
            {str(name): str(protocol) for name, protocol in protocols.items()},
            int(document.get("timestamp", -1)),
            document.get("rack"),
            int(document.get("jmx_port", -1)),
        )


def in_brackets(host: str) -> str:
    """A host as in a URL."""
    return f"[{host}]" if ":" in host else host


class ControllerNode(NamedTuple):
    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        return to_json({"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def decode(cls, data: bytes) -> ControllerNode:
        document = from_json(data)
        return cls(int(document["brokerid"]), int(document.get("timestamp", -1)))


class TopicNode(NamedTuple):
    """The replicas of a topic, by partition."""

    replicas: Mapping[int, tuple[int, ...]]

    def encode(self) -> bytes:
        return to_json({"version": 1, "partitions": {str(each): list(ids) for each, ids in self.replicas.items()}})

    @classmethod
    def decode(cls, data: bytes) -> TopicNode:
        partitions = from_json(data)["partitions"]
        return cls({int(number): tuple(map(int, replicas)) for number, replicas in partitions.items()})


class StateNode(NamedTuple):
    """The leader of a partition, by the decision of the controller with this epoch, and the in-sync replicas."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]

    def encode(self) -> bytes:
        document = {"controller_epoch": self.controller_epoch, "leader": self.leader, "version": 1}
        return to_json({**document, "leader_epoch": self.leader_epoch, "isr": list(self.in_sync_replicas)})

    @classmethod
    def decode(cls, data: bytes) -> StateNode:
        document = from_json(data)
        epoch, leader, leader_epoch = (int(document[name]) for name in ("controller_epoch", "leader", "leader_epoch"))
        return cls(epoch, leader, leader_epoch, tuple(map(int, document["isr"])))


class ConfigNode(NamedTuple):
    """The configs of an entity."""

    config: Mapping[str, str]

    def encode(self) -> bytes:
        return to_json({"version": 1, "config": dict(self.config)})

    @classmethod
    def decode(cls, data: bytes) -> ConfigNode:
        """A node without data has none."""
        config = from_json(data)["config"] if data else {}
        return cls({str(name): str(value) for name, value in config.items()})


class ConfigChangeNode(NamedTuple):
    """Names the entity of which the configs have changed, as `config_path` takes it."""

    entity_path: str

    def encode(self) -> bytes:
        return to_json({"version": 2, "entity_path": self.entity_path})

    @classmethod
    def decode(cls, data: bytes) -> ConfigChangeNode:
        document = from_json(data)
        if document["version"] == 1:
            return cls(f"{document['entity_type']}/{document['entity_name']}")
        return cls(str(document["entity_path"]))


class PartitionsNode(NamedTuple):
    """Partitions: of which the in-sync replicas have changed, or of which the preferred replicas are to lead."""

    partitions: Sequence[TopicPartition]

    def encode(self) -> bytes:
        rows = [{"topic": topic, "partition": number} for topic, number in self.partitions]
        return to_json({"version": 1, "partitions": rows})

    @classmethod
    def decode(cls, data: bytes) -> PartitionsNode:
        rows = from_json(data)["partitions"]
        return cls([TopicPartition(str(row["topic"]), int(row["partition"])) for row in rows])


class LogDirectoryEventNode(NamedTuple):
    """A log directory of this broker has failed."""

    broker_id: int

    @classmethod
    def decode(cls, data: bytes) -> LogDirectoryEventNode:
        return cls(int(from_json(data)["broker"]))


class ReassignmentNode(NamedTuple):
    """The replicas that partitions are to have."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    def encode(self) -> bytes:
        rows = [
            {"topic": topic, "partition": number, "replicas": list(replicas)}
            for (topic, number), replicas in self.replicas.items()
        ]
        return to_json({"version": 1, "partitions": rows})

    @classmethod
    def decode(cls, data: bytes) -> ReassignmentNode:
        rows = from_json(data)["partitions"]
        return cls(
            {TopicPartition(str(row["topic"]), int(row["partition"])): tuple(map(int, row["replicas"])) for row in rows}
        )


class ProducerIdsNode(NamedTuple):
    """The last block of producer ids that a broker has taken: `end` is its last id."""

    broker_id: int
    start: int
    end: int

    def encode(self) -> bytes:
        document = {"version": 1, "broker": self.broker_id, "block_start": str(self.start), "block_end": str(self.end)}
        return to_json(document)

    @classmethod
    def decode(cls, data: bytes) -> ProducerIdsNode:
        document = from_json(data)
        return cls(int(document["broker"]), int(document["block_start"]), int(document["block_end"]))
