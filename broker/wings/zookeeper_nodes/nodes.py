"""The nodes that Kafka 2.0.1 keeps in ZooKeeper: their paths, and the forms of their data.

As kafka 2.0.1 zk/ZkData.scala.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, Generic, NamedTuple, TypeVar
from urllib.parse import quote, unquote

from minibroker.protocol.primitives import TopicPartition
from minibroker.protocol.text import OTHER_FORM
from minibroker.zookeeper.messages import Create, NodeData, SetData, Write

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
NO_NODE: Final = -1  # in place of a version
PORTS: Final = range(1 << 16)
INT32: Final = range(-(1 << 31), 1 << 31)
PARTITION_NUMBERS: Final = range(1 << 31)
INT64: Final = range(-(1 << 63), 1 << 63)

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
    """Read the JSON object of a node, inside `reading`."""
    document = json.loads(data)
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    return document


@contextmanager
def reading() -> Iterator[None]:
    """Make everything that reading a document of another form raises a ValueError."""
    try:
        yield
    except ValueError:
        raise
    except OTHER_FORM as error:
        raise ValueError(f"a node is not as Kafka writes it ({error!r})") from error


def number(value: Any, allowed: range = INT32) -> int:
    """Raises ValueError for one that Kafka's protocol cannot carry."""
    found = int(value)
    if found not in allowed:
        raise ValueError(f"{found} is not from {allowed[0]} to {allowed[-1]}")
    return found


Value = TypeVar("Value")


class Form(Generic[Value]):
    """The data of nodes as values, between which and JSON are `to` and `of`."""

    def __init__(self, to: Callable[[Value], Any], of: Callable[[Any], Value]) -> None:
        self._to = to
        self._of = of

    def encode(self, value: Value) -> bytes:
        """Write data as Kafka writes it, to the byte."""
        return to_json(self._to(value))

    def decode(self, data: bytes) -> Value:
        """Read data with any order of keys, and in older forms that Kafka takes.

        Raises ValueError for other data.
        """
        with reading():
            return self._of(from_json(data))


class BrokerNode(NamedTuple):
    """A live broker: its listeners by name, with host and port, and the security protocol of each."""

    endpoints: Mapping[str, tuple[str, int]]
    protocols: Mapping[str, str]
    timestamp_ms: int
    rack: str | None = None
    jmx_port: int = -1


class ControllerNode(NamedTuple):
    """The controller, and when it was elected."""

    broker_id: int
    timestamp_ms: int


class StateNode(NamedTuple):
    """The leader of a partition, by the decision of the controller with this epoch, and the in-sync replicas."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    in_sync_replicas: tuple[int, ...]


class ProducerIdsNode(NamedTuple):
    """The last block of producer ids that a broker has taken: `end` is its last id."""

    broker_id: int
    start: int
    end: int


def broker_json(node: BrokerNode) -> Any:
    plain = [address for name, address in node.endpoints.items() if node.protocols[name] == "PLAINTEXT"]
    host, port = plain[0] if plain else (None, -1)
    return {
        "listener_security_protocol_map": dict(node.protocols),
        "endpoints": [f"{name}://{in_brackets(host)}:{port}" for name, (host, port) in node.endpoints.items()],
        **({} if node.rack is None else {"rack": node.rack}),
        "jmx_port": node.jmx_port,
        "host": host,
        "timestamp": str(node.timestamp_ms),
        "port": port,
        "version": 4,
    }


def broker_of(document: Any) -> BrokerNode:
    endpoints: dict[str, tuple[str, int]] = {}
    for each in document.get("endpoints") or [f"PLAINTEXT://{document['host']}:{document['port']}"]:
        name, _, address = str(each).partition("://")
        host, _, port = address.rpartition(":")
        endpoints[name] = host.strip("[]"), number(port, PORTS)
    protocols = document.get("listener_security_protocol_map") or {name: name for name in endpoints}
    return BrokerNode(
        endpoints,
        {str(name): str(protocol) for name, protocol in protocols.items()},
        int(document.get("timestamp", -1)),
        document.get("rack"),
        int(document.get("jmx_port", -1)),
    )


def in_brackets(host: str) -> str:
    """A host as in a URL."""
    return f"[{host}]" if ":" in host else host


def ids(numbers: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(number, numbers))


def partition_of(row: Any) -> TopicPartition:
    return TopicPartition(str(row["topic"]), number(row["partition"], PARTITION_NUMBERS))


CLUSTER: Final[Form[str]] = Form(
    lambda cluster_id: {"version": "1", "id": cluster_id}, lambda document: str(document["id"])
)
BROKER: Final = Form(broker_json, broker_of)
CONTROL: Final[Form[ControllerNode]] = Form(
    lambda node: {"version": 1, "brokerid": node.broker_id, "timestamp": str(node.timestamp_ms)},
    lambda document: ControllerNode(number(document["brokerid"]), int(document.get("timestamp", -1))),
)
TOPIC: Final[Form[Mapping[int, tuple[int, ...]]]] = Form(  # the replicas, by partition
    lambda replicas: {"version": 1, "partitions": {str(each): list(its_own) for each, its_own in replicas.items()}},
    lambda document: {
        number(each, PARTITION_NUMBERS): ids(replicas) for each, replicas in document["partitions"].items()
    },
)
STATE: Final[Form[StateNode]] = Form(
    lambda node: {
        "controller_epoch": node.controller_epoch,
        "leader": node.leader,
        "version": 1,
        "leader_epoch": node.leader_epoch,
        "isr": list(node.in_sync_replicas),
    },
    lambda document: StateNode(
        number(document["controller_epoch"]),
        number(document["leader"]),
        number(document["leader_epoch"]),
        ids(document["isr"]),
    ),
)
CONFIG: Final[Form[Mapping[str, str]]] = Form(  # the configs of an entity
    lambda configs: {"version": 1, "config": dict(configs)},
    lambda document: {str(name): str(value) for name, value in document.get("config", {}).items()},
)
CONFIG_CHANGE: Final[Form[str]] = Form(  # the entity with other configs, as `config_path` takes it
    lambda path: {"version": 2, "entity_path": path},
    lambda document: str(
        f"{document['entity_type']}/{document['entity_name']}" if document["version"] == 1 else document["entity_path"]
    ),
)
LOG_DIR_EVENT: Final[Form[int]] = Form(  # the broker of which a log directory has failed
    lambda broker_id: {"version": 1, "broker": broker_id, "event": 1}, lambda document: number(document["broker"])
)
# Partitions with other in-sync replicas, or those that their preferred replicas are to lead.
PARTITIONS: Final[Form[Sequence[TopicPartition]]] = Form(
    lambda partitions: {
        "version": 1,
        "partitions": [{"topic": topic, "partition": each} for topic, each in partitions],
    },
    lambda document: [partition_of(row) for row in document["partitions"]],
)
MOVES: Final[Form[Mapping[TopicPartition, tuple[int, ...]]]] = Form(  # the replicas that partitions are to have
    lambda moves: {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": each, "replicas": list(replicas)} for (topic, each), replicas in moves.items()
        ],
    },
    lambda document: {partition_of(row): ids(row["replicas"]) for row in document["partitions"]},
)
PRODUCERS: Final[Form[ProducerIdsNode]] = Form(
    lambda node: {
        "version": 1,
        "broker": node.broker_id,
        "block_start": str(node.start),
        "block_end": str(node.end),
    },
    lambda document: ProducerIdsNode(
        number(document["broker"]), number(document["block_start"], INT64), number(document["block_end"], INT64)
    ),
)


def configs_of(node: NodeData) -> tuple[Mapping[str, str], int]:
    """The configs of an entity, none in a node without data, and their version."""
    return CONFIG.decode(node.data or b"{}"), node.stat.version


def written(path: str, data: bytes, version: int) -> Write:
    """The write of a node that has this version, or NO_NODE."""
    return Create(path, data) if version == NO_NODE else SetData(path, data, version)
