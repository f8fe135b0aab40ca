"""Writes the reference pages beside it: `python docs/reference/generate.py`.

python.md and pytest.md come from docstrings, json.md from recorded sessions of the commands, settings.md and apis.md
from the tables of settings and of APIs, ../glossary.md from the words of the console.
A test compares the pages with what this makes.
"""

from __future__ import annotations

import ast
import functools
import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import minibroker
from minibroker import pytest_plugin
from minibroker.broker.config.settings.changeable import CHANGEABLE, PER_BROKER
from minibroker.broker.config.settings.table import KafkaSettings
from minibroker.broker.config.settings.types import Setting
from minibroker.broker.config.settings.unused import ONLY_CHECKED, UNUSED, UNUSED_SETTINGS, Reason
from minibroker.broker.wings.consumer import wing as consumer
from minibroker.broker.wings.looking import families as looking
from minibroker.broker.wings.quotas import wing as quotas
from minibroker.broker.wings.share import wing as share
from minibroker.cli.app import GROUPS
from minibroker.metrics.catalogue import HISTOGRAM, Entry, entries_of, entries_of_cluster
from minibroker.protocol.api_table import API_TABLE, Api
from minibroker.protocol.rights import FOREVER, Right
from minibroker.storage.config import TOPIC_CONFIGS, LogConfig

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
# In the order in which a reader meets them.
NAMES = (
    "Broker", "Cluster", "ClusterClock", "Replica", "running_broker", "Acl", "Record", "BrokerError", "WaitError",
    "SettingWarning", "BrokerClock",
    "Faults", "Fault", "ClientConnection", "Explanation", "Explained", "Transcript", "Exchange", "Event", "msk", "Msk",
)  # fmt: skip
# Made by a Broker, not by its users.
MADE_BY_A_BROKER = (
    "BrokerClock",
    "ClusterClock",
    "Replica",
    "Faults",
    "Fault",
    "Explanation",
    "Explained",
    "Exchange",
    "Msk",
)
NOT_WHILE_IT_RUNS = ("listeners",)  # refused, see below there
OPTION = re.compile(r"^(`[\w.]+`: )", re.M)
NO_LIMIT = {str(2**63 - 1): "no limit", str(2**31 - 1): "no limit", "1.7976931348623157e+308": "no limit"}
PYTHON_HEAD = """\
Everything that `from minibroker import ...` has, as `pydoc minibroker` shows it. The recipes for
[pytest](../recipes/pytest.md), [unittest](../recipes/unittest.md) and [asyncio](../recipes/asyncio.md) use it."""
SETTINGS_HEAD = """\
# Settings

All settings of a broker and of a topic of Apache Kafka 2.0, with their names, types and defaults there, and what
minibroker does with them. `server.properties`, `--set`, `Broker(settings=...)` and KAFKA_* variables take the same
names.

- **Honoured**: works as in Kafka. Under *changes*, *yes* means that `minibroker configs set` changes it while the
  broker runs, *broker* that it has to name one broker.
- **Accepted**: checked as Kafka checks it, and without effect. The log gives the reason at the start.
- **Refused**: the broker prints the reason and does not start; `minibroker config lint` lists all reasons.
- A name that Kafka 2.0 does not have is a warning in the log, and an error of `Broker(settings=...)`, unless
  `unknown_settings=True` makes it a `SettingWarning`.
- **group.initial.rebalance.delay.ms** is 0, **group.consumer.heartbeat.interval.ms** 250 and
  **group.consumer.assignment.interval.ms** 0 for every `Broker`, and for a `serve` on this machine alone without
  --config, --environment and --act-as; a value that is set counts."""
REFUSED = """\
- A listener with TLS to which no client could connect: without a certificate, or with no protocol or cipher suite that
  exists. Kafka starts with those.
- A key store that is JKS, the format of Java; the message has the command that converts it.
- More than one directory in `log.dirs`.
- A value that Kafka refuses, with Kafka's message: of another type, out of bounds, or against a rule between settings.
- While the broker runs: `listeners`; and secrets, as by a Kafka without `password.encoder.secret`."""
TOPICS_HEAD = """\
A topic's own config comes first, then the broker's setting, then the default. The two throttles and
`unclean.leader.election.enable` count in a cluster of several brokers."""

APIS_HEAD = """\
# APIs

All APIs that the broker serves, with its versions of them and those of Apache Kafka 2.0.1. The last versions are those
of Apache Kafka 4.4.0, except for InitProducerId 6, which that release keeps back. *Since* is the release of Kafka that
brought an API: before 2.0 the first that has it of those that [`--act-as`](../profiles.md) names.

*Rights* are what a broker with an authorizer asks for, in this order ([recipe](../recipes/acls.md)): on topics, groups
and transactional ids for each that the request names, or that its answer would name."""

NOT_OFFERED_HEAD = """\
Whatever release of Kafka up to 4.4 a client takes this broker for, it finds the versions of each API that this release
has, except of these. `tests/protocol/test_releases.py` compares."""
# What releases of Kafka up to 4.4 offer besides, by the reason: the first key of a range, and its names.
NOT_OFFERED = {
    "between brokers and controllers; a broker of a cluster of several serves the first four": (
        (4, "LeaderAndIsr StopReplica UpdateMetadata ControlledShutdown"),
        (56, "AlterPartition"),
        (58, "Envelope"),
        (67, "AllocateProducerIds"),
        (83, "InitializeShareGroupState ReadShareGroupState WriteShareGroupState DeleteShareGroupState"),
        (87, "ReadShareGroupStateSummary"),
    ),
    "there is no quorum of controllers": (
        (55, "DescribeQuorum"),
        (64, "UnregisterBroker"),
        (80, "AddRaftVoter RemoveRaftVoter"),
        (94, "UnregisterController"),
    ),
    "listed with a receiver of client metrics, which this broker lacks; a client that asks is answered": (
        (71, "GetTelemetrySubscriptions PushTelemetry"),
    ),
    "there are no streams groups": (
        (88, "StreamsGroupHeartbeat StreamsGroupDescribe"),
        (93, "StreamsGroupTopologyDescriptionUpdate"),
    ),
}

RESULTS = ROOT / "tests" / "golden" / "client-matrix.json"
CLIENTS_HEAD = """\
# Clients and what they can do

Each cell is the day on which all tests of an ability passed with that version of a client; an empty one has no test.
`make matrix` runs the tests, and writes this page."""
CLIENTS_OF_RELEASES = """\
## Under `--act-as`

Each cell is the day on which a client wrote and read, read in a group, and copied records in transactions with a
minibroker that acts as the release, as far as it can do so with the release itself. Java's client of 4.x wants 2.1 and
later; in transactions it and that of 3.9 want 2.8, and none has them with 0.10. An empty cell was not run, or client
and release refuse each other."""

TERMS = ROOT / "src" / "minibroker" / "console" / "static" / "terms.js"
GLOSSARY_HEAD = """\
# Glossary

What words mean that the [console](console.md) and these documents use. The console's columns link to the same text."""

COMMANDS = ROOT / "tests" / "golden" / "commands"
JSON_HEAD = """\
# JSON of the commands

With `-o json` a command prints one JSON document; `consume`, `dump-log`, `explain` and `transcript` print one per line.
Here are the fields of each command's document, from recorded sessions that tests compare. A release may add fields. It
neither renames nor removes one, nor gives it another type.

`[].name` is the field `name` of each element of a list, and `configs.*` a field of `configs` with any name. A field
that is only null here has a text or a number in other cases: an `error` is a text. Times are in ms since 1970, sizes in
bytes."""

MASKED = re.compile(r"(?<=: )(ID|MILLISECONDS|E|SECONDS)\b")
NAMES_AS_KEYS = ("configs", "defaults", "quotas", "entity")  # of objects with keys of the cluster
TYPES = {bool: "true or false", int: "number", float: "number", str: "text", type(None): "null"}
METRICS_HEAD = """\
# Metrics

What `minibroker serve --metrics HOST:PORT` and `minibroker metrics` give Prometheus
([recipe](../recipes/grafana.md)), and `Broker.metrics()` a test.

A broker without `--metrics` counts only while its control socket is asked, and for five minutes after that; what it
knows anyway, such as offsets, sizes and records appended, is exact at any time. Nothing is done per record."""
METRICS_OF_BROKER = """\
A minibroker's own, with the names that the JMX exporter's rules for Kafka 2.0 give those of Kafka. An MBean of Kafka
has the type, the name and the labels: `kafka.log:type=Log,name=Size,topic=orders,partition=0`. Rates of Kafka are
counters here. A histogram has the label `quantile` (0.50, 0.75, 0.95, 0.98, 0.99, 0.999), of the last 1,028 samples,
and `_count`. What differs from Kafka:

- One thread reads a request, handles it and writes the answer. So nothing is queued, and `RequestQueueTimeMs` and
  `ResponseQueueTimeMs` are always 0. `LocalTimeMs` is the handler and the encoding, without decoding.
  `ResponseSendTimeMs` lasts until the kernel has taken the last byte. The idle percentages of threads do not exist.
- A busy broker times up to 200 requests of each API a second, and counts all.
- Bytes of sockets are those of TCP, as the kernel of Linux counts them; with TLS they are encrypted. Kafka's are those
  of requests and responses. There is one `networkProcessor`, 0.
- Quotas have rates once a quota was set, as in Kafka: `user` or `clientId` is empty if the quota does not name it.
- Batches that are recognized as duplicates count nowhere.
- `FetchMessageConversionsPerSec` counts answered partitions, not records: they are converted while they are sent.
- `MessageConversionsTimeMs` and `TemporaryMemoryBytes` are absent: conversion counts into `LocalTimeMs` for Produce and
  into `ResponseSendTimeMs` for Fetch, and takes the memory of a few batches at a time.
- A fetch in a session counts for the topics that the session has at the scrape.
- Rows without labels are sums, in which deleted topics stay."""
METRICS_OF_CLUSTER = """\
Of any Kafka cluster, with the names and labels of kafka_exporter; the lag in seconds has that of lag exporters. It is
the time since the partition's end was at the group's committed offset, as far as earlier scrapes know."""


def text_of(thing: Any) -> str:
    """The docstring as Markdown: lines that begin with an argument's name are a list."""
    return OPTION.sub(r"- \1", inspect.getdoc(thing) or "")


# -- python.md


def python_page() -> str:
    parts = [
        "# Python reference",
        PYTHON_HEAD,
    ]
    for name in NAMES:
        thing = getattr(minibroker, name)
        parts += [f"## {name}", code(name, thing), text_of(thing)]
        for member, value in members_of(thing):
            parts += [f"### {name}.{member}", *member_parts(f"{name[0].lower()}{name[1:]}.{member}", value)]
    return "\n\n".join(part for part in parts if part) + "\n"


def members_of(thing: Any) -> Iterator[tuple[str, Any]]:
    """The public methods and properties that a class of ours declares or inherits, in their order."""
    if not inspect.isclass(thing):
        return
    ours = [each for each in thing.__mro__ if each.__module__.startswith("minibroker.")]
    for name, value in {name: value for each in reversed(ours) for name, value in vars(each).items()}.items():
        is_member = inspect.isfunction(value) or isinstance(value, property | functools.cached_property)
        if is_member and not name.startswith("_"):
            yield name, value


def member_parts(name: str, value: Any) -> list[str]:
    if inspect.isfunction(value):
        return [code(name, value), text_of(value)]
    getter = value.fget if isinstance(value, property) else value.func
    return [block(f"{name}: {getter.__annotations__['return']}"), text_of(value)]


def code(name: str, thing: Any) -> str:
    """The signature; nothing for what users do not make."""
    if name in MADE_BY_A_BROKER or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return ""
    return block(signature(name, thing))


def block(text: str) -> str:
    return f"```python\n{text}\n```"


def signature(name: str, function: Callable[..., Any]) -> str:
    found = inspect.signature(function)
    given = [each for each in found.parameters.values() if each.name != "self"]
    words: list[str] = []
    for before, each in zip([None, *given], given, strict=False):
        is_keyword = each.kind is each.KEYWORD_ONLY
        if is_keyword and (before is None or before.kind is not each.KEYWORD_ONLY):
            words.append("*")
        if before is not None and before.kind is each.POSITIONAL_ONLY and each.kind is not each.POSITIONAL_ONLY:
            words.append("/")
        stars = {each.VAR_KEYWORD: "**", each.VAR_POSITIONAL: "*"}.get(each.kind, "")
        hint = "" if each.annotation is each.empty else f": {each.annotation}"
        equals = " = " if hint else "="
        words.append(f"{stars}{each.name}{hint}" + ("" if each.default is each.empty else f"{equals}{each.default!r}"))
    result = "" if found.return_annotation in (found.empty, "Any") else f" -> {found.return_annotation}"
    line = f"{name}({', '.join(words)}){'' if inspect.isclass(function) else result}"
    if len(line) <= 100:
        return line
    inner = "".join(f"    {word},\n" for word in words)
    return f"{name}(\n{inner})" + ("" if inspect.isclass(function) else result)


# -- pytest.md


class Options:
    """Notes what the plugin's `pytest_addoption` declares."""

    def __init__(self) -> None:
        self.ini: list[tuple[str, dict[str, Any]]] = []
        self.command_line: list[tuple[str, dict[str, Any]]] = []

    def getgroup(self, name: str) -> Options:
        return self

    def addoption(self, name: str, **details: Any) -> None:
        self.command_line.append((name, details))

    def addini(self, name: str, **details: Any) -> None:
        self.ini.append((name, details))


def pytest_page() -> str:
    options = Options()
    pytest_plugin.pytest_addoption(options)  # type: ignore[arg-type]
    parts = [
        "# pytest reference",
        "The fixtures and options of the plugin, which every installation has."
        " [recipes/pytest.md](../recipes/pytest.md)\nuses them.",
        "## Fixtures",
    ]
    for name, scope, doc in fixtures():
        parts += [f"### {name}", f"Scope: {scope}.", doc]
    ini = [f"| `{name}` | {each['type']} | {each['help']} |" for name, each in options.ini]
    parts += ["## Options of the ini file", "\n".join(["| option | type | meaning |", "|---|---|---|", *ini])]
    parts.append("Each is a fixture of the session too: override it where a value has to be computed.")
    line = [
        f"| `{name} {each['metavar']}` | {each['help']} |" for name, each in options.command_line if "metavar" in each
    ]
    parts += ["## Options of the command line", "\n".join(["| option | meaning |", "|---|---|", *line])]
    return "\n\n".join(parts) + "\n"


def fixtures() -> Iterator[tuple[str, str, str]]:
    """Name, scope and docstring of each fixture, from the source: pytest wraps the functions."""
    for node in ast.parse(inspect.getsource(pytest_plugin)).body:
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in map(ast.unparse, node.decorator_list):
            if decorator.startswith("pytest.fixture"):
                yield node.name, "session" if "session" in decorator else "function", ast.get_docstring(node) or ""


# -- metrics.md


def metrics_page() -> str:
    parts = [METRICS_HEAD, "## Of a cluster", METRICS_OF_CLUSTER, cluster_table(), "## Of a minibroker"]
    parts.append(METRICS_OF_BROKER)
    families = [each for catalogue in (looking, quotas, consumer, share) for each in catalogue.FAMILIES.values()]
    entries = [entry for family in families for entry in entries_of(family.head()) if entry.kind]
    for mbean_type in dict.fromkeys(entry.type for entry in entries):
        parts += [f"### {mbean_type}", broker_table([entry for entry in entries if entry.type == mbean_type])]
    return "\n\n".join(parts) + "\n"


def apis_page() -> str:
    head = ("key", "API", "versions", "Apache Kafka 2.0.1", "since", "rights")
    missing = [
        (str(first + place), name, reason)
        for reason, ranges in NOT_OFFERED.items()
        for first, names in ranges
        for place, name in enumerate(names.split())
    ]
    parts = [APIS_HEAD, table(head, map(api_row, sorted(API_TABLE.values()))), "## Not offered", NOT_OFFERED_HEAD]
    parts.append(table(("key", "API", "why not"), iter(sorted(missing, key=lambda row: int(row[0])))))
    return "\n\n".join(parts) + "\n"


def api_row(api: Api) -> tuple[str, ...]:
    first, last = api.versions
    of_2_0 = "-" if api.last_of_2_0 < 0 else f"0-{api.last_of_2_0}"
    rights = ", ".join(f"{right}{versions_text(right)}" for right in api.rights)
    return (f"{int(api.key)}", api.name, f"{first}-{last}", of_2_0, api.since.release, rights or "-")


def versions_text(right: Right) -> str:
    first, last = right.versions
    if last < FOREVER:
        return f" (v{first}-v{last})"
    return f" (since v{first})" if first else ""


def cluster_table() -> str:
    rows = ["| metric | labels | unit | meaning |", "|---|---|---|---|"]
    for entry in entries_of_cluster():
        rows.append(f"| `{entry.prometheus}` | {', '.join(entry.labels)} | {entry.unit} | {entry.text} |")
    return "\n".join(rows)


def broker_table(entries: list[Entry]) -> str:
    rows = ["| name | metric | labels | unit | meaning |", "|---|---|---|---|---|"]
    for entry in entries:
        labels = ", ".join((*entry.labels, *(["quantile"] if entry.kind == HISTOGRAM else [])))
        rows.append(f"| `{entry.name}` | `{entry.prometheus}` | {labels} | {entry.unit} | {entry.text} |")
    return "\n".join(rows)


# -- settings.md


def settings_page() -> str:
    honoured = [
        row for row in vars(KafkaSettings).values() if isinstance(row, Setting) and row.name not in ONLY_CHECKED
    ]
    parts = [
        SETTINGS_HEAD,
        "## Honoured",
        table(("setting", "type", "default", "changes", "what it sets"), map(honoured_row, honoured)),
        "## Accepted, without effect",
    ]
    without_effect: dict[Reason, list[Setting[Any]]] = {reason: [] for reason in UNUSED}
    for row, reason in UNUSED_SETTINGS.values():
        without_effect[reason].append(row)
    for name, reason in ONLY_CHECKED.items():
        without_effect.setdefault(reason, []).append(getattr(KafkaSettings, name.replace(".", "_")))
    for reason, rows in without_effect.items():
        parts += [accepted(reason), table(("setting", "type", "default"), map(short_row, sorted(rows, key=by_name)))]
    parts += [
        "`listener.name.NAME.*` is accepted like the settings of encryption.",
        "## Refused",
        REFUSED,
        "## Topics",
        TOPICS_HEAD,
        table(
            ("config", "type", "default", "broker's setting", "what it sets"), map(topic_row, TOPIC_CONFIGS.values())
        ),
    ]
    return "\n\n".join(parts) + "\n"


def accepted(reason: Reason) -> str:
    return f"### {reason.text[0].upper()}{reason.text[1:]}" + ("\n\nA warning in the log." if reason.is_warning else "")


def by_name(row: Setting[Any]) -> str:
    return row.name


def honoured_row(row: Setting[Any]) -> tuple[str, ...]:
    changes = "broker" if row.name in PER_BROKER else "yes" if row.name in CHANGEABLE else ""
    if row.name in NOT_WHILE_IT_RUNS:
        changes = ""
    return (*short_row(row), changes, row.doc)


def short_row(row: Setting[Any]) -> tuple[str, ...]:
    return (f"`{row.name}`", row.kind.name.lower(), shown(row.write(row.default)))


def topic_row(row: Any) -> tuple[str, ...]:
    default = LogConfig().value_text(row.name)
    servers = " ".join(f"`{name}`" for name in row.server_names)
    return (f"`{row.name}`", row.type.value.lower(), shown(default), servers, row.doc)


def shown(default: str | None) -> str:
    if default is None:
        return "-"
    return NO_LIMIT.get(default, f"`{default}`" if default else "empty")


def table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


# -- json.md


def json_page() -> str:
    found: dict[str, dict[str, dict[str, Any]]] = {}  # by command and field an example of each type
    for path in sorted(COMMANDS.glob("*.txt")):
        for command, document in documents(path.read_text(encoding="utf-8")):
            fields = found.setdefault(command, {})
            for field, value in fields_of(document):
                types = fields.setdefault(field, {})
                types[TYPES[type(value)]] = types.get(TYPES[type(value)]) or value
    parts = [JSON_HEAD]
    for command, by_field in sorted(found.items()):
        rows = [
            (f"`{field}`", " or ".join(sorted(types, key="null".__eq__)), example_of(types))
            for field, types in by_field.items()
        ]
        parts += [f"## {command}", table(("field", "type", "example"), iter(rows))]
    return "\n\n".join(parts) + "\n"


def documents(text: str) -> Iterator[tuple[str, Any]]:
    """The documents in the sessions of a book, each with the command that printed it."""
    for session in re.split(r"^(?=[$>=])", text, flags=re.MULTILINE):
        line, _, printed = session.partition("\n")
        if not re.match(r"\$ (printf .* \| )?minibroker .*-o json( |$)", line) or line.endswith("grep 3"):
            continue
        words = line.partition("minibroker ")[2].split()
        command = " ".join(words[: 1 + (words[0] in GROUPS)])
        for each in printed.splitlines():
            if each.startswith(("[", "{")) and not re.fullmatch(r"\[\d+\]", each):
                yield command, json.loads(MASKED.sub("1357020000000", each))


def fields_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Each field below a value, by its path, with what it holds."""
    if isinstance(value, list):
        for each in value:
            yield from fields_of(each, f"{path}[]")
    elif isinstance(value, dict):
        for name, each in value.items():
            key = "*" if path.rpartition(".")[2] in NAMES_AS_KEYS else name
            yield from fields_of(each, f"{path}.{key}" if path else key)
    else:
        yield path, value


def example_of(types: dict[str, Any]) -> str:
    values = [value for kind, value in types.items() if kind != "null"]
    return f"`{json.dumps(values[0], ensure_ascii=False)}`" if values else ""


# -- ../glossary.md


def glossary_page() -> str:
    terms = json.loads(TERMS.read_text(encoding="utf-8").partition("TERMS = ")[2])
    return GLOSSARY_HEAD + "\n\n" + table(("word", "meaning"), sorted(terms.items())) + "\n"


def clients_page() -> str:
    matrix = json.loads(RESULTS.read_text(encoding="utf-8"))
    releases = [each for each in matrix["abilities"] if each.startswith("as ")]
    abilities = [each for each in matrix["abilities"] if each not in releases]
    words = "\n".join(f"- *{name}*: {matrix['abilities'][name]}" for name in abilities)
    parts = [CLIENTS_HEAD, cells_table(matrix, abilities), words]
    if releases:
        parts += [CLIENTS_OF_RELEASES, cells_table(matrix, releases)]
    return "\n\n".join(parts) + "\n"


def cells_table(matrix: dict[str, Any], abilities: Sequence[str]) -> str:
    """The clients that can do some of these, with the days on which they did."""
    rows = (
        (row["client"], row["version"], *(day_of(row["cells"].get(each)) for each in abilities))
        for row in matrix["clients"]
        if row["cells"].keys() & set(abilities)
    )
    return table(("client", "version", *(each.removeprefix("as ") for each in abilities)), rows)


def day_of(cell: dict[str, Any] | None) -> str:
    """The day on which the tests of the cell passed; one that failed is in bold."""
    if cell is None:
        return ""
    return f"**failed {cell['day']}**" if "failed" in cell else cell["day"]


PAGES = {"python.md": python_page, "pytest.md": pytest_page, "settings.md": settings_page}
PAGES |= {
    "metrics.md": metrics_page,
    "apis.md": apis_page,
    "json.md": json_page,
    "clients.md": clients_page,
    "../glossary.md": glossary_page,
}

if __name__ == "__main__":
    for file, page in PAGES.items():
        (HERE / file).write_text(page(), encoding="utf-8")
