"""Every command and page that reads, while one address or one broker of a cluster of three is out of order.

Each shows what the others have within seconds, and names what it does not show.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.main import get_command

from minibroker import Broker, Cluster, patience
from minibroker.any_cluster.bootstrap import parse_bootstrap
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.transaction_admin import describe
from minibroker.cli.app import app_of
from tests.console.asking import ask, get
from tests.console.conftest import RunningConsole, console_of
from tests.integration.any_kafka import names_of, untried
from tests.integration.clusters import new_topic
from tests.minibroker.command_sessions import run as here
from tests.minibroker.commands import Finished, minibroker
from tests.minibroker.forked_commands import forked_commands

pytestmark = [pytest.mark.integration, pytest.mark.slow]

GOAL_SECONDS = 5.0
AT_ONCE = 8  # commands, and as many pages; they wait most of their time
Run = Callable[..., Finished]
BROKEN = 2
SETTINGS = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": "User:ANONYMOUS",
    **{f"{topic}.num.partitions": "3" for topic in ("offsets.topic", "transaction.state.log")},
    **{f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")},
    "transaction.state.log.min.isr": "1",
}
ANSWERS, NAMED, REFUSED = "answers", "named", "refused"


class Try(NamedTuple):
    """A command or a path with what it prints of a whole cluster, and of one without broker 2.

    While that is out of order, ANSWERS is what asks nothing of it; NAMED prints the rest, and names it or what it leads
    on standard error; REFUSED has nothing else to print, and gives the reason in a line.
    """

    line: str
    prints: str
    without: str = ""
    asks: str = ANSWERS


REASON = "broker 2|coordinator"
COMMANDS = [
    Try("health", "healthy", "healthy|spread-1", NAMED),
    Try("apis", "ApiVersions"),
    Try("cluster describe", "3  127", "3  127"),
    Try("cluster status", "3  127"),
    Try("cluster status spread", "0 +1 +leader(.*\n)+ +2 +3 +leader", asks=NAMED),
    Try("topics list", "spread +3 +1"),
    Try(
        "topics describe spread", "0 +1 +1 +1 +0 +1\n *1 +2 .* 2\n", "0 +1 +1 +1 +0 +1\n *1 +(2|none) .* [?2]\n", NAMED
    ),
    Try("topics moves", "no replicas move", "no replicas move|broker 2", NAMED),
    Try("offsets spread", "0 +0 +1\n +1 +0 +2\n +2 +0 +3", "0 +0 +1\n +1 +\\? +\\?\n +2 +0 +3", NAMED),
    Try("offsets spread --at end", "0 +0 +1 +1\n +1 +0 +2 +2\n", "0 +0 +1 +1\n +1 +\\? +\\? +\\?\n", NAMED),
    Try("consume spread", "v0(.*\n)*v1|v1(.*\n)*v0", "v0|v2", NAMED),
    Try("producers spread", "0 +\\d+.*\n +1 +\\d+.*\n +2 +\\d", "0 +\\d+.*\n +2 +\\d", NAMED),
    Try("log-dirs", "1  .*spread +0(.*\n)* +3  .*spread +2", asks=NAMED),
    Try("groups list", "of-1(.*\n)*of-2(.*\n)*of-3", "of-1(.*\n)*of-3", NAMED),
    Try("groups describe of-1", "spread +1 +0 +2 +2", "spread +0 +0 +1 +1 .*\nspread +1 +0 +- ", NAMED),
    Try("groups describe of-2", "spread +1 +0 +2 +2", REASON, REFUSED),
    Try("groups export of-1", "spread,1,0"),
    Try("groups export of-2", "spread,1,0", REASON, REFUSED),
    Try("groups reset of-1 --to end", "spread +1 +0 +2 +.2", "spread +2 +0 +3 +.3", NAMED),
    Try("configs describe --topic spread", "no configs of its own"),
    Try("configs describe --broker 1", "broker.id"),
    Try("configs describe --broker 2", "broker.id", REASON, REFUSED),
    Try("acls list", "no such rules"),
    Try("quotas list", "no quotas"),
    Try("users list", "no users"),
    Try("transactions list", "held-1x+ +Ongoing(.*\n)*held-2x+ +Ongoing", "held-1x+ +Ongoing", NAMED),
    Try("transactions describe held-1", "Ongoing"),
    Try("transactions describe held-2", "Ongoing", REASON, REFUSED),
    Try("features describe", "transaction.version"),
    Try("metrics show", 'partition_current_offset{partition="2",topic="spread"} 3.0', asks=NAMED),
]
WRITES = re.compile(
    "topics (create|grow|delete|delete-records|elect|move)|produce|groups delete|configs (set|unset)|acls (add|remove)|"
    "quotas (set|remove)|users (add|remove)|transactions abort|features (upgrade|downgrade)|metrics serve|"
    "jobs checkpoint"
)
PAGES = [
    Try("/readyz", "ok"),
    Try("/api/cluster", '"cluster_id"'),
    Try("/api/activity", "{"),
    Try("/api/topics?figures=1", '"name":"spread"[^}]*"messages":6', '"name":"spread"', NAMED),
    Try("/api/topics/spread", '"partition":1,.*"end":2.*"partition":2,.*"end":3', '"partition":2,.*"end":3', NAMED),
    Try("/api/topics/spread/settings", "retention.ms"),
    Try("/api/topics/spread/messages?n=9", "(?=.*v0)(?=.*v1)(?=.*v2)", "(?=.*v0)(?=.*v2)", NAMED),
    Try("/api/topics/spread/messages/lines?n=9", "(?=.*v0)(?=.*v1)(?=.*v2)", "(?=.*v0)(?=.*v2)", NAMED),
    Try("/api/topics/spread/messages/0/0", "djA="),
    Try("/api/topics/spread/messages/1/0", "djE=", "broker 2|no leader", REFUSED),
    Try("/api/topics/spread/messages/0/0/value", "v0"),
    Try("/api/topics/spread/groups", "(?=.*of-1)(?=.*of-2)(?=.*of-3)", "(?=.*of-1)(?=.*of-3)", NAMED),
    Try("/api/topics/spread/producers", '"partition":1.*"partition":2', '"partition":2', NAMED),
    Try("/api/groups", "(?=.*of-1)(?=.*of-2)(?=.*of-3)", "(?=.*of-1)(?=.*of-3)", NAMED),
    Try("/api/groups/of-1", '"partition":1,"committed":0,"end":2', '"partition":1', NAMED),
    Try("/api/groups/of-2", '"partition":1', "broker 2|coordinator", REFUSED),
    Try("/api/lag", "of-2", "of-1", NAMED),
    Try("/api/clients", '"groups":3', '"groups":2', NAMED),
    Try("/api/transactions", 'held-2\\w*","state":"Ongoing"[^}]*"timeout_ms":600000', "held-1", NAMED),
    Try("/api/brokers", "127.0.0.1"),
    Try("/api/brokers/1/settings", "broker.id"),
    Try("/api/brokers/2/settings", "broker.id", "broker 2", REFUSED),
    Try("/api/acls", "rows"),
    Try("/api/users", "rows"),
    Try("/api/quotas", "rows"),
    Try("/metrics", 'topic="spread"} 2.0(.*\n)*.*topic="spread"} 3.0', 'topic="spread"} 3.0', NAMED),
]
STREAMS = [
    Try("/api/stream/lag", "of-2", "of-1", NAMED),
    Try("/api/stream/topics/spread", '"cursor":"0:1,1:2,2:3"', '"cursor":"0:1,2:3"', NAMED),
]
FREE = ("apis", "cluster status", "features describe", "/api/activity")  # to whoever connects
BROKER_ID = re.compile(r"(?<=--broker )\d|(?<=/brokers/)\d")
DENIED = "AUTHORIZATION_FAILED|that this user may see|that needs|its ACLs"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Topic `spread` has a partition on each broker, with as many records as that has as its id; `of-N` is a group that
    broker N coordinates."""
    with Cluster(3, settings=SETTINGS) as started:
        new_topic(AdminClient({"bootstrap.servers": started.bootstrap_servers}), "spread", [[1], [2], [3]])
        for partition in range(3):
            lines = f"v{partition}\n" * (partition + 1)
            produce = ["produce", "spread", "-p", str(partition), "-b", started.bootstrap_servers]
            subprocess.run([sys.executable, "-m", "minibroker", *produce], input=lines, text=True, check=True)
        names: dict[str, str] = {}
        suffix = ""
        while len(names) < 3:
            suffix += "x"
            for broker in started.broker_ids:
                if started.coordinator_of(f"of-{broker}{suffix}") == broker:
                    names.setdefault(f"of-{broker}", f"of-{broker}{suffix}")
        for group in names.values():
            reset = ("groups", "reset", group, "--topic", "spread", "--to", "beginning", "--execute")
            assert minibroker(*reset, "-b", started.bootstrap_servers).status == 0
        new_topic(AdminClient({"bootstrap.servers": started.bootstrap_servers}), "held", [[1]])
        producers = [transaction_of(started, broker, names) for broker in (1, 2)]
        started.names = names  # type: ignore[attr-defined]
        yield started
        producers.clear()  # until then their transactions are open


def transaction_of(cluster: Cluster, broker: int, names: dict[str, str]) -> Producer:
    """The producer of a transaction that stays open, and that this broker coordinates."""
    name = f"held-{broker}"
    while True:
        name += "x"
        settings = {"transactional.id": name, "transaction.timeout.ms": 600_000}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("held", b"v")
        producer.flush()
        with connected(parse_bootstrap(cluster.bootstrap_servers)) as client:
            if describe(client, name).coordinator == broker:
                names[f"held-{broker}"] = name
                return producer
        producer.abort_transaction()


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    with forked_commands() as commands:
        yield commands.run


@pytest.fixture(scope="module")
def start_seconds(cluster: Cluster, run: Run) -> float:
    """How long commands take that wait for nothing, as many at once as later: the machine's part of the time."""
    begun = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for found in pool.map(lambda _: run("apis", "-b", cluster.bootstrap_servers), range(2 * AT_ONCE)):
            assert found.status == 0, found.err
    return time.monotonic() - begun


@contextmanager
def silent_first(cluster: Cluster) -> Iterator[str]:
    """Nobody takes the connections that this address accepts, as where a process stands still."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]},{cluster.bootstrap_servers}"


@contextmanager
def slow(cluster: Cluster) -> Iterator[str]:
    """Broker 2 takes two seconds for each answer."""
    with cluster.broker(BROKEN).faults.delay(2.0):
        yield cluster.bootstrap_servers


@contextmanager
def standing_still(cluster: Cluster) -> Iterator[str]:
    """Broker 2 accepts connections and answers nothing; the others hear that it lives."""
    with cluster.broker(BROKEN).faults.delay(60.0):
        yield cluster.bootstrap_servers


@contextmanager
def paused(cluster: Cluster) -> Iterator[str]:
    cluster.pause(BROKEN)
    try:
        yield cluster.bootstrap_servers
    finally:
        cluster.resume(BROKEN)
        cluster.until_leader("spread", BROKEN - 1)


@contextmanager
def dead(cluster: Cluster) -> Iterator[str]:
    """Kill broker 2: a partition is without a leader, and a group without a coordinator."""
    cluster.kill(BROKEN)
    try:
        yield cluster.bootstrap_servers
    finally:
        cluster.start(BROKEN)
        cluster.until_leader("spread", BROKEN - 1)


# A process that is stopped accepts connections as one that stands still.
@pytest.mark.sample(of=lambda damage: damage in (silent_first, dead))
@pytest.mark.parametrize("damage", [silent_first, slow, standing_still, paused, dead])
def test_every_command_and_page_that_reads_shows_the_rest_of_the_cluster(
    cluster: Cluster, run: Run, start_seconds: float, damage: Any
) -> None:
    """All wait side by side."""
    within_seconds = GOAL_SECONDS + start_seconds
    with (
        damage(cluster) as bootstrap,
        console_of(bootstrap) as console,
        ThreadPoolExecutor(AT_ONCE) as commands,
        ThreadPoolExecutor(AT_ONCE) as pages,
    ):
        tries = [(each, commands.submit(command, filled(cluster, each.line), run, bootstrap)) for each in COMMANDS]
        tries += [(each, pages.submit(page, filled(cluster, each.line), console)) for each in PAGES]
        tries += [(each, pages.submit(stream, each.line, console)) for each in STREAMS]
        found = [(each, done.result()) for each, done in tries]
        addresses = get(console, "/api/openapi.json")["paths"]
    wrong = [
        f"{each.line}: {shown.seconds:.1f} s, {shown.is_done}\n{shown.text[-2000:]}\n{shown.reasons}"
        for each, shown in found
        if shown.seconds > within_seconds
        or not (is_all(each, shown) or (damage is not silent_first and is_rest(each, shown, damage in (paused, dead))))
    ]
    assert not wrong, f"not within {within_seconds:.1f} s, or not what there is:\n" + "\n".join(wrong)
    assert untried(addresses, [each.line for each in PAGES]) == []


class Shown(NamedTuple):
    """The output of a command or a page, the reasons of what is not there, and whether it did what it was asked for."""

    text: str
    reasons: str
    is_done: bool
    seconds: float


def command(line: str, run: Run, bootstrap: str) -> Shown:
    begun = time.monotonic()
    found = run(*line.split(), "-b", bootstrap)
    return Shown(found.out, found.err, found.status == 0, time.monotonic() - begun)


def page(line: str, console: RunningConsole) -> Shown:
    begun = time.monotonic()
    answer = ask(console, "GET", line)
    seconds, text = time.monotonic() - begun, answer.body.decode()
    of_json = answer.json if text.startswith("{") else {}
    reasons = [
        *of_json.get("lacks", ()),
        of_json.get("error", ""),
        *re.findall("^# (?!HELP|TYPE).*", text, re.MULTILINE),
    ]
    return Shown(text, "\n".join(reasons), answer.status == 200, seconds)


def stream(line: str, console: RunningConsole) -> Shown:
    """The first event."""
    begun = time.monotonic()
    host, _, port = console.address.rpartition(":")
    with closing(http.client.HTTPConnection(host, int(port), timeout=30)) as connection:
        connection.request("GET", line)
        event = next(each.decode() for each in connection.getresponse() if each.startswith(b"data: "))
    seconds, data = time.monotonic() - begun, json.loads(event.removeprefix("data: "))
    return Shown(event, "\n".join([*data.get("lacks", ()), data.get("error", "")]), "error" not in data, seconds)


def is_all(each: Try, shown: Shown) -> bool:
    return shown.is_done and re.search(each.prints, shown.text + shown.reasons) is not None


def is_rest(each: Try, shown: Shown, may_be_gone: bool) -> bool:
    """Whether it shows all but what is broker 2's, with the reason; one that is known to be gone is not asked."""
    if each.asks == REFUSED:
        return not shown.is_done and re.search(each.without, shown.reasons) is not None
    is_reasoned = re.search("broker 2|spread-1|coordinator", shown.reasons + shown.text.partition("\n")[0]) is not None
    return re.search(each.without or each.prints, shown.text + shown.reasons) is not None and (
        each.asks == NAMED and (is_reasoned or may_be_gone)
    )


def filled(cluster: Cluster, line: str) -> str:
    names: dict[str, str] = cluster.names  # type: ignore[attr-defined]
    return re.sub(r"\b(of|held)-\d", lambda match: names[match[0]], line)


@pytest.fixture
def without_rights(tmp_path: Path) -> Iterator[str]:
    """The address of a broker with a topic `spread` and a group, on which this user may do nothing."""
    with Broker(data_dir=tmp_path, settings=SETTINGS) as broker:
        broker.create_topic("spread", partitions=3)
        reset = ("groups", "reset", "of-1", "--topic", "spread", "--to", "beginning", "--execute")
        assert minibroker(*reset, "-b", broker.bootstrap_servers).status == 0
    with Broker(data_dir=tmp_path, settings={**SETTINGS, "super.users": "User:admin"}) as broker:
        yield broker.bootstrap_servers


def test_the_rights_that_a_user_lacks_are_named(run: Run, without_rights: str) -> None:
    with console_of(without_rights) as console, ThreadPoolExecutor(AT_ONCE) as pool:
        commands, pages = ({BROKER_ID.sub("0", each.line) for each in every} for every in (COMMANDS, PAGES))
        tries = {line: pool.submit(command, line, run, without_rights) for line in commands}
        tries |= {line: pool.submit(page, line, console) for line in pages}
        found = [(line, done.result()) for line, done in tries.items()]
    assert [
        (line, *shown) for line, shown in found if line not in FREE and re.search(DENIED, shown.reasons) is None
    ] == []


def test_every_command_that_reads_is_tried() -> None:
    lines = [f"{each.line} " for each in COMMANDS]
    names = [name for name in names_of(get_command(app_of())) if not WRITES.fullmatch(name)]

    assert [name for name in names if not any(line.startswith(f"{name} ") for line in lines)] == []


def test_of_a_lone_slow_broker_each_command_shows_the_first_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next answer would come after the deadline."""
    monkeypatch.setattr(patience, "PATIENCE_SECONDS", 2.2)
    lines = {
        "topics describe spread": (
            "0 +0 +0 +0 +\\? +\\?\n",
            "(?s)(?=.*offsets of spread-0, spread-1)(?=.*configs of spread)",
        ),
        "offsets spread": ("1 +\\? +\\?\n", "offsets of spread-0"),
        "groups list": ("of-1 +Empty +\\?", "what it coordinates is not shown"),
        "health": ("healthy: 1 broker", ""),
    }
    with Broker(control=True) as broker:
        broker.create_topic("spread", partitions=2)
        reset = ("groups", "reset", "of-1", "--topic", "spread", "--to", "beginning", "--execute")
        assert minibroker(*reset, "-b", broker.bootstrap_servers).status == 0
        with broker.faults.delay(0.8):
            found = {line: here([*line.split(), "-b", broker.bootstrap_servers], b"") for line in lines}
    assert [
        (line, out, err)
        for line, (_, out, err) in found.items()
        if not re.search(lines[line][0], out) or not re.search(lines[line][1], err)
    ] == []
    assert [status for status, _, _ in found.values()] == [1, 1, 1, 0]
