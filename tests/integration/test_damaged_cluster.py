"""Every command and page that reads, while one address or one broker of a cluster of three is out of order.

Each shows what the others have within seconds, and names what it does not show.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from typer.main import get_command

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker import Cluster
from minibroker.cli.app import app
from tests.console.asking import ask, get
from tests.console.conftest import console_of
from tests.integration.any_kafka import any_kafka, names_of, untried
from tests.integration.clusters import new_topic
from tests.minibroker.commands import Finished, minibroker

pytestmark = [pytest.mark.integration, pytest.mark.slow]

WITHIN_SECONDS = 20.0  # on a busy machine; 5 s on a quiet one
AT_ONCE = 3
BROKEN = 2
SETTINGS = {
    "authorizer.class.name": "kafka.security.auth.SimpleAclAuthorizer",
    "super.users": "User:ANONYMOUS",
    **{f"{topic}.num.partitions": "3" for topic in ("offsets.topic", "transaction.state.log")},
    **{f"{topic}.replication.factor": "1" for topic in ("offsets.topic", "transaction.state.log")},
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
    Try("transactions list", "no transactions", "no transactions|broker 2", NAMED),
    Try("metrics show", 'partition_current_offset{partition="2",topic="spread"} 3.0', asks=NAMED),
]
WRITES = re.compile(
    "topics (create|grow|delete|delete-records|elect|move)|produce|groups delete|configs (set|unset)|acls (add|remove)|"
    "quotas (set|remove)|users (add|remove)|transactions (describe|abort)|metrics serve|jobs checkpoint"
)
PAGES = [
    Try("/readyz", "ok"),
    Try("/api/cluster", '"cluster_id"'),
    Try("/api/activity", "{"),
    Try("/api/topics?figures=1", '"name":"spread"'),
    Try("/api/topics/spread", '"partition":1,.*"end":2.*"partition":2,.*"end":3', '"partition":2,.*"end":3'),
    Try("/api/topics/spread/settings", "retention.ms"),
    Try("/api/topics/spread/messages?n=9", "(?=.*v0)(?=.*v1)(?=.*v2)", "(?=.*v0)(?=.*v2)"),
    Try("/api/topics/spread/messages/lines?n=9", "(?=.*v0)(?=.*v2)"),
    Try("/api/topics/spread/messages/0/0", "djA="),
    Try("/api/topics/spread/messages/1/0", "djE=", "broker 2|no leader", REFUSED),
    Try("/api/topics/spread/messages/0/0/value", "v0"),
    Try("/api/topics/spread/groups", "(?=.*of-1)(?=.*of-2)(?=.*of-3)", "(?=.*of-1)(?=.*of-3)"),
    Try("/api/topics/spread/producers", '"partition":1.*"partition":2', '"partition":2'),
    Try("/api/groups", "(?=.*of-1)(?=.*of-2)(?=.*of-3)", "(?=.*of-1)(?=.*of-3)"),
    Try("/api/groups/of-1", '"partition":1'),
    Try("/api/groups/of-2", '"partition":1', "broker 2|coordinator", REFUSED),
    Try("/api/lag", "of-2", "of-1"),
    Try("/api/clients", "{"),
    Try("/api/transactions", "rows"),
    Try("/api/brokers", "127.0.0.1"),
    Try("/api/brokers/1/settings", "broker.id"),
    Try("/api/brokers/2/settings", "broker.id", "broker 2", REFUSED),
    Try("/api/acls", "rows"),
    Try("/api/users", "rows"),
    Try("/api/quotas", "rows"),
    Try("/metrics", 'partition_current_offset{partition="2",topic="spread"} 3.0'),
]
OF_ANY_KAFKA = [
    "topics list",
    "offsets orders",
    "groups list",
    "groups describe classic",
    "consume orders",
    "acls list",
]


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
        groups: dict[int, str] = {}
        suffix = ""
        while len(groups) < 3:
            suffix += "x"
            for broker in started.broker_ids:
                if broker not in groups and started.coordinator_of(f"of-{broker}{suffix}") == broker:
                    groups[broker] = f"of-{broker}{suffix}"
        for group in groups.values():
            reset = ("groups", "reset", group, "--topic", "spread", "--to", "beginning", "--execute")
            assert minibroker(*reset, "-b", started.bootstrap_servers).status == 0
        started.groups = groups  # type: ignore[attr-defined]
        yield started


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


DAMAGES = pytest.mark.parametrize("damage", [silent_first, slow, standing_still, paused, dead])


@DAMAGES
def test_every_command_that_reads_shows_what_there_is(cluster: Cluster, damage: Any) -> None:
    with damage(cluster) as bootstrap, ThreadPoolExecutor(AT_ONCE) as pool:
        tries = pool.map(lambda each: (each, *run_on(cluster, each, bootstrap)), COMMANDS)
        wrong = [
            f"{each.line}: {found.status} after {seconds:.1f} s\n{found.out[-2000:]}{found.err}"
            for each, found, seconds in tries
            if not (is_right(each, found, is_whole=damage in (silent_first, slow)) and seconds < WITHIN_SECONDS)
            and not (damage is slow and is_right(each, found, is_whole=False))
        ]
    assert not wrong, "\n".join(wrong)


def run_on(cluster: Cluster, each: Try, bootstrap: str) -> tuple[Finished, float]:
    begun = time.monotonic()
    found = minibroker(*filled(cluster, each.line).split(), "-b", bootstrap)
    return found, time.monotonic() - begun


def is_right(each: Try, found: Finished, *, is_whole: bool) -> bool:
    """Whether it printed all, or all but what is broker 2's, and gave the reason."""
    printed = re.search(each.prints if is_whole else each.without or each.prints, found.out + found.err) is not None
    if is_whole or each.asks == ANSWERS:
        return printed and found.status == 0
    names_it = re.search("broker 2|spread-1|coordinator|has no leader", found.out + found.err) is not None
    is_known = not names_it and found.status == 0 and printed  # a broker that is known to be gone is not asked
    return printed and ((names_it and (found.status == 1 or "has no leader" in found.out)) or is_known)


def filled(cluster: Cluster, line: str) -> str:
    groups: dict[int, str] = cluster.groups  # type: ignore[attr-defined]
    return re.sub(r"of-(\d)", lambda match: groups[int(match[1])], line)


@DAMAGES
def test_every_page_that_reads_shows_what_there_is(cluster: Cluster, damage: Any) -> None:
    wrong = []
    with damage(cluster) as bootstrap, console_of(bootstrap) as console, ThreadPoolExecutor(AT_ONCE) as pool:

        def asked(each: Try) -> tuple[Try, int, str, float]:
            begun = time.monotonic()
            answer = ask(console, "GET", filled(cluster, each.line))
            return each, answer.status, answer.body.decode(), time.monotonic() - begun

        for each, status, text, seconds in pool.map(asked, PAGES):
            is_whole = status == 200 and re.search(each.prints, text)
            is_rest = re.search(each.without or each.prints, text) and (status == 200) == (each.asks != REFUSED)
            is_right = is_whole if damage is silent_first else is_whole or is_rest
            if not is_right or seconds > WITHIN_SECONDS:
                wrong.append(f"{each.line}: {status} after {seconds:.1f} s: {text[:1000]}")
        addresses = get(console, "/api/openapi.json")["paths"]
    assert not wrong, "\n".join(wrong)
    assert untried(addresses, [each.line for each in PAGES]) == []


def test_every_command_that_reads_is_tried() -> None:
    lines = [f"{each.line} " for each in COMMANDS]
    names = [name for name in names_of(get_command(app)) if not WRITES.fullmatch(name)]

    assert [name for name in names if not any(line.startswith(f"{name} ") for line in lines)] == []


def test_apache_kafka_is_shown_whatever_the_first_address_is(tmp_path: Path) -> None:
    try:
        with any_kafka("4.4.0", tmp_path) as kafka, socket.create_server(("127.0.0.1", 0)) as silent:
            bootstrap = f"127.0.0.1:{silent.getsockname()[1]},{kafka.bootstrap}"
            for line in OF_ANY_KAFKA:
                found = minibroker(*line.split(), "-b", bootstrap)
                assert found.status == 0, (line, found.err)
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka 4.4.0 cannot be had: {reason}")
