"""`python -m tests.client_matrix`: runs the tests of what clients can do, and notes the results by client and ability.

A test of an ability has the mark `ability("groups")`. Its clients are those that its parameters name, or that the mark
does: `ability("records", "Spark")`. The results are in tests/golden/client-matrix.json, from which
docs/reference/generate.py makes docs/reference/clients.md. A run replaces the cells whose tests it has run.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, cast

import pytest

from tests.setup_clients import DRIVERS, EARLIER_CLIENTS, KAFKAJS, NODE_PACKAGES, PLATFORMATIC, ROOT, python_of

RESULTS = ROOT / "tests" / "golden" / "client-matrix.json"
ABILITIES = {
    "records": "writes records of every shape with every codec that it has, and reads what others wrote",
    "old formats": "reads message formats 0 and 1, or speaks no later one",
    "idempotence": "an idempotent producer keeps each record once and in order",
    "groups": "members share a group, leave and die, and go on where it committed",
    "static": "static members",
    "cooperative": "the cooperative assignor",
    "new protocol": "the consumer protocol of Kafka 4 (KIP-848)",
    "transactions": "copies records exactly once, in transactions, while it is killed",
    "transactions v2": "the same with `transaction.version` 2 (KIP-890)",
    "share groups": "share groups (KIP-932)",
    "logins": "PLAIN, SCRAM, OAUTHBEARER and certificates",
    "administration": "topics, configs, groups",
    "serializers": "records of Avro, JSON Schema or Protobuf outlive changes of their schemas in the registry",
    "fail-over": "goes on while the leader, or each broker of three, dies",
}
OF_RELEASE = "as "  # with the release's name: what a client can do under `--act-as` (test_clients_of_releases.py)
ABILITIES |= {
    f"{OF_RELEASE}{name}": f"`--act-as {name}`" for name in ("0.10", "0.11", "1.1", "2.0", "2.8", "3.9", "4.0", "4.4")
}

NEW_PROTOCOL = "/consumer"  # behind a client that a test lets use it, beside members of the classic one


def of_pip(package: str) -> Callable[[], str]:
    return lambda: version(package)


def of_environment(name: str) -> Callable[[], str]:
    package = name.rpartition("-")[0]
    program = f"import importlib.metadata as m; print(m.version({package!r}))"
    return lambda: output_of(str(python_of(name)), "-c", program)


def of_go(module: str) -> Callable[[], str]:
    text = (DRIVERS / "franz_go" / "go.mod").read_text()
    return lambda: re.findall(rf"{re.escape(module)} v(\S+)", text)[0]


def output_of(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def kcat_version() -> str:
    return output_of("kcat", "-V").split("Version ")[1].split()[0]


# A row: the client, its version, and how parameters of tests call it.
ROWS: list[tuple[str, Callable[[], str], tuple[str, ...]]] = [
    ("kafka-python", of_pip("kafka-python"), ("kafka-python-3.0", "kafka-python")),
    ("kafka-python", of_environment("kafka-python-2.3"), ("kafka-python-2.3",)),
    ("kafka-python as 0.10", of_environment("kafka-python-2.3"), ("kafka-python-as-0.10",)),
    ("kafka-python as 0.9", of_environment("kafka-python-2.3"), ("kafka-python-as-0.9",)),
    ("confluent-kafka (librdkafka)", of_pip("confluent-kafka"), ("confluent-kafka",)),
    ("librdkafka as 0.10", of_pip("confluent-kafka"), ("librdkafka-as-0.10",)),
    ("librdkafka as 0.9", of_pip("confluent-kafka"), ("librdkafka-as-0.9",)),
    ("aiokafka", of_pip("aiokafka"), ("aiokafka",)),
    *((name.rpartition("-")[0], of_environment(name), (name,)) for name in EARLIER_CLIENTS),
    ("Apache Kafka's Java client", lambda: "4.4.0", ("java-4.4",)),
    ("Apache Kafka's Java client", lambda: "3.9.0", ("java-3.9", "java")),
    ("Apache Kafka's Java client", lambda: "1.1.1", ("java-1.1", "1.1")),
    ("Apache Kafka's Java client", lambda: "0.11.0.3", ("java-0.11", "0.11")),
    ("Apache Kafka's Java client", lambda: "0.10.2.2", ("java-0.10.2", "0.10")),
    ("KafkaJS", lambda: NODE_PACKAGES[KAFKAJS].rpartition("@")[2], ("kafkajs",)),
    ("@platformatic/kafka", lambda: NODE_PACKAGES[PLATFORMATIC].rpartition("@")[2], ("@platformatic/kafka",)),
    ("franz-go", of_go("franz-go"), ("franz-go",)),
    ("kcat", kcat_version, ("kcat",)),
    ("Apache Kafka's own tools", lambda: "2.0.1", ("tools of 2.0",)),
    ("Apache Kafka's own tools", lambda: "4.4.0", ("tools of 4.4",)),
    ("Spark's Kafka source and sink", of_pip("pyspark"), ("Spark",)),
    ("Flink's Avro serializers", lambda: "1.20.0", ("Flink",)),
    ("Kafka Streams", lambda: "4.4.0", ("Kafka Streams",)),
    ("Kafka Connect", lambda: "4.3.1", ("Kafka Connect",)),
    ("MirrorMaker", lambda: "4.3.1", ("MirrorMaker",)),
]
ROW_OF = {name: number for number, (_, _, names) in enumerate(ROWS) for name in names}


def cells_of(item: pytest.Item) -> set[tuple[str, int]]:
    """Each ability that the test is about, with the row of each of its clients."""
    found: set[tuple[str, int]] = set()
    params = item.callspec.params if hasattr(item, "callspec") else {}
    if "kafka" in f"{params.get('secured')} {params.get('share_broker')}".lower():  # which proves the test right
        return found
    for mark in item.iter_markers("ability"):
        ability, *named = mark.args
        assert ability in ABILITIES, f"{item.nodeid}: {ability} is not one of {', '.join(ABILITIES)}"
        names = named or [*names_in(params)]
        with_protocol = [each.removesuffix(NEW_PROTOCOL) for each in names if each.endswith(NEW_PROTOCOL)]
        found |= {(ability, ROW_OF[name]) for name in with_protocol or names if name in ROW_OF}
    return found


def names_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from names_in(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from names_in(each)


class Matrix:
    """A plugin of pytest, which sees each result in the process that collects them."""

    def __init__(self) -> None:
        self.results: dict[tuple[str, int], list[tuple[str, str]]] = defaultdict(list)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            for name, cell in report.user_properties:
                if name == "cell":
                    ability, row = cast(tuple[str, int], cell)
                    self.results[ability, row].append((report.nodeid, report.outcome))

    def write(self) -> None:
        known = json.loads(RESULTS.read_text())["clients"] if RESULTS.exists() else []
        cells = {(row["client"], row["version"]): row["cells"] for row in known}
        day = datetime.now(UTC).date().isoformat()
        table = []
        asked = {number for _, number in self.results}
        for number, (client, version_of, _) in enumerate(ROWS):
            if number not in asked and len(known) == len(ROWS):
                table.append(known[number])
                continue
            ran = version_of()
            row = dict(cells.get((client, ran), {}))
            for ability in ABILITIES:
                outcomes = self.results.get((ability, number), [])
                if failed := [nodeid for nodeid, outcome in outcomes if outcome == "failed"]:
                    row[ability] = {"day": day, "failed": sorted(failed)}
                elif passed := sum(outcome == "passed" for _, outcome in outcomes):
                    row[ability] = {"day": day, "passed": passed}
            ordered = {ability: row[ability] for ability in ABILITIES if ability in row}
            table.append({"client": client, "version": ran, "cells": ordered})
        RESULTS.write_text(json.dumps({"abilities": ABILITIES, "clients": table}, indent=1) + "\n")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        item.user_properties += [("cell", cell) for cell in sorted(cells_of(item))]


def main() -> int:
    matrix = Matrix()
    chosen = ["-m", "ability and (nightly or not nightly)", "-p", "tests.client_matrix", *sys.argv[1:]]
    status = pytest.main(chosen, plugins=[matrix])
    matrix.write()
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
