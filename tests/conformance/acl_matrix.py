"""The matrix of rights: every API, version and right that kafka 2.0.1 asks for, with and without it.

Made from `protocol/api_table.py`. All clients are ANONYMOUS, and rules name their hosts: so one broker without SASL
serves all rows of the matrix at once. The connection of a step is the address that it comes from.

What Apache Kafka 2.0.1 answers is kept in tests/golden/: python -m tests.books kafka-2.0.1 rights --record
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from minibroker.conformance.answers import Plain, differences
from minibroker.conformance.conversation import SocketPeer
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.kafka_versions import LAST_VERSIONS_OF_KAFKA_2_0
from minibroker.conformance.steps import KEYS, Batch, Script, call
from minibroker.protocol.api_table import API_TABLE
from minibroker.protocol.resources import CLUSTER_NAME, ResourceType
from minibroker.protocol.rights import Operation, Pattern, Permission, Right
from tests.conformance.pair import KAFKA_SETTINGS
from tests.conformance.recordings import Comparison, read

RECORDED = "kafka-2.0.1-acls.json.gz"
PREFIX = "a000001-"
AUTHORIZER: dict[str, str | int] = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # until the first step gives all rights to ADMIN
    "transaction.state.log.num.partitions": 1,
}
ADMIN = "127.0.0.1"
ANONYMOUS = "User:ANONYMOUS"
LATER_RIGHTS = {"DescribeConfigs Group", "AlterConfigs Group"}  # of a type of resources that kafka 2.0.1 lacks
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.CLUSTER,
    ResourceType.TRANSACTIONAL_ID,
)
IMPLYING = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
# What rights are on: names with these prefixes. Nobody has a right on `@hidden` and `@h`, or on `@absent`, which is not
# there.
GRANTED = {TOPIC: "@t-", GROUP: "@g-", TRANSACTIONAL_ID: "@x-"}
HIDDEN = ("@hidden", "@absent")
DENIALS = {29, 30, 31, 53}

Rule = tuple[Permission, Operation, ResourceType]
Grants = frozenset[Rule]
MakeBody = Callable[[int], dict[str, Any]]


class Request(NamedTuple):
    """One way to ask an API: what it asks for, in order, and its body by the number of the case."""

    api: str
    asks: Sequence[Right]
    body: MakeBody
    versions: range


class Case(NamedTuple):
    """A request with these grants; `missing` is the first right that it lacks."""

    request: Request
    version: int
    host: str
    grants: Grants
    missing: Right | None
    number: int

    def __str__(self) -> str:
        held = ", ".join(sorted(f"{rule[0].name} {rule[1].title} {rule[2].title}" for rule in self.grants))
        return f"{self.request.api} v{self.version} with {held or 'nothing'}"


def topics_of(first: str, *rows: Any) -> list[tuple[Any, ...]]:
    """Each topic with these fields: the one that grants are for, and those that nobody has a right on."""
    return [(name, *rows) for name in (first, *HIDDEN)]


def produce(topic: str, batch: Batch, transactional_id: str | None = None) -> MakeBody:
    body = {"acks": -1, "timeout_ms": 30_000, "transactional_id": transactional_id}
    return lambda number: {**body, "topics": topics_of(topic, [(0, batch)])}


def fetch(replica_id: int) -> MakeBody:
    rows = [(0, -1, 0, -1, -1, 1 << 20)]
    sizes = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20}
    return lambda number: {"replica_id": replica_id, **sizes, "topics": topics_of("@t-read", rows)}


def always(**body: Any) -> MakeBody:
    return lambda number: body


def metadata(name: str, **options: Any) -> MakeBody:
    return lambda number: {"topics": [(bytes(16), each) for each in (name.format(number), *HIDDEN)], **options}


ROW = (1_500_000_000_000, b"k", b"v")
IN_TXN = {"producer_id": 1, "producer_epoch": 0}
MEMBER = {"group_id": "@g-a", "generation_id": 1, "member_id": "m"}
OFFSETS = topics_of("@t-read", [(0, 7, -1, -1, "note")])
TXN_OFFSETS = topics_of("@t-read", [(0, 7, -1, "note")])
EPOCHS = [(0, -1, 0)]
CONFIGS = [(2, "@t-read", ["retention.ms"]), *((2, each, None) for each in HIDDEN), (4, "0", ["num.partitions"])]
CHANGES = [(2, name, [("retention.ms", "1000")]) for name in ("@t-read", "@hidden")] + [(4, "0", [])]


def rights(api: str, *wanted: str) -> list[Right]:
    """Return the named rights of the API in their order, by default all that kafka 2.0.1 asks for."""
    declared = [right for right in API_TABLE[KEYS[api]].rights if str(right) not in LATER_RIGHTS]
    return [right for right in declared if not wanted or str(right) in wanted]


def request(api: str, *wanted: str, first: int = 0, last: int | None = None, body: MakeBody) -> Request:
    newest = LAST_VERSIONS_OF_KAFKA_2_0[KEYS[api]]
    return Request(api, rights(api, *wanted), body, range(first, (newest if last is None else last) + 1))


REQUESTS = [
    request("Produce", "Write Topic", last=2, body=produce("@t-old", Batch(rows=(ROW,), magic=0))),
    request("Produce", "Write Topic", first=3, body=produce("@t-new", Batch(rows=(ROW,)))),
    request(
        *("Produce", "IdempotentWrite Cluster", "Write Topic"),
        first=3,
        body=produce("@t-new", Batch(rows=(ROW,), producer=(4242, 0, 0))),
    ),
    request(
        *("Produce", "Write TransactionalId", "Write Topic"),
        first=3,
        body=produce("@t-txn", Batch(rows=(ROW,), producer=(4243, 0, 0), is_transactional=True), "@x-a"),
    ),
    request("Fetch", "Read Topic", body=fetch(-1)),
    request("Fetch", "ClusterAction Cluster", body=fetch(1)),
    request(
        "ListOffsets",
        body=always(replica_id=-1, topics=topics_of("@t-read", [(0, -1, -1, 1)])),
    ),
    request("Metadata", "Describe Topic", body=metadata("@t-read", allow_auto_topic_creation=False), first=4),
    request("Metadata", "Describe Topic", body=metadata("@t-read")),
    request("Metadata", "Describe Topic", body=always(topics=None), first=1),
    request("Metadata", "Describe Topic", body=always(topics=[]), last=0),
    request("OffsetCommit", body=always(group_id="@g-a", generation_id=-1, member_id="", topics=OFFSETS)),
    request("OffsetFetch", body=always(group_id="@g-a", topics=topics_of("@t-read", [0]))),
    request("OffsetFetch", body=always(group_id="@g-a", topics=None), first=2),
    request("FindCoordinator", "Describe Group", body=always(key="@g-a", key_type=0)),
    request("FindCoordinator", "Describe TransactionalId", body=always(key="@x-a", key_type=1), first=1),
    request(
        "JoinGroup",
        body=always(group_id="@g-a", session_timeout_ms=0, member_id="m", protocol_type="c", protocols=[("p", b"")]),
    ),
    request("Heartbeat", body=always(**MEMBER)),
    request("LeaveGroup", body=always(group_id="@g-a", member_id="m")),
    request("SyncGroup", body=always(**MEMBER, assignments=[])),
    request("DescribeGroups", body=always(groups=["@g-none", "@h"])),
    request("ListGroups", body=always()),
    request(
        "CreateTopics",
        body=always(topics=topics_of("@t-read", 0, 1, [], []), timeout_ms=10_000, validate_only=True),
    ),
    request("DeleteTopics", body=always(topic_names=["@t-none", *HIDDEN], timeout_ms=10_000)),
    request("DeleteRecords", body=always(topics=topics_of("@t-read", [(0, 0)]), timeout_ms=10_000)),
    request(
        "InitProducerId", "Write TransactionalId", body=always(transactional_id="@x-a", transaction_timeout_ms=1000)
    ),
    request("InitProducerId", "IdempotentWrite Cluster", body=always(transaction_timeout_ms=1000)),
    request("OffsetForLeaderEpoch", body=always(topics=topics_of("@t-read", EPOCHS))),
    request(
        "AddPartitionsToTxn",
        body=always(transactional_id="@x-b", **IN_TXN, topics=[("@t-read", [0]), ("@hidden", [0])]),
    ),
    request("AddPartitionsToTxn", body=always(transactional_id="@x-b", **IN_TXN, topics=[("@t-read", [0])])),
    request("AddOffsetsToTxn", body=always(transactional_id="@x-b", **IN_TXN, group_id="@g-a")),
    request("EndTxn", body=always(transactional_id="@x-b", **IN_TXN, is_commit=True)),
    request("WriteTxnMarkers", body=always(markers=[(4244, 0, False, [("@t-marked", [0]), ("@absent", [0])], 0, 0)])),
    request(
        "TxnOffsetCommit",
        body=always(transactional_id="@x-b", group_id="@g-txn", **IN_TXN, topics=TXN_OFFSETS),
    ),
    request(
        "DescribeAcls",
        body=always(resource_type_filter=2, resource_name_filter="@none", operation=1, permission_type=1),
    ),
    request("CreateAcls", body=always(creations=[(2, "", 3, "User:a", "*", 3, 3), (2, "", 3, "User:b", "*", 3, 3)])),
    request("DeleteAcls", body=always(filters=[(2, name, 3, None, None, 1, 1) for name in ("@none", "@nothing")])),
    request("DescribeConfigs", body=always(resources=CONFIGS)),
    request("AlterConfigs", body=always(resources=CHANGES, validate_only=True)),
    request("AlterReplicaLogDirs", body=always(dirs=[("/nowhere", [("@t-read", [0]), ("@absent", [0])])])),
    request("DescribeLogDirs", body=always(topics=[("@t-marked", [0])])),
    request(
        "CreatePartitions", body=always(topics=topics_of("@t-read", 3, None), timeout_ms=9_000, validate_only=True)
    ),
    request("DeleteGroups", body=always(group_names=["@g-none", "@h"])),
    # Last, since these make topics, of which clients hear some time later.
    request("Metadata", body=metadata("@t-made-{}")),
]


# The three APIs of ACLs, by one that may use them: rules that are refused, and why first; filters; removal.
FRANK = (2, "@foo-bar", 3, "User:frank", "*", 3, 3)
WRONG = {0: 99, 1: "", 2: 0, 3: "frank", 5: 99, 6: 4}  # by the place in a rule
FOO = [("@foo-bar", 3), ("@foo-baz", 3), ("@foo", 4), ("@foo-bar-long", 4), ("@f", 4)]


def rule(**changes: Any) -> tuple[Any, ...]:
    return tuple(changes.get(f"at_{place}", value) for place, value in enumerate(FRANK))


def conversation() -> Script:
    wrong = [{f"at_{place}": WRONG[place]} for place in WRONG]
    pairs = [{**one, **other} for one in wrong for other in wrong]
    refused = [*(rule(**each) for each in pairs), rule(at_0=4), rule(at_0=4, at_1="*", at_2=4), rule(at_0=7)]
    odd = [rule(at_1="@a b"), rule(at_3="User:"), rule(at_3=":x"), rule(at_0=3, at_5=4), rule(at_2=4)]
    filters: list[tuple[Any, ...]]
    filters = [(2, name, pattern, "User:frank", None, 1, 1) for name, _ in FOO for pattern in (1, 2, 3, 4)]
    filters += [(1, None, pattern, "User:frank", None, 1, 1) for pattern in (1, 2, 3, 4, 0, 99)]
    filters += [(2, "@foo-bar", 3, "User:frank", "1.2.3.4", 1, 1), (2, "@foo-bar", 3, "User:frank", None, 2, 1)]
    filters += [(2, "", 1, "User:frank", None, 1, 1), (2, "@foo-bar", 1, "User:frank", None, 1, 2)]
    filters += [(3, "@foo-bar", 1, "User:frank", None, 1, 1), (2, "@foo-bar", 1, "User:frank", None, 99, 1)]
    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter",
             "operation", "permission_type")  # fmt: skip
    described: list[dict[str, Any]] = [dict(zip(names, each, strict=True)) for each in filters]
    closing = [rule(at_0=1), rule(at_5=1), rule(at_6=1), rule(at_2=1), rule(at_2=2)]
    return [
        call("CreateAcls", 1, creations=[rule(at_1=name, at_2=pattern) for name, pattern in FOO]),
        call("CreateAcls", 1, creations=[*refused, *odd]),
        call("CreateAcls", 0, creations=[rule(at_0=3)]),
        call("CreateAcls", 1, creations=[]),
        *(call("CreateAcls", 1, connection="127.0.0.1", creations=[FRANK, each]) for each in closing),
        *(call("DescribeAcls", version, **each) for each in described for version in (0, 1)),
        call("DeleteAcls", 1, filters=[]),
        call("DeleteAcls", 1, filters=[*filters[6:9], filters[-1]]),
        call("DescribeAcls", 1, **described[20]),
        call("DeleteAcls", 0, filters=[(1, None, 3, "User:frank", None, 1, 1)]),
        call("DeleteAcls", 1, filters=[filters[20], filters[21]]),
        call("DeleteAcls", 1, filters=[(1, None, 1, each, None, 1, 1) for each in ("User:", ":x")]),
    ]


def granted(right: Right, grants: Grants) -> bool:
    """Whether these rules give one of a right's alternatives."""
    return any(is_allowed(each.operation, each.resource_type, grants) for each in right.alternatives)


def is_allowed(operation: Operation, resource_type: ResourceType, grants: Grants) -> bool:
    mine = {(permission, each) for permission, each, its_type in grants if its_type is resource_type}
    if {(Permission.DENY, operation), (Permission.DENY, Operation.ALL)} & mine:
        return False
    enough = (operation, Operation.ALL, *IMPLYING.get(operation, ()))
    return any((Permission.ALLOW, each) in mine for each in enough)


def states(asks: Sequence[Right]) -> Iterator[Grants]:
    """Nothing; then for each right, with all others: without it, with it, with it and denied, with what implies it,
    with what does not."""
    yield frozenset()
    for right in asks:
        rest = {allow(other) for other in asks if other is not right}
        yield frozenset(rest)
        for each in right.alternatives:
            yield frozenset({*rest, allow(each)})
            yield frozenset({*rest, allow(each), (Permission.DENY, *allow(each)[1:])})
            yield frozenset({*rest, allow(each), (Permission.DENY, Operation.ALL, each.resource_type)})
            yield frozenset({*rest, (Permission.ALLOW, Operation.ALL, each.resource_type)})
            implying = IMPLYING.get(each.operation, ())
            for operation in implying:
                yield frozenset({*rest, (Permission.ALLOW, operation, each.resource_type)})
                yield frozenset({*rest, allow(each), (Permission.DENY, operation, each.resource_type)})
            others = set(Operation) - {Operation.ANY, Operation.ALL, each.operation, *implying}
            known = {operation for operation in others if operation <= Operation.IDEMPOTENT_WRITE}
            yield frozenset({*rest, *((Permission.ALLOW, operation, each.resource_type) for operation in known)})


def allow(right: Right) -> Rule:
    *_, last = right.alternatives
    return Permission.ALLOW, last.operation, last.resource_type


def cases() -> list[Case]:
    hosts: dict[Grants, str] = {}
    numbers = count()
    found = []
    for each in REQUESTS:
        for version in each.versions:
            asks = [right for right in each.asks if right.is_in(version)]
            for grants in dict.fromkeys(states(asks)):
                number = len(hosts) + 1
                host = hosts.setdefault(grants, f"127.0.{1 + number // 250}.{1 + number % 250}")
                missing = next((right for right in asks if not granted(right, grants)), None)
                found.append(Case(each, version, host, grants, missing, next(numbers)))
    return found


def rules_of(host: str, grants: Grants) -> list[tuple[Any, ...]]:
    """The rows of a CreateAcls."""
    return [
        (
            resource_type,
            GRANTED.get(resource_type, CLUSTER_NAME),
            Pattern.PREFIXED if resource_type in GRANTED else Pattern.LITERAL,
            ANONYMOUS,
            host,
            operation,
            permission,
        )
        for permission, operation, resource_type in sorted(grants)
    ]


def script(matrix: Sequence[Case]) -> Script:
    """Steps that set the stage, and a step for each case."""
    everything = [
        (resource_type, "*" if resource_type in GRANTED else CLUSTER_NAME, 3, ANONYMOUS, ADMIN, Operation.ALL, 3)
        for resource_type in (CLUSTER, TOPIC, GROUP, TRANSACTIONAL_ID)
    ]
    hosts = {case.host: case.grants for case in matrix}
    rows = [row for host, grants in hosts.items() for row in rules_of(host, grants)]
    topics = ["@t-read", "@t-old", "@t-new", "@t-txn", "@t-marked", "@hidden"]
    old = [("message.format.version", "0.9.0")]
    return [
        call("CreateAcls", 1, creations=everything),
        call(
            "CreateTopics",
            2,
            topics=[(name, 1, 1, [], old if name == "@t-old" else []) for name in topics],
            timeout_ms=30_000,
        ),
        retried("FindCoordinator", 1, key="@g-a", key_type=0),
        retried("FindCoordinator", 1, key="@x-a", key_type=1),
        retried("OffsetFetch", 2, group_id="@g-a", topics=[]),
        retried("InitProducerId", 0, transactional_id="@x-z", transaction_timeout_ms=1000),
        *(retried("Produce", 3, **produce_to(name)) for name in ("@t-read", "@hidden")),
        *conversation(),
        *(call("CreateAcls", 1, creations=rows[start : start + 100]) for start in range(0, len(rows), 100)),
        *(
            call(case.request.api, case.version, connection=case.host, **case.request.body(case.number))
            for case in matrix
        ),
    ]


def retried(api: str, version: int, **body: Any) -> Any:
    """A step that waits until Kafka has made what it needs."""
    step = call(api, version, **body)
    return type(step)(**{**vars(step), "retry": (3, 5, 6, 14, 15, 16)})


def produce_to(topic: str) -> dict[str, Any]:
    return {"acks": -1, "timeout_ms": 30_000, "topics": [(topic, [(0, Batch(rows=(ROW,)))])]}


def titles(matrix: Sequence[Case]) -> list[str]:
    """Of each answer that is kept: those of the conversation, then those of the cases."""
    return [*(f"step {number}: {step!r}" for number, step in enumerate(conversation())), *map(str, matrix)]


def kept_of(answers: Sequence[Plain], matrix: Sequence[Case]) -> list[Plain]:
    """The answers to the conversation and of the cases; between them are those that set the stage."""
    begin = next(number for number, step in enumerate(script(matrix)) if step == conversation()[0])
    return [*answers[begin : begin + len(conversation())], *answers[-len(matrix) :]]


def answers_of_apache_kafka() -> list[Plain]:
    """Record the answers of Apache Kafka. Raises KafkaUnavailable."""
    with tempfile.TemporaryDirectory() as directory:
        settings = {**SETTINGS, **KAFKA_SETTINGS, **AUTHORIZER}
        kafka = ApacheKafka(kafka_jars(), Path(directory), settings=settings)
        try:
            kafka.start()
            return answers_at(kafka.host, kafka.port)
        finally:
            kafka.kill()


def answers_at(host: str, port: int) -> list[Plain]:
    """Return the comparable answers of a broker that has just begun, with the settings of `AUTHORIZER`."""
    matrix = cases()
    peer = SocketPeer(host, port)
    try:
        return kept_of(peer.hold(script(matrix), PREFIX), matrix)
    finally:
        peer.close()


def compared(seeds: range) -> Comparison:
    """Kafka's answers, and what of them is not as it was recorded."""
    kept = [list(each) for each in zip(titles(cases()), answers_of_apache_kafka(), strict=True)]
    return Comparison(kept, len(kept), unlike_recorded([answer for _, answer in kept]))


def unlike_recorded(answers: Sequence[Plain]) -> list[str]:
    rows = ((title, differences(kafkas, mine)) for (title, kafkas), mine in zip(recorded(), answers, strict=True))
    return [f"{title}: {found[:3]}" for title, found in rows if found]


def recorded() -> list[tuple[str, Plain]]:
    """Each kept answer with its title."""
    kept: list[tuple[str, Plain]] = read(RECORDED)
    return kept
