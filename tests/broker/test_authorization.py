"""Requests to a broker with an authorizer, where the matrix of rights (tests/conformance) does not reach: sessions,
batches, APIs and versions that kafka 2.0.1 lacks, what may not be hinted at."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trio.testing import MockClock

from minibroker.broker.apis.client import CloseConnectionError
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode, KafkaProtocolError
from minibroker.protocol.message_set import build_message_set
from minibroker.protocol.primitives import ZERO_UUID
from minibroker.protocol.record import Record
from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation
from tests.broker.asking import LONG_MS, batch_of, codes, rows
from tests.broker.conftest import InMemoryBroker, MakeBroker, by_name, fetch_body
from tests.broker.secured import (
    ADMIN,
    CREATE_TOPIC,
    DELETE_TOPIC,
    DESCRIBE_TOPIC,
    READ_TOPIC,
    WRITE_TOPIC,
    Secured,
)

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
NONE, DENIED = ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED
GROUP_DENIED, CLUSTER_DENIED = ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
X_DENIED = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
IDEMPOTENT_WRITE = Operation.IDEMPOTENT_WRITE.on(CLUSTER)


@pytest.fixture
async def secured(make_broker: MakeBroker) -> Secured:
    return Secured(make_broker)


# -- Fetch --------------------------------------------------------------------------------------------------------


async def fetch(secured: Secured, *rows: Any, version: int = 8, **options: Any) -> Any:
    return await secured.ask(ApiKey.FETCH, version, **fetch_body(*rows, **options))


@pytest.mark.parametrize("version", range(13))
async def test_row_13_a_consumer_reads_what_it_may_and_hears_nothing_of_the_rest(
    secured: Secured, version: int
) -> None:
    await secured.create_topics("mine", "other")
    for name in ("mine", "other"):
        await secured.be(ADMIN).produce(name, [b"v"])
    await secured.allow(READ_TOPIC, "mine")

    answer = await fetch(secured, ("other", 0, 0), ("mine", 0, 0), ("absent", 3, 0), ("mine", 9, 0), version=version)

    found = {(topic, row.partition): row for topic, row in rows(answer)}
    assert {place: row.error_code for place, row in found.items()} == {
        ("mine", 0): NONE, ("mine", 9): UNKNOWN, ("other", 0): DENIED, ("absent", 3): DENIED,
    }  # fmt: skip
    assert b"v" in bytes(found["mine", 0].records)
    other, absent = found["other", 0], found["absent", 3]
    assert other._replace(partition=3) == absent
    assert (absent.high_watermark, absent.last_stable_offset, absent.log_start_offset) == (-1, -1, -1)
    assert (absent.aborted_transactions, bytes(absent.records)) == (None, b"")


@pytest.mark.parametrize("version", range(13))
async def test_row_14_a_follower_needs_cluster_action_and_no_read(secured: Secured, version: int) -> None:
    """CVE-2018-1288: nobody reads as a follower."""
    await secured.create_topics("t")
    await secured.be(ADMIN).produce("t", [b"v"])
    await secured.allow(READ_TOPIC, "t")
    asked = (("t", 0, 0), ("absent", 0, 0))

    assert codes(await fetch(secured, *asked, replica_id=1, version=version)) == [DENIED, DENIED]

    await secured.forget_rules()
    await secured.allow(Operation.CLUSTER_ACTION.on(CLUSTER))
    answer = await fetch(secured, *asked, replica_id=1, version=version)
    assert DENIED not in codes(answer)
    assert codes(await fetch(secured, *asked, version=version)) == [DENIED, DENIED]


async def test_each_fetch_of_a_session_asks_anew(secured: Secured) -> None:
    await secured.create_topics("a", "b")
    for name in ("a", "b"):
        await secured.allow(READ_TOPIC, name)
    began = await fetch(secured, ("a", 0, 0), ("b", 0, 0), session_epoch=0)
    assert codes(began) == [NONE, NONE]

    async def go_on(epoch: int, user: str = "alice") -> dict[str, int]:
        body = fetch_body(session_id=began.session_id, session_epoch=epoch)
        answer = await secured.ask(ApiKey.FETCH, 8, user, **body)
        assert answer.error_code == NONE
        return {topic: row.error_code for topic, row in rows(answer)}

    assert await go_on(1) == {}
    await secured.deny(READ_TOPIC, "b")
    assert await go_on(2) == {"b": DENIED}
    assert await go_on(3) == {"b": DENIED}
    assert await go_on(4, "bob") == {"a": DENIED, "b": DENIED}  # by its own rights
    await secured.forget_rules()
    await secured.allow(READ_TOPIC, "b")
    assert await go_on(5) == {"a": DENIED, "b": NONE}


async def test_a_waiting_fetch_was_allowed_when_it_came(secured: Secured, autojump_clock: MockClock) -> None:
    await secured.create_topics("t")
    await secured.allow(READ_TOPIC, "t")
    secured.be("alice")
    parked = await secured.broker.park(secured.broker.fetch, ("t", 0, 0), max_wait_ms=LONG_MS)

    await secured.forget_rules()
    await secured.be(ADMIN).produce("t", [b"late"])

    ((_, row),) = rows(await parked.seen())
    assert b"late" in bytes(row.records)
    assert codes(await fetch(secured, ("t", 0, 0))) == [DENIED]


async def test_denied_partitions_alone_are_answered_at_once_whether_they_are_there_or_not(
    secured: Secured, autojump_clock: MockClock
) -> None:
    await secured.create_topics("there")
    secured.be("alice")
    for name in ("there", "absent"):
        started = await secured.broker.start(secured.broker.fetch, (name, 0, 0), max_wait_ms=LONG_MS)
        assert codes(await started.seen()) == [DENIED]


async def test_forgetting_a_topic_needs_no_right(secured: Secured) -> None:
    await secured.create_topics("a")
    await secured.allow(READ_TOPIC, "a")
    began = await fetch(secured, ("a", 0, 0), session_epoch=0)

    answer = await fetch(secured, session_id=began.session_id, session_epoch=1, forgotten_topics=[("secret", [0])])

    assert (answer.error_code, codes(answer)) == (NONE, [])


# -- Produce ------------------------------------------------------------------------------------------------------

PLAIN = bytes(batch_of())
IDEMPOTENT = bytes(batch_of(producer_id=7, producer_epoch=0, base_sequence=0))
TRANSACTIONAL = bytes(batch_of(producer_id=8, producer_epoch=0, base_sequence=0, is_transactional=True))


async def produce(secured: Secured, *batches: bytes, transactional_id: str | None = None, acks: int = 1) -> list[int]:
    topics = [("t", [(number, bytes(each)) for number, each in enumerate(batches)])]
    body = {"acks": acks, "timeout_ms": 1000, "topics": topics, "transactional_id": transactional_id}
    answer = await secured.ask(ApiKey.PRODUCE, 7, **body)
    return [row.error_code for _, row in rows(answer)]


@pytest.mark.parametrize("batches", [(PLAIN, IDEMPOTENT), (IDEMPOTENT, PLAIN), (IDEMPOTENT,)], ids=len)
async def test_any_idempotent_batch_needs_the_right(secured: Secured, batches: tuple[bytes, ...]) -> None:
    """CVE-2018-17196, as the next test."""
    await secured.create_topics("t")
    await secured.be(ADMIN).call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 3, None)], timeout_ms=1000)
    await secured.allow(WRITE_TOPIC, "t")

    assert await produce(secured, *batches) == [CLUSTER_DENIED] * len(batches)
    assert secured.broker.log_of("t").log_end_offset == 0

    await secured.allow(IDEMPOTENT_WRITE)
    assert await produce(secured, *batches) == [NONE] * len(batches)


@pytest.mark.parametrize("batches", [(PLAIN, TRANSACTIONAL), (TRANSACTIONAL, IDEMPOTENT), (TRANSACTIONAL,)], ids=len)
async def test_any_transactional_batch_needs_the_right(secured: Secured, batches: tuple[bytes, ...]) -> None:
    await secured.create_topics("t")
    await secured.be(ADMIN).call(ApiKey.CREATE_PARTITIONS, 0, topics=[("t", 3, None)], timeout_ms=1000)
    await secured.allow(WRITE_TOPIC, "t")
    await secured.allow(IDEMPOTENT_WRITE)

    for transactional_id in ("x", None):
        assert await produce(secured, *batches, transactional_id=transactional_id) == [X_DENIED] * len(batches)
    assert secured.broker.log_of("t").log_end_offset == 0

    await secured.allow(Operation.WRITE.on(TRANSACTIONAL_ID), "x")
    assert await produce(secured, *batches, transactional_id="x") == [NONE] * len(batches)
    assert await produce(secured, *batches) == [X_DENIED] * len(batches)


async def test_an_old_message_set_needs_no_more_than_write(secured: Secured) -> None:
    await secured.create_topics("t")
    await secured.allow(WRITE_TOPIC, "t")
    old = bytes(build_message_set([Record(0, 1, None, b"v")], magic=1))

    body = {"acks": 1, "timeout_ms": 1000, "topics": [("t", [(0, old)]), ("u", [(0, old)])]}
    answer = await secured.ask(ApiKey.PRODUCE, 2, **body)

    assert [row.error_code for _, row in rows(answer)] == [NONE, DENIED]


async def test_a_denied_produce_without_an_answer_closes_the_connection(secured: Secured) -> None:
    await secured.create_topics("t")

    with pytest.raises(CloseConnectionError):
        await produce(secured, PLAIN, acks=0)

    assert secured.broker.log_of("t").log_end_offset == 0


async def test_a_malformed_batch_closes_the_connection_with_and_without_the_right(secured: Secured) -> None:
    with pytest.raises(KafkaProtocolError):
        await produce(secured, b"nonsense")


# -- Metadata -----------------------------------------------------------------------------------------------------


async def metadata(secured: Secured, *names: str, version: int = 8, **options: Any) -> Any:
    return await secured.ask(ApiKey.METADATA, version, topics=by_name(*names), **options)


async def test_internal_topics_are_hidden_too(secured: Secured) -> None:
    await secured.ask(ApiKey.FIND_COORDINATOR, 1, ADMIN, key="g")

    (row,) = (await metadata(secured, "__consumer_offsets")).topics

    assert (row.error_code, row.is_internal, row.partitions) == (DENIED, False, [])


async def test_describing_a_topic_does_not_make_it_without_the_right_to(secured: Secured) -> None:
    for name in ("a", "b"):
        await secured.allow(DESCRIBE_TOPIC, name)
    await secured.allow(CREATE_TOPIC, "b")
    await secured.allow(CREATE_TOPIC, "c")

    rows_given = (await metadata(secured, "a", "b", "c")).topics

    assert {row.name: row.error_code for row in rows_given} == {
        "a": DENIED, "b": ErrorCode.LEADER_NOT_AVAILABLE, "c": DENIED,
    }  # fmt: skip
    assert [row.name for row in (await secured.ask(ApiKey.METADATA, 1, ADMIN, topics=None)).topics] == ["b"]


async def test_authorized_operations_are_those_of_the_client(secured: Secured) -> None:
    await secured.create_topics("t", "u")
    await secured.allow(READ_TOPIC, "t")
    asked = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}

    answer = await metadata(secured, "t", "u", **asked)

    read_and_describe = 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert [row.topic_authorized_operations for row in answer.topics] == [read_and_describe, -(2**31)]
    assert answer.cluster_authorized_operations == 0
    assert (await secured.ask(ApiKey.DESCRIBE_CLUSTER, 0, **{each: True for each in asked if "cluster" in each})
            ).cluster_authorized_operations == 0  # fmt: skip
    await secured.allow(Operation.ALTER.on(CLUSTER))
    answer = await metadata(secured, "t", **asked)
    assert answer.cluster_authorized_operations == 1 << Operation.ALTER | 1 << Operation.DESCRIBE
    assert (await metadata(secured, "t")).cluster_authorized_operations == -(2**31)


async def test_a_topic_by_id_is_not_named_without_the_right(secured: Secured) -> None:
    await secured.create_topics("mine", "other")
    await secured.allow(READ_TOPIC, "mine")
    everything = await secured.ask(ApiKey.METADATA, 12, ADMIN, topics=None)
    ids = {row.name: row.topic_id for row in everything.topics}

    answer = await secured.ask(ApiKey.METADATA, 12, topics=[(ids["mine"], None), (ids["other"], None)])

    assert [(row.name, row.error_code, row.topic_id) for row in answer.topics] == [
        ("mine", NONE, ids["mine"]), (None, DENIED, ids["other"]),
    ]  # fmt: skip


async def test_deleting_by_id_names_only_what_may_be_described(secured: Secured) -> None:
    await secured.create_topics("mine", "seen", "hidden")
    everything = await secured.ask(ApiKey.METADATA, 12, ADMIN, topics=None)
    ids = {row.name: row.topic_id for row in everything.topics}
    await secured.allow(DELETE_TOPIC, "mine")
    await secured.allow(DESCRIBE_TOPIC, "seen")
    asked = [*((None, ids[name]) for name in ("mine", "seen", "hidden")), ("hidden", ZERO_UUID)]

    answer = await secured.ask(ApiKey.DELETE_TOPICS, 6, topics=asked, timeout_ms=1000)

    assert [(row.name, row.topic_id, row.error_code) for row in answer.topics] == [
        ("mine", ids["mine"], NONE),
        ("seen", ids["seen"], DENIED),
        (None, ids["hidden"], DENIED),
        ("hidden", ZERO_UUID, DENIED),
    ]
    left = await secured.ask(ApiKey.METADATA, 12, ADMIN, topics=None)
    assert {row.name for row in left.topics} == {"seen", "hidden"}


async def test_the_configs_of_a_new_topic_need_a_right_of_their_own(secured: Secured) -> None:
    await secured.allow(CREATE_TOPIC, "a")
    await secured.allow(CREATE_TOPIC, "b")
    await secured.allow(Operation.DESCRIBE_CONFIGS.on(TOPIC), "b")

    answer = await secured.ask(
        ApiKey.CREATE_TOPICS, 7, topics=[(name, 1, 1, [], []) for name in ("a", "b", "c")], timeout_ms=1000
    )

    a, b, c = answer.topics
    assert (a.error_code, a.topic_config_error_code, a.configs, a.num_partitions) == (NONE, DENIED, None, -1)
    assert (b.error_code, b.topic_config_error_code, b.num_partitions) == (NONE, NONE, 1)
    assert b.configs
    assert (c.name, c.error_code) == ("c", DENIED)


# -- APIs and versions that 2.0.1 lacks ---------------------------------------------------------------------------


async def test_groups_are_listed_by_their_own_rights_in_later_versions(secured: Secured) -> None:
    for name in ("g", "h"):
        await secured.ask(ApiKey.FIND_COORDINATOR, 1, ADMIN, key=name)
        await secured.create_topics("t") if name == "g" else None
        commit = {"group_id": name, "generation_id": -1, "member_id": "", "topics": [("t", [(0, 1, -1, -1, "")])]}
        await secured.ask(ApiKey.OFFSET_COMMIT, 2, ADMIN, **commit)
    await secured.allow(Operation.READ.on(GROUP), "g")

    old, new = [await secured.ask(ApiKey.LIST_GROUPS, version) for version in (2, 3)]

    assert (old.error_code, old.groups) == (CLUSTER_DENIED, [])
    assert (new.error_code, [group.group_id for group in new.groups]) == (NONE, ["g"])
    await secured.allow(Operation.DESCRIBE.on(CLUSTER))
    assert {group.group_id for group in (await secured.ask(ApiKey.LIST_GROUPS, 3)).groups} == {"g", "h"}


async def test_consumers_may_ask_for_epochs_in_later_versions(secured: Secured) -> None:
    await secured.create_topics("t", "u")
    await secured.allow(READ_TOPIC, "t")
    asked = {"topics": [(name, [(0, -1, 0)]) for name in ("t", "u")]}

    assert codes(await secured.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 1, **asked)) == [CLUSTER_DENIED] * 2
    assert codes(await secured.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, **asked)) == [NONE, DENIED]


async def test_transactions_are_listed_and_described_by_their_rights(secured: Secured) -> None:
    await secured.create_topics("t", "u")
    for name in ("x", "y"):
        await secured.ask(ApiKey.FIND_COORDINATOR, 1, ADMIN, key=name, key_type=1)
        made = await secured.ask(ApiKey.INIT_PRODUCER_ID, 1, ADMIN, transactional_id=name, transaction_timeout_ms=1000)
        identity = {"transactional_id": name, "producer_id": made.producer_id, "producer_epoch": 0}
        await secured.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 1, ADMIN, **identity, topics=[("t", [0]), ("u", [0])])
    await secured.allow(Operation.DESCRIBE.on(TRANSACTIONAL_ID), "x")
    await secured.allow(DESCRIBE_TOPIC, "u")

    listed = await secured.ask(ApiKey.LIST_TRANSACTIONS, 0)
    described = await secured.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=["x", "y", "z"])

    assert [row.transactional_id for row in listed.transactions] == ["x"]
    assert [(row.transactional_id, row.error_code) for row in described.transactions] == [
        ("x", NONE), ("y", X_DENIED), ("z", X_DENIED),
    ]  # fmt: skip
    assert [topic.name for topic in described.transactions[0].topics] == ["u"]


DENIED_LATER: dict[str, tuple[ApiKey, int, dict[str, Any], Callable[[Any], Any], Any]] = {
    "OffsetDelete": (
        ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": [("t", [0])]},
        lambda answer: (answer.error_code, answer.topics), (GROUP_DENIED, []),
    ),
    "ElectLeaders v0": (
        ApiKey.ELECT_LEADERS, 0, {"topic_partitions": [("t", [0])], "timeout_ms": 1},
        lambda answer: [row.error_code for _, row in rows(answer)], [CLUSTER_DENIED],
    ),
    "ElectLeaders v1": (
        ApiKey.ELECT_LEADERS, 1, {"topic_partitions": [("t", [0])], "timeout_ms": 1},
        lambda answer: answer.error_code, CLUSTER_DENIED,
    ),
    "IncrementalAlterConfigs": (
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, {"resources": [(2, "t", []), (4, "0", []), (8, "0", [])]},
        lambda answer: [(row.error_code, row.error_message) for row in answer.responses],
        [(DENIED, "Topic authorization failed."), *[(CLUSTER_DENIED, "Cluster authorization failed.")] * 2],
    ),
    "ListPartitionReassignments": (
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout_ms": 1, "topics": None},
        lambda answer: answer.error_code, CLUSTER_DENIED,
    ),
    "DescribeProducers": (
        ApiKey.DESCRIBE_PRODUCERS, 0, {"topics": [("t", [0]), ("absent", [0])]},
        lambda answer: [(row.error_code, row.error_message) for topic in answer.topics for row in topic.partitions],
        [(DENIED, "Topic authorization failed.")] * 2,
    ),
    "FindCoordinator v4": (
        ApiKey.FIND_COORDINATOR, 4, {"coordinator_keys": ["g", "h"]},
        lambda answer: [(row.key, row.error_code, row.node_id) for row in answer.coordinators],
        [("g", GROUP_DENIED, -1), ("h", GROUP_DENIED, -1)],
    ),
    "InitProducerId v2": (
        ApiKey.INIT_PRODUCER_ID, 2, {"transaction_timeout_ms": 1},
        lambda answer: tuple(answer[1:]), (CLUSTER_DENIED, -1, -1),
    ),
    "InitProducerId v4": (
        ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": "x", "transaction_timeout_ms": 1},
        lambda answer: tuple(answer[1:]), (X_DENIED, -1, -1),
    ),
    "DescribeLogDirs v3": (
        ApiKey.DESCRIBE_LOG_DIRS, 3, {"topics": None},
        lambda answer: (answer.error_code, answer.results), (CLUSTER_DENIED, []),
    ),
    "CreateTopics v4": (
        ApiKey.CREATE_TOPICS, 4, {"topics": [("t", 1, 1, [], [])], "timeout_ms": 1},
        lambda answer: [(row.error_code, row.error_message) for row in answer.topics],
        [(DENIED, "Authorization failed.")],
    ),
    "DescribeClientQuotas": (
        ApiKey.DESCRIBE_CLIENT_QUOTAS, 0, {"components": [], "strict": False},
        lambda answer: tuple(answer[1:]), (CLUSTER_DENIED, None, None),
    ),
    "AlterClientQuotas": (
        ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [([("user", "a")], []), ([("user", None)], [])]},
        lambda answer: [(row.error_code, row.error_message, row.entity) for row in answer.entries],
        [(CLUSTER_DENIED, "Cluster authorization failed.", [("user", name)]) for name in ("a", None)],
    ),
    "DescribeUserScramCredentials": (
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None},
        lambda answer: (answer.error_code, answer.error_message, answer.results), (CLUSTER_DENIED, None, []),
    ),
    "AlterUserScramCredentials": (
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, {"deletions": [("a", 1)], "upsertions": [("b", 1, 4096, b"s", b"p")]},
        lambda answer: [(row.user, row.error_code) for row in answer.results],
        [("a", CLUSTER_DENIED), ("b", CLUSTER_DENIED)],
    ),
    "DescribeGroups v5": (
        ApiKey.DESCRIBE_GROUPS, 5, {"groups": ["g"], "include_authorized_operations": True},
        lambda answer: [(row.error_code, row.authorized_operations) for row in answer.groups],
        [(GROUP_DENIED, -(2**31))],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("key", "version", "body", "seen", "expected"), DENIED_LATER.values(), ids=DENIED_LATER)
async def test_later_apis_are_refused_as_by_kafka_3_9(
    secured: Secured, key: ApiKey, version: int, body: dict[str, Any], seen: Callable[[Any], Any], expected: Any
) -> None:
    assert seen(await secured.ask(key, version, **body)) == expected


async def test_offsets_are_deleted_for_topics_that_may_be_read(secured: Secured) -> None:
    await secured.create_topics("t", "u")
    await secured.ask(ApiKey.FIND_COORDINATOR, 1, ADMIN, key="g")
    commit = {"generation_id": -1, "member_id": "", "topics": [(name, [(0, 1, -1, -1, "")]) for name in ("t", "u")]}
    await secured.ask(ApiKey.OFFSET_COMMIT, 2, ADMIN, group_id="g", **commit)
    await secured.allow(Operation.DELETE.on(GROUP), "g")
    await secured.allow(READ_TOPIC, "t")

    answer = await secured.ask(ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[("t", [0]), ("u", [0])])

    assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {"t": NONE, "u": DENIED}


async def test_the_offsets_of_all_topics_are_those_of_topics_that_may_be_described(secured: Secured) -> None:
    await secured.create_topics("t", "u")
    await secured.ask(ApiKey.FIND_COORDINATOR, 1, ADMIN, key="g")
    commit = {"generation_id": -1, "member_id": "", "topics": [(name, [(0, 1, -1, -1, "")]) for name in ("t", "u")]}
    await secured.ask(ApiKey.OFFSET_COMMIT, 2, ADMIN, group_id="g", **commit)
    await secured.allow(Operation.READ.on(GROUP), "g")
    await secured.allow(DESCRIBE_TOPIC, "t")

    answer = await secured.ask(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None)

    assert (answer.error_code, [topic.name for topic in answer.topics]) == (NONE, ["t"])


# -- the three APIs of ACLs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4))
async def test_without_an_authorizer_there_are_no_acls(broker: InMemoryBroker, version: int) -> None:
    """As kafka 2.0.1: the messages too."""
    rule = (2, "t", 3, "User:a", "*", 3, 3)
    wanted = (2, "t", 3, None, None, 1, 1)
    described = await broker.call(ApiKey.DESCRIBE_ACLS, version, resource_type_filter=1, operation=1, permission_type=1)
    created = await broker.call(ApiKey.CREATE_ACLS, version, creations=[rule, rule])
    deleted = await broker.call(ApiKey.DELETE_ACLS, version, filters=[wanted])

    text = "No Authorizer is configured on the broker"
    assert (described.error_code, described.error_message, described.resources) == (54, text, [])
    assert [tuple(row) for row in created.results] == [(54, f"{text}.")] * 2
    assert [tuple(row) for row in deleted.filter_results] == [(54, f"{text}.", [])]


GOOD = {"resource_type": 2, "resource_name": "t", "resource_pattern_type": 3, "principal": "User:a", "host": "*",
        "operation": 3, "permission_type": 3}  # fmt: skip
TYPES = "Topic,Group,Cluster,TransactionalId,DelegationToken"
OPERATIONS = "Read,Write,Create,Delete,Alter,Describe,ClusterAction,AlterConfigs,DescribeConfigs,IdempotentWrite,All"
UNKNOWN_TEXT = "UNKNOWN not a valid {} name. The valid names are {}"
INVALID: list[tuple[dict[str, Any], str]] = [
    *(({"resource_type": number}, UNKNOWN_TEXT.format("resourceType", TYPES)) for number in (0, 7, 99, -1)),
    *(({"operation": number}, UNKNOWN_TEXT.format("operation", OPERATIONS)) for number in (0, 13, 99)),
    *(({"permission_type": number}, UNKNOWN_TEXT.format("permissionType", "Allow,Deny")) for number in (0, 4)),
    *(({"resource_pattern_type": number}, "patternType must not be UNKNOWN") for number in (0, 5)),
    *(
        ({"principal": text}, f"expected a string in format principalType:principalName but got {text}")
        for text in ("erin", "")
    ),
    ({"resource_name": ""}, "Invalid empty resource name"),
    *(
        ({"resource_type": 4, "resource_name": name}, "The only valid name for the CLUSTER resource is kafka-cluster")
        for name in ("", "*", "kafka-cluste", "Kafka-cluster")
    ),
]


@pytest.mark.parametrize(("change", "message"), INVALID, ids=str)
async def test_an_invalid_rule_is_refused_and_the_others_are_made(
    secured: Secured, change: dict[str, Any], message: str
) -> None:
    rows_given = [tuple({**GOOD, **each}.values()) for each in ({}, change, {"resource_name": "u"})]

    answer = await secured.ask(ApiKey.CREATE_ACLS, 1, ADMIN, creations=rows_given)

    assert [tuple(row) for row in answer.results] == [(0, None), (42, message), (0, None)]
    described = await describe(secured)
    assert {name for _, name, *_ in described} == {"t", "u"}


@pytest.mark.parametrize(
    "change",
    [
        {"resource_type": 1}, {"operation": 1}, {"permission_type": 1}, {"resource_pattern_type": 1},
        {"resource_pattern_type": 2},
    ],
    ids=str,
)  # fmt: skip
async def test_a_filter_in_place_of_a_rule_closes_the_connection(secured: Secured, change: dict[str, int]) -> None:
    rows_given = [tuple({**GOOD, **each}.values()) for each in ({}, change)]

    with pytest.raises(KafkaProtocolError, match="selects rules"):
        await secured.ask(ApiKey.CREATE_ACLS, 1, ADMIN, creations=rows_given)

    assert await describe(secured) == []


@pytest.mark.parametrize(
    "change",
    [
        {"resource_name": "a b"}, {"resource_name": "é" * 250}, {"resource_type": 3, "resource_name": "a/b"},
        {"resource_name": ".."}, {"principal": "User:"}, {"principal": ":x"}, {"principal": "Robot:x:y"}, {"host": ""},
        {"host": "10.0.0.0/8"}, {"resource_type": 3, "operation": 4}, {"operation": 9},
        {"resource_name": "*", "resource_pattern_type": 4},
        {"resource_type": 4, "resource_name": "kafka-cluster", "resource_pattern_type": 4},
    ],
    ids=str,
)  # fmt: skip
async def test_anything_else_is_a_rule_and_making_it_twice_is_no_error(
    secured: Secured, change: dict[str, Any]
) -> None:
    given = tuple({**GOOD, **change}.values())

    answer = await secured.ask(ApiKey.CREATE_ACLS, 1, ADMIN, creations=[given, given])

    assert [tuple(row) for row in answer.results] == [(0, None)] * 2
    assert await describe(secured) == [given]


async def test_users_as_resources_came_with_version_3(secured: Secured) -> None:
    given = tuple({**GOOD, "resource_type": 7, "operation": 13}.values())

    for version, code in ((2, 42), (3, 0)):
        answer = await secured.ask(ApiKey.CREATE_ACLS, version, ADMIN, creations=[given])
        assert [row.error_code for row in answer.results] == [code]


async def describe(secured: Secured, version: int = 1, **wanted: Any) -> list[tuple[Any, ...]]:
    body = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1, **wanted}
    answer = await secured.ask(ApiKey.DESCRIBE_ACLS, version, ADMIN, **body)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (each.resource_type, each.resource_name, each.pattern_type, *rule)
        for each in answer.resources
        for rule in each.acls
    ]


FOO = {(name, pattern) for name, pattern in (("foo-bar", 3), ("foo-baz", 3), ("*", 3), ("foo", 4), ("foo-bar-long", 4))}
FOUND: list[tuple[dict[str, Any], set[tuple[str, int]]]] = [
    ({}, FOO),
    ({"pattern_type_filter": 2}, FOO),
    ({"pattern_type_filter": 3}, {each for each in FOO if each[1] == 3}),
    ({"pattern_type_filter": 4}, {each for each in FOO if each[1] == 4}),
    ({"resource_name_filter": "foo-bar", "pattern_type_filter": 2}, {("foo-bar", 3), ("*", 3), ("foo", 4)}),
    ({"resource_name_filter": "foo-bar"}, {("foo-bar", 3)}),
    ({"resource_name_filter": "foo-bar", "pattern_type_filter": 3}, {("foo-bar", 3)}),
    ({"resource_name_filter": "foo-bar", "pattern_type_filter": 4}, set()),
    *(({"resource_name_filter": "*", "pattern_type_filter": each}, {("*", 3)}) for each in (1, 2, 3)),
    ({"resource_name_filter": "*", "pattern_type_filter": 4}, set()),
    ({"resource_type_filter": 3}, set()),
    ({"principal_filter": "User:*"}, set()),
    ({"principal_filter": "User:a"}, FOO),
    ({"host_filter": "1.2.3.4"}, set()),
    ({"operation": 3}, FOO),
    ({"operation": 2}, set()),
    ({"permission_type": 2}, set()),
    *(({field: value}, set()) for field in ("resource_type_filter", "pattern_type_filter") for value in (0, 99)),
    *(({field: value}, set()) for field in ("operation", "permission_type") for value in (0, 99)),
    *(({field: ""}, set()) for field in ("resource_name_filter", "principal_filter", "host_filter")),
]


@pytest.mark.parametrize(("wanted", "expected"), FOUND, ids=[str(wanted) for wanted, _ in FOUND])
async def test_a_filter_selects_the_rules_that_are_equal_in_all_it_names(
    secured: Secured, wanted: dict[str, Any], expected: set[tuple[str, int]]
) -> None:
    creations = [(2, name, pattern, "User:a", "*", 3, 3) for name, pattern in FOO]
    await secured.ask(ApiKey.CREATE_ACLS, 1, ADMIN, creations=creations)

    assert {each[1:3] for each in await describe(secured, **wanted)} == expected
    if wanted.get("pattern_type_filter") == 3:
        assert {each[1:3] for each in await describe(secured, version=0, **wanted)} == expected

    names = ("resource_type_filter", "resource_name_filter", "pattern_type_filter", "principal_filter", "host_filter",
             "operation", "permission_type")  # fmt: skip
    every = {**dict.fromkeys(names), "resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1}
    row = tuple({**every, "permission_type": 1, **wanted}[name] for name in names)
    deleted = await secured.ask(ApiKey.DELETE_ACLS, 1, ADMIN, filters=[row])

    (result,) = deleted.filter_results
    assert result.error_code == 0
    assert {(each.resource_name, each.pattern_type) for each in result.matching_acls} == expected
    assert {each[1:3] for each in await describe(secured)} == FOO - expected


async def test_removing_one_of_several_rules_leaves_the_others_in_force(secured: Secured) -> None:
    """CVE-2024-27309, through the protocol; in every order."""
    for first in range(3):
        kinds = [READ_TOPIC, WRITE_TOPIC, CREATE_TOPIC]
        for each in kinds:
            await secured.allow(each, "t")
        for removed in (*kinds[first:], *kinds[:first]):
            row = (2, "t", 3, None, None, removed.operation, 1)
            await secured.ask(ApiKey.DELETE_ACLS, 1, ADMIN, filters=[row])
            kinds.remove(removed) if removed in kinds else None
            described = await metadata(secured, "t", allow_auto_topic_creation=False)
            may_describe = any(each in kinds for each in (READ_TOPIC, WRITE_TOPIC))
            assert (described.topics[0].error_code == UNKNOWN) == may_describe


async def test_rules_are_in_force_after_a_restart(make_broker: MakeBroker, secured: Secured) -> None:
    await secured.create_topics("orders")
    await secured.allow(READ_TOPIC, "o", prefixed=True)
    data_dir = secured.broker.parts.config.log_dir
    secured.broker.close()

    again = Secured(lambda **given: make_broker(data_dir, **given))

    assert codes(await fetch(again, ("orders", 0, 0))) == [NONE]
    assert codes(await fetch(again, ("payments", 0, 0))) == [DENIED]


# -- the guard ----------------------------------------------------------------------------------------------------


async def test_an_open_broker_has_no_guard(broker: InMemoryBroker) -> None:
    for key, handler in broker.parts.handlers.by_key.items():
        assert getattr(handler, "__name__", "").upper() == ApiKey(key).name, handler


@pytest.mark.parametrize("key", API_TABLE, ids=lambda key: API_TABLE[key].name)
async def test_a_user_without_rights_gets_an_answer_in_every_version(secured: Secured, key: ApiKey) -> None:
    from tests.integration.sample_requests import sample_body

    for version in range(API_TABLE[key].versions[1] + 1):
        body = sample_body(key, version)._asdict()
        try:
            assert await secured.ask(key, version, **body) is not None
        except KafkaProtocolError as error:
            assert "selects rules" in str(error)
