"""`minibroker acls`: rules listed, added and removed, on minibroker and on Apache Kafka 2.0.1."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import ApacheKafka, KafkaUnavailable, kafka_jars
from minibroker import Broker
from minibroker.cli.app import main
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID
from tests.integration.wire import RawConnection

pytestmark = [pytest.mark.integration, pytest.mark.slow]

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module", params=["minibroker", pytest.param("Apache Kafka 2.0.1", marks=pytest.mark.nightly)])
def bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if request.param == "minibroker":
        with Broker(settings=AUTHORIZER) as broker:
            yield administered(broker.bootstrap_servers)
        return
    try:
        jars = kafka_jars()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with ApacheKafka(jars, tmp_path_factory.mktemp("kafka"), settings=AUTHORIZER, heap="512m") as kafka:
        yield administered(kafka.bootstrap)


def administered(bootstrap: str) -> str:
    """With rights on the cluster for this host: the first rule for it takes them from all others."""
    arguments = ["acls", "add", "--allow", "ANONYMOUS", "--host", "127.0.0.1", "--cluster"]
    assert main([*arguments, "--bootstrap-server", bootstrap]) == 0
    return bootstrap


class Acls:
    """The command on one broker; `new` gives names that no other test uses."""

    _numbers = itertools.count()

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._prefix = f"acls-{next(self._numbers)}-"

    def new(self, name: str) -> str:
        return self._prefix + name

    def run(self, *arguments: str) -> tuple[int, str, str]:
        status = main(["acls", *arguments, "--bootstrap-server", self._bootstrap])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    def done(self, *arguments: str) -> list[str]:
        status, out, err = self.run(*arguments)
        assert (status, err) == (0, "")
        return out.splitlines()

    def listed(self, *arguments: str) -> set[tuple[str, ...]]:
        """User, rule and operation, resource with its name's end, and pattern of each rule."""
        rows = json.loads(self.done("list", *arguments, "-o", "json")[0])
        return {
            (
                row["principal"],
                row["permission"],
                row["operation"],
                row["resource_type"],
                row["name"].removeprefix(self._prefix),
                row["pattern"],
            )
            for row in rows
        }

    def names(self, *arguments: str) -> set[str]:
        return {row[4] for row in self.listed(*arguments) if row[4] != "kafka-cluster"}


@pytest.fixture
def acls(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Acls:
    return Acls(bootstrap, capsys)


def test_a_rule_is_added_listed_and_removed(acls: Acls) -> None:
    topic = acls.new("orders")

    added = acls.done("add", "--allow", "alice", "--operation", "read", "--topic", topic, "--host", "10.0.0.1")

    assert added == [f"added: User:alice may Read topic {topic} from 10.0.0.1"]
    header, *rows = acls.done("list", "--topic", topic)
    assert header.split() == ["RESOURCE", "NAME", "PATTERN", "USER", "HOST", "RULE", "OPERATION"]
    assert [row.split() for row in rows] == [["Topic", topic, "literal", "User:alice", "10.0.0.1", "allow", "Read"]]
    assert acls.done("remove", "--allow", "alice", "--topic", topic) == [
        f"removed: User:alice may Read topic {topic} from 10.0.0.1"
    ]
    status, out, err = acls.run("list", "--topic", topic)
    assert (status, out) == (0, "") and "no such rules" in err
    status, out, err = acls.run("remove", "--allow", "alice", "--topic", topic)
    assert (status, out) == (0, "") and "no such rules" in err


def test_adding_twice_is_no_error_and_without_an_operation_it_is_all(acls: Acls) -> None:
    topic = acls.new("t")

    for _ in range(2):
        assert acls.done("add", "--deny", "User:bob", "-t", topic) == [
            f"added: User:bob may not do everything on topic {topic}"
        ]

    assert acls.listed("-t", topic) == {("User:bob", "deny", "All", "Topic", "t", "literal")}


def test_a_producer_and_a_consumer_get_all_they_need(acls: Acls) -> None:
    prefix, group, transactional_id = acls.new("in"), acls.new("g"), acls.new("x")
    of_both = ("--topic", prefix, "--prefixed")

    acls.done("add", "--allow", "p", "--producer", "--idempotent", "--transactional-id", transactional_id, *of_both)
    acls.done("add", "--allow", "c", "--consumer", "--group", group, *of_both)

    producers = acls.listed("--user", "p")
    assert producers == {
        ("User:p", "allow", "IdempotentWrite", "Cluster", "kafka-cluster", "literal"),
        *(("User:p", "allow", each, "Topic", "in", "prefixed") for each in ("Write", "Describe", "Create")),
        *(("User:p", "allow", each, "TransactionalId", "x", "prefixed") for each in ("Write", "Describe")),
    }
    assert acls.listed("--user", "User:c") == {
        *(("User:c", "allow", each, "Topic", "in", "prefixed") for each in ("Read", "Describe")),
        ("User:c", "allow", "Read", "Group", "g", "prefixed"),
    }
    removed = acls.done("remove", "--allow", "c", "--consumer", "--group", group, *of_both)
    assert len(removed) == 3
    assert acls.listed("--user", "c") == set()
    acls.done("remove", "--allow", "p")
    assert acls.listed("--user", "p") == set()


def test_the_rules_that_apply_to_a_name_are_found_by_prefixes_and_star(acls: Acls) -> None:
    acls.done("add", "--allow", "u", "-t", acls.new("foo-bar"), "-t", acls.new("foo-baz"))
    acls.done("add", "--allow", "u", "--prefixed", "-t", acls.new("foo"), "-t", acls.new("foo-bar-long"))

    assert acls.names("--topic", acls.new("foo-bar")) == {"foo-bar"}
    assert acls.names("--topic", acls.new("foo-bar"), "--applying") == {"foo-bar", "foo"}
    assert acls.names("--user", "u") == {"foo-bar", "foo-baz", "foo", "foo-bar-long"}
    acls.done("remove", "--topic", acls.new("foo-bar"))
    assert acls.names("--user", "u") == {"foo-baz", "foo", "foo-bar-long"}
    acls.done("remove", "--allow", "u")


def test_an_empty_name_is_refused_and_the_other_is_added(acls: Acls) -> None:
    status, out, err = acls.run("add", "--allow", "e", "--topic", "", "--topic", acls.new("t"))

    assert (status, out.splitlines()) == (1, [f"added: User:e may do everything on topic {acls.new('t')}"])
    assert "not added (INVALID_REQUEST)" in err
    acls.done("remove", "--allow", "e")


def described(connection: RawConnection, topic: str) -> int:
    request = API_TABLE[ApiKey.METADATA].request(topics=[(ZERO_UUID, topic)], allow_auto_topic_creation=False)
    answer: Any = connection.call(ApiKey.METADATA, 4, request)
    return int(answer.topics[0].error_code)


def test_a_rule_counts_with_the_next_request_of_an_open_connection(acls: Acls, bootstrap: str) -> None:
    topic = acls.new("t")
    host, _, port = bootstrap.rpartition(":")
    with RawConnection(host, int(port), source="127.0.0.7") as connection:
        assert described(connection, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        acls.done("add", "--deny", "*", "--topic", topic, "--host", "127.0.0.7")
        assert described(connection, topic) == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        acls.done("remove", "--topic", topic)
        assert described(connection, topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_missing_right_is_named(acls: Acls) -> None:
    acls.done("add", "--deny", "*", "--operation", "Alter", "--cluster")

    status, _, err = acls.run("add", "--allow", "a", "--topic", "t")

    assert status == 1 and "Alter on the cluster" in err
    assert acls.listed("--cluster", "--user", "*") == {
        ("User:*", "deny", "Alter", "Cluster", "kafka-cluster", "literal")
    }


def test_acls_of_a_broker_without_an_authorizer_fail_with_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Broker() as broker:
        for arguments in (["list"], ["add", "--allow", "a", "-t", "t"], ["remove", "-t", "t"]):
            assert main(["acls", *arguments, "--bootstrap-server", broker.bootstrap_servers]) == 1
            assert "the broker has no authorizer" in capsys.readouterr().err
