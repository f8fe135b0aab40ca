"""A broker for the command line's tests, and the command line in this process.

With MINIBROKER_TEST_KAFKA=<folder of Apache Kafka's jars> the broker is Apache Kafka 2.0.1.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.apache_kafka import ApacheKafka
from minibroker import Broker
from minibroker.cli.app import main
from tests.integration.brokers import apache_kafka_jars
from tests.minibroker.conversations import Conversation, Screen
from tests.minibroker.records_by_hand import Records


@pytest.fixture(scope="session")
def cli_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of one broker for all tests of commands."""
    jars = apache_kafka_jars()
    if jars is None:
        with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
            yield broker.bootstrap_servers
        return
    with ApacheKafka(jars, tmp_path_factory.mktemp("kafka"), heap="512m") as kafka:
        yield kafka.bootstrap


class CommandLine:
    """Commands in this process, on one broker; `new` gives names that no other test uses."""

    _numbers = itertools.count()

    def __init__(self, bootstrap: str, capsys: pytest.CaptureFixture[str]) -> None:
        self.bootstrap = bootstrap
        self.records = Records(bootstrap)
        self._capsys = capsys
        self._prefix = f"cli-{next(self._numbers)}-"

    def new(self, name: str) -> str:
        return self._prefix + name

    def run(self, *arguments: object) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        status = main([*map(str, arguments), "--bootstrap-server", self.bootstrap])
        printed = self._capsys.readouterr()
        return status, printed.out, printed.err

    def out(self, *arguments: object) -> str:
        """Standard output of a command that does what it should."""
        status, out, err = self.run(*arguments)
        assert status == 0, err
        return out

    def lines(self, *arguments: object) -> list[list[str]]:
        """Words of each line."""
        return [line.split() for line in self.out(*arguments).splitlines()]

    def document(self, *arguments: object) -> Any:
        """The one JSON document that a command prints, and nothing else."""
        status, out, err = self.run(*arguments, "-o", "json")
        assert (status, err) == (0, "")
        assert out.count("\n") == 1
        return json.loads(out)

    def complaint(self, *arguments: object) -> str:
        """The one line of a command that fails."""
        status, out, err = self.run(*arguments)
        assert (status, out) == (1, "")
        (line,) = err.splitlines()
        return line

    def topic(
        self, name: str = "flights", *, partitions: int = 1, values: list[str] | None = None, **configs: object
    ) -> str:
        """A new topic, those values in its first partition; its full name. Configs have _ for a dot."""
        topic = self.new(name)
        settings = [f"--config={key.replace('_', '.')}={value}" for key, value in configs.items()]
        self.out("topics", "create", topic, "-p", partitions, *settings)
        self.records.write(topic, values or [])
        return topic


@pytest.fixture
def cli(cli_bootstrap: str, capsys: pytest.CaptureFixture[str]) -> CommandLine:
    return CommandLine(cli_bootstrap, capsys)


@pytest.fixture
def conversation(tmp_path: Path) -> Iterator[Conversation]:
    begun = Conversation(tmp_path / "transcript")
    yield begun
    begun.close()


@pytest.fixture
def screen(capsys: pytest.CaptureFixture[str]) -> Screen:
    return Screen(capsys)
