"""`minibroker quotas`: what it lists, sets and removes; on minibroker, and on a Kafka that has the APIs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker.cli.app import main
from minibroker.process import Broker
from tests.integration.later_kafka import LaterKafka
from tests.minibroker.conftest import CommandLine

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture(scope="module", params=["minibroker", pytest.param("Apache Kafka 3.9.1", marks=pytest.mark.nightly)])
def cli_bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker of its own: the quotas of a cluster are all of its clients'."""
    if request.param == "minibroker":
        with Broker() as broker:
            yield broker.bootstrap_servers
        return
    kafka = LaterKafka(tmp_path_factory.mktemp("kafka"))
    try:
        yield kafka.start().bootstrap
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka 3.9.1 cannot be had: {reason}")
    finally:
        kafka.kill()


@pytest.fixture(autouse=True)
def without_quotas(cli: CommandLine) -> None:
    for row in cli.document("quotas", "list"):
        options = [
            each
            for kind, name in row["entity"].items()
            for each in ([f"--default-{kind}"] if name is None else [f"--{kind}", name])
        ]
        cli.out("quotas", "remove", *options)


def test_what_was_set_is_listed_and_removed(cli: CommandLine) -> None:
    assert (
        cli.out("quotas", "set", "--client-id", "slow", "consumer_byte_rate=10000", "request_percentage=12.5")
        == "set: consumer_byte_rate=10000\nset: request_percentage=12.5\n"
    )
    cli.out("quotas", "set", "--user", "ann", "--default-client-id", "producer_byte_rate=1048576")
    cli.out("quotas", "set", "--default-user", "request_percentage=50")

    assert cli.lines("quotas", "list") == [
        ["USER", "CLIENT-ID", "QUOTA", "LIMIT", "UNIT"],
        ["slow", "consumer_byte_rate", "10000", "bytes/s"],
        ["slow", "request_percentage", "12.5", "%", "of", "one", "core"],
        ["(default)", "request_percentage", "50", "%", "of", "one", "core"],
        ["ann", "(default)", "producer_byte_rate", "1048576", "bytes/s"],
    ]
    assert cli.document("quotas", "list", "--user", "ann") == [
        {"entity": {"user": "ann", "client-id": None}, "quotas": {"producer_byte_rate": 1048576.0}}
    ]

    assert cli.out("quotas", "remove", "-c", "slow", "request_percentage") == "removed: request_percentage\n"
    assert cli.document("quotas", "remove", "-c", "slow")["removed"] == ["consumer_byte_rate"]
    assert cli.run("quotas", "list", "-c", "slow")[2] == "minibroker: no quotas\n"


def test_setting_one_quota_leaves_the_others(cli: CommandLine) -> None:
    cli.out("quotas", "set", "-u", "ann", "producer_byte_rate=1")
    cli.out("quotas", "set", "-u", "ann", "consumer_byte_rate=2")
    cli.out("quotas", "set", "-u", "ann", "-c", "app", "consumer_byte_rate=3")

    assert [row["quotas"] for row in cli.document("quotas", "list", "-u", "ann")] == [
        {"consumer_byte_rate": 2.0, "producer_byte_rate": 1.0},
        {"consumer_byte_rate": 3.0},
    ]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["set", "-u", "ann", "nope=1"], "user ann: Invalid configuration key nope; "),
        (["set", "-u", "ann", "producer_byte_rate=0"], "Quota producer_byte_rate must be greater than 0; "),
        (["set", "--default-user", "producer_byte_rate=1.5"], "the default user: producer_byte_rate cannot be a fract"),
        (["set", "-c", "", "producer_byte_rate=1"], "Empty client-id not supported; "),
        (["remove", "-u", "bob"], "user bob has no quotas; `minibroker quotas list` shows all quotas"),
        (["remove", "-u", "bob", "-c", "x", "request_percentage"], "user bob, client-id x has no quota request_perc"),
    ],
)
def test_a_refusal_is_one_line_with_the_next_step(cli: CommandLine, arguments: list[str], reason: str) -> None:
    assert reason in cli.complaint("quotas", *arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        ["set", "producer_byte_rate=1"],
        ["remove"],
        ["set", "-u", "ann", "--default-user", "producer_byte_rate=1"],
        ["set", "-u", "ann", "producer_byte_rate=much"],
        ["set", "-u", "ann", "producer_byte_rate=nan"],
        ["list", "-c", "x", "--default-client-id"],
    ],
)
def test_wrong_arguments_are_a_usage_error(arguments: list[str]) -> None:
    assert main(["quotas", *arguments, "-b", "127.0.0.1:1"]) == 2
