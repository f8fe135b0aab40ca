"""`minibroker topics`: what it shows, and what it says when something is wrong.

With MINIBROKER_TEST_KAFKA=<folder of Apache Kafka's jars> the same tests run against Apache Kafka 2.0.1.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker import Broker
from minibroker.cli import terminal
from minibroker.cli.address import parse_address
from minibroker.cli.app import main
from minibroker.protocol.api import ApiKey
from tests.integration.brokers import apache_kafka_jars
from tests.integration.hostile_batches import valid
from tests.integration.wire import RawConnection, produce_body, the_partition
from tests.minibroker.commands import minibroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one broker for all of this file."""
    jars = apache_kafka_jars()
    if jars is None:
        with Broker() as broker:
            yield broker.bootstrap_servers
        return
    with ApacheKafka(jars, tmp_path_factory.mktemp("kafka"), heap="512m") as kafka:
        yield kafka.bootstrap


@pytest.fixture
def topics(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> Iterator[Topics]:
    topics = Topics(bootstrap, capsys)
    yield topics
    topics.run("delete", "--if-exists", *topics.made)


class Topics:
    """The `topics` commands in this process; `new` gives names that no other test uses."""

    _numbers = itertools.count()

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self._bootstrap = bootstrap
        self._capsys = capsys
        self._prefix = f"test-{next(self._numbers)}-"
        self.made = [self.new("none-at-all")]

    def new(self, name: str) -> str:
        return self._prefix + name

    def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        if command == "create":
            self.made += [name for name in arguments if name.startswith(self._prefix)]
        status = main(["topics", command, *arguments, "--bootstrap-server", self._bootstrap])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    def created(self, name: str, *arguments: str) -> str:
        """A new topic, by its full name."""
        name = self.new(name)
        assert self.run("create", name, *arguments) == (0, f"created: {name}\n", "")
        return name

    def listed(self) -> list[dict[str, object]]:
        """The rows of this test's topics in `list -o json`."""
        rows = json_of(self.run("list", "-o", "json"))
        return [row for row in rows if row["name"].startswith(self._prefix)]

    def complaint(self, command: str, *arguments: str) -> str:
        status, out, err = self.run(command, *arguments)
        assert (status, out) == (1, "")
        (line,) = err.splitlines()
        return line


def json_of(result: tuple[int, str, str]) -> Any:
    status, out, err = result
    assert (status, err) == (0, "")
    assert out.count("\n") == 1
    return json.loads(out)


# -- what there is


def test_without_topics_the_list_says_how_to_make_one(capsys: pytest.CaptureFixture[str]) -> None:
    with Broker() as fresh:
        assert main(["topics", "list", "-b", fresh.bootstrap_servers]) == 0
        as_text = capsys.readouterr()
        assert main(["topics", "list", "-b", fresh.bootstrap_servers, "-o", "json"]) == 0
        as_json = capsys.readouterr()

    assert as_text.out == ""
    assert "minibroker topics create NAME" in as_text.err
    assert (as_json.out, as_json.err) == ("[]\n", "")


def test_created_topics_are_listed_with_their_partitions(topics: Topics) -> None:
    flights = topics.created("flights", "-p", "3")
    airports = topics.created("airports")

    status, out, _ = topics.run("list")

    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert lines[0] == ["TOPIC", "PARTITIONS", "REPLICAS"]
    assert [line for line in lines if line[0] in (flights, airports)] == [[airports, "1", "1"], [flights, "3", "1"]]
    assert topics.listed() == [
        {"name": airports, "partitions": 1, "replication_factor": 1, "internal": False},
        {"name": flights, "partitions": 3, "replication_factor": 1, "internal": False},
    ]


def test_several_topics_are_created_and_deleted_at_once(topics: Topics) -> None:
    names = [topics.new("a"), topics.new("b")]

    status, created, _ = topics.run("create", *names)
    assert status == 0
    status, deleted, _ = topics.run("delete", *names)

    assert status == 0
    assert sorted(created.splitlines()) == [f"created: {name}" for name in names]
    assert sorted(deleted.splitlines()) == [f"deleted: {name}" for name in names]
    assert topics.listed() == []


def test_describe_shows_partitions_offsets_and_configs(topics: Topics, bootstrap: str) -> None:
    name = topics.created("flights", "-p", "2", "-c", "retention.ms=-1", "-c", "segment.bytes=100000")
    produce_three_records(bootstrap, name, partition=1)

    status, out, _ = topics.run("describe", name)

    lines = [line.split() for line in out.splitlines()]
    assert status == 0
    assert lines[0] == ["PARTITION", "LEADER", "REPLICAS", "IN", "SYNC", "EARLIEST", "LATEST"]
    assert lines[1:3] == [["0", "0", "0", "0", "0", "0"], ["1", "0", "0", "0", "0", "3"]]
    assert ["retention.ms=-1"] in lines
    assert ["segment.bytes=100000"] in lines
    assert "cleanup.policy" not in out
    assert "--all-configs" in out


def test_describe_shows_defaults_when_asked(topics: Topics) -> None:
    name = topics.created("flights", "-c", "retention.ms=-1")

    _, out, _ = topics.run("describe", name, "--all-configs")

    assert "retention.ms=-1\n" in out
    assert "cleanup.policy=delete  (default)\n" in out


def test_describe_as_json_is_one_object(topics: Topics, bootstrap: str) -> None:
    name = topics.created("flights", "-c", "retention.ms=-1")
    produce_three_records(bootstrap, name, partition=0)

    document = json_of(topics.run("describe", name, "--output", "json"))

    assert document["defaults"].pop("cleanup.policy") == "delete"
    assert len(document.pop("defaults")) > 20
    assert document == {
        "name": name,
        "internal": False,
        "partitions": [{"partition": 0, "leader": 0, "replicas": [0], "isr": [0], "earliest": 0, "latest": 3}],
        "configs": {"retention.ms": "-1"},
    }


def test_describing_a_topic_does_not_create_it(topics: Topics) -> None:
    topics.run("describe", topics.new("not-yet"))

    assert topics.listed() == []


def test_a_topic_grows_to_so_many_partitions(topics: Topics) -> None:
    name = topics.created("flights")

    assert topics.run("grow", name, "--partitions", "3") == (0, f"grown: {name}\n", "")

    assert topics.listed() == [{"name": name, "partitions": 3, "replication_factor": 1, "internal": False}]


# -- refusals


def test_a_topic_does_not_shrink(topics: Topics) -> None:
    name = topics.created("flights", "-p", "3")

    line = topics.complaint("grow", name, "-p", "2")

    assert "currently has 3 partitions" in line
    assert "--partitions" in line


def test_a_topic_that_is_not_there_does_not_grow(topics: Topics) -> None:
    line = topics.complaint("grow", topics.new("missing"), "-p", "2")

    assert "does not exist" in line
    assert "minibroker topics list" in line


def test_a_topic_that_exists_is_refused_with_the_way_on(topics: Topics) -> None:
    name = topics.created("flights")

    line = topics.complaint("create", name)

    assert f"'{name}' already exists" in line
    assert f"minibroker topics describe {name}" in line
    assert topics.run("create", name, "--if-not-exists") == (0, f"exists: {name}\n", "")


@pytest.mark.parametrize("command", ["describe", "delete"])
def test_a_topic_that_is_not_there_is_refused_with_the_way_on(topics: Topics, command: str) -> None:
    name = topics.new("missing")

    line = topics.complaint(command, name)

    assert f"topic {name} does not exist" in line
    assert "minibroker topics list" in line


def test_deleting_what_is_not_there_may_be_allowed(topics: Topics) -> None:
    name = topics.new("missing")

    assert topics.run("delete", name, "--if-exists") == (0, f"absent: {name}\n", "")


@pytest.mark.parametrize(
    ("name", "options", "said", "advice"),
    [
        ("x y", [], "is illegal", "use letters"),
        ("flights", ["-r", "3"], "larger than available brokers", "--replication-factor"),
        ("flights", ["-c", "no.such.config=1"], "no.such.config", "--all-configs"),
        ("flights", ["-c", "retention.ms=soon"], "Invalid value soon for configuration retention.ms", "; "),
    ],
)
def test_a_topic_the_broker_refuses_is_told_in_its_words_with_advice(
    topics: Topics, name: str, options: list[str], said: str, advice: str
) -> None:
    line = topics.complaint("create", topics.new(name), *options)

    assert said in line
    assert advice in line


def test_what_could_be_done_is_done_and_the_rest_told(topics: Topics) -> None:
    old, new = topics.created("old"), topics.new("new")

    status, out, err = topics.run("create", old, new)

    assert status == 1
    assert out == f"created: {new}\n"
    assert len(err.splitlines()) == 1


def test_json_of_a_partial_success_has_both_outcomes(topics: Topics) -> None:
    there, missing = topics.created("there"), topics.new("missing")

    status, out, err = topics.run("delete", there, missing, "-o", "json")

    rows = {row["name"]: row for row in json.loads(out)}
    assert status == 1
    assert rows[there] == {"name": there, "outcome": "deleted", "error": None}
    assert rows[missing]["outcome"] == "failed"
    assert rows[missing]["error"] in err


# -- as a process


def test_the_first_address_that_answers_is_used(bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topics", "list", "-o", "json", "-b", f"127.0.0.1:1,{bootstrap}"]) == 0

    assert capsys.readouterr().err == ""


def test_the_address_may_come_from_the_environment(bootstrap: str) -> None:
    assert minibroker("topics", "list", "-o", "json", MINIBROKER_BOOTSTRAP=bootstrap).document is not None


def test_a_failure_is_one_line_and_status_1() -> None:
    done = minibroker("topics", "list", "-b", "127.0.0.1:1")

    assert done.status == 1
    assert "no broker at 127.0.0.1:1" in done.complaint


def test_colours_are_for_terminals(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")

    terminal.complain("[bold]not markup[/]")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    terminal.complain("x")
    monkeypatch.setenv("NO_COLOR", "1")
    terminal.complain("x")

    lines = capsys.readouterr().err.splitlines()
    assert lines == ["minibroker: [bold]not markup[/]", "\x1b[31mminibroker:\x1b[0m x", "minibroker: x"]


def test_a_line_is_as_long_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    terminal.complain("word " * 100)
    terminal.print_table(("TOPIC",), [("t" * 249,)], left=("TOPIC",))

    printed = capsys.readouterr()
    assert len(printed.err.splitlines()) == 1
    assert printed.out.splitlines()[1].rstrip() == "t" * 249


def produce_three_records(bootstrap: str, topic: str, *, partition: int) -> None:
    address = parse_address(bootstrap)
    with RawConnection(address.host, address.port) as connection:
        body = produce_body(topic, bytes(valid()), partition=partition)
        assert the_partition(connection.call(ApiKey.PRODUCE, 3, body)).error_code == 0
