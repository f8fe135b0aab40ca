"""Every command that takes -b, and every page of the console, against Apache Kafka 2.0.1, 3.9.1, 4.4.0 and minibroker.

Each has an authorizer, the groups of its time, and a transaction that is open.
"""

from __future__ import annotations

import re
import socket
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.main import get_command

from benchmarks.apache_kafka import KafkaUnavailable
from minibroker.cli.app import app_of
from tests.console.asking import ask, get
from tests.console.conftest import console_of
from tests.integration.any_kafka import (
    CONSUMER_PROTOCOL,
    MINIBROKER,
    NEWER_GROUPS,
    AnyKafka,
    any_kafka,
    names_of,
    numbers,
    untried,
)
from tests.minibroker.command_sessions import run
from tests.minibroker.commands import minibroker, running
from tests.recipes import Command, commands_of, files_of, recipe_text, shell

AT_NIGHT = pytest.mark.nightly
EVER = "0.11"
OF_GROUPS = [4]


class Try(NamedTuple):
    """A command or an address, with what is found in what it prints. A Kafka before `since` refuses it, which the
    command explains; those of Kafka 4 are of groups, which an older one just does not have."""

    line: str
    prints: str
    since: str = EVER
    status: int = 0


# In this order: some need what others make.
COMMANDS = [
    Try("health", "healthy: 1 broker"),
    Try("apis", r"18 +ApiVersions"),
    Try("apis", r"93 +StreamsGroupTopologyDescriptionUpdate +0 +0", "4.4"),
    Try("cluster describe", r"\d +127.0.0.1:\d+ +yes +\d+ +\d+ +0"),
    Try("cluster status", r"127.0.0.1:\d+ +running +yes"),
    Try("cluster status orders", r"0 +0 +leader .* 4 +4 +0"),
    Try("topics create made -p 2 -c retention.ms=-1", "created: made"),
    Try("topics grow made -p 3", "grown: made"),
    Try("topics list", r"made +3 +1"),
    Try("produce made --file LINES --key-separator :", "produced: 3 records"),
    Try("produce made LINES", "produced: 1 record"),
    Try("consume made", "(?s)one.*two|two.*one"),
    Try("consume made --group read", "three"),
    Try("consume made --group read-newer -X group.protocol=consumer", "three", CONSUMER_PROTOCOL),
    Try("offsets made --at end", "PARTITION +EARLIEST +LATEST +OFFSET"),
    Try("offsets made --read-committed", "LATEST"),
    Try("topics delete-records made --before +1", "BEGINS AT"),
    Try("topics describe made", "retention.ms=-1"),
    Try("topics elect made", "unchanged: made-0", "2.2"),
    Try("topics move made --partition 0 --to BROKER --wait", "moved: made-0", "2.4"),
    Try("topics moves", "no replicas move", "2.4"),
    Try("producers made", r"PARTITION +PRODUCER +EPOCH", "2.8"),
    Try("log-dirs made", r"made +0 +\d+ +0"),
    Try("configs set --topic made retention.ms=60000", "set: retention.ms=60000"),
    Try("configs describe --topic made", "retention.ms +60000"),
    Try("configs unset --topic made retention.ms", "unset: retention.ms"),
    Try("configs set --broker BROKER log.cleaner.threads=2", "set: log.cleaner.threads=2"),
    Try("configs describe --broker BROKER --all", "log.cleaner.threads +"),
    Try("configs unset --broker BROKER log.cleaner.threads", "unset: log.cleaner.threads"),
    Try("groups list", r"classic +Stable +1 +classic +consumer"),
    Try("groups list", r"newer +Stable +1 +consumer +consumer", CONSUMER_PROTOCOL),
    Try("groups list", r"sharing +Stable +1 +share +share", NEWER_GROUPS),
    Try("groups list", r"streaming +\w+ +1 +streams +streams", NEWER_GROUPS),
    Try("groups describe classic", r"(?s)1 member.*orders 0-1.*orders +0 +4 +4 +0 +reader"),
    Try("groups describe newer", r"(?s)consumer protocol, epoch \d.*orders 0-1.*orders +0 +4 +4 +0", CONSUMER_PROTOCOL),
    Try("groups describe sharing", r"(?s)share group, epoch \d.*member +127.0.0.1 +\d +orders 0-1", NEWER_GROUPS),
    Try("groups describe streaming", r"(?s)streams group, epoch \d.* 0_0 0_1 +orders 0-1", NEWER_GROUPS),
    Try("groups export classic", "orders,0,4"),
    Try("groups export newer", "orders,0,4", CONSUMER_PROTOCOL),
    Try("groups reset classic --to beginning", "orders +0 +4 +0 +-4"),
    Try("groups reset classic --to beginning --execute", "in use by 1 member", status=1),
    Try("groups reset newer --to beginning --execute", "in use by 1 member", CONSUMER_PROTOCOL, status=1),
    Try("groups reset left-classic --to beginning --execute", "orders +0 +4 +0 +-4"),
    Try("groups reset left-newer --to beginning --execute", "orders +0 +4 +0 +-4", CONSUMER_PROTOCOL),
    Try("groups reset sharing --topic orders --to end --execute", "in use by 1 member", NEWER_GROUPS, status=1),
    Try("groups reset left-sharing --topic orders --to +1 --execute", "orders +0 +- +1", NEWER_GROUPS),
    Try("groups export left-sharing", "orders,0,1", NEWER_GROUPS),
    Try("groups describe left-sharing", r"(?s)START.*orders +0 +1 +4 +3", NEWER_GROUPS),
    Try("groups delete left-classic", "deleted: left-classic"),
    Try("groups delete left-newer", "deleted: left-newer", CONSUMER_PROTOCOL),
    Try("groups delete newer", "newer is in use", CONSUMER_PROTOCOL, status=1),
    Try("groups delete sharing", "sharing is in use", NEWER_GROUPS, status=1),
    Try("acls add --allow ann --consumer --topic made --group read", "added: User:ann may Read topic made"),
    Try("acls add --allow ann --operation TwoPhaseCommit --transactional-id pay", "ann may TwoPhaseCommit", "4.1"),
    Try("acls list --topic made", r"Topic +made +literal +User:ann"),
    Try("acls list", "TwoPhaseCommit", "4.1"),
    Try("acls remove --allow ann", "removed: User:ann may Read topic made"),
    Try("quotas set --user ann producer_byte_rate=1000", "set: producer_byte_rate=1000", "2.6"),
    Try("quotas list", r"ann +producer_byte_rate +1000", "2.6"),
    Try("quotas remove --user ann producer_byte_rate", "removed: producer_byte_rate", "2.6"),
    Try("users add ann --password-file LINES", "added: ann", "2.7"),
    Try("users list", "ann +SCRAM-SHA-512", "2.7"),
    Try("users remove ann", "removed: ann", "2.7"),
    Try("transactions list", r"paying +Ongoing", "3.0"),
    Try("transactions describe paying", "paying: Ongoing since", "3.0"),
    Try("transactions describe nobody", "nobody does not exist", "3.0", status=1),
    Try("transactions abort paying", "aborted: paying", "3.0"),
    Try("metrics show", r'kafka_consumergroup_members{consumergroup="classic"} 1.0'),
    Try("metrics show", r'kafka_consumergroup_members{consumergroup="sharing"} 1.0', NEWER_GROUPS),
    Try("metrics show", r'kafka_consumergroup_lag_sum{consumergroup="newer",topic="orders"}', CONSUMER_PROTOCOL),
    Try("jobs checkpoint CHECKPOINT", "batch 1 runs next; 2 offsets are unread"),
    Try("configs set --group newer consumer.session.timeout.ms=50000", "set: consumer", CONSUMER_PROTOCOL),
    Try("configs describe --group newer", r"consumer.session.timeout.ms +50000", CONSUMER_PROTOCOL),
    Try("configs unset --group newer consumer.session.timeout.ms", "unset: consumer", CONSUMER_PROTOCOL),
    Try("features describe", r"transaction.version +0 +2 +\d", CONSUMER_PROTOCOL),
    Try("features upgrade transaction.version=9 --dry-run", "Invalid update version 9", CONSUMER_PROTOCOL, status=1),
    Try("features downgrade transaction.version=1 --dry-run", "checked: transaction.version=1", CONSUMER_PROTOCOL),
    Try("topics delete made", "deleted: made"),
    Try("topics create d c b a e f", "(?s)d.*c.*b.*a.*e.*f"),
    Try("topics delete d c b a e f", "(?s)d\n.*c\n.*b\n.*a\n.*e\n.*f"),
    Try("topics create a.b", "created: a.b"),
    Try("topics create a_b", "collides.*choose another name: in names of metrics", status=1),
]
TRIED_ALONE = ["metrics serve"]
BESIDE_A_SILENT_ADDRESS = (
    "topics list", "offsets orders", "groups list", "groups describe classic", "consume orders", "acls list",
)  # fmt: skip
PAGES = [
    Try("/readyz", "ok"),
    Try("/api/cluster", '"version":"VERSION"'),
    Try("/api/activity", "null"),
    Try("/api/topics?figures=1", '"name":"orders"'),
    Try("/api/topics/orders", '"end":4'),
    Try("/api/topics/orders/settings", '"name":"retention.ms"'),
    Try("/api/topics/orders/messages?n=2", '"state":'),
    Try("/api/topics/orders/messages/lines?n=1", '"lines":'),
    Try("/api/topics/orders/messages/0/0", '"codec":'),
    Try("/api/topics/orders/messages/0/0/value", "0"),
    Try("/api/topics/orders/groups", '"group":"classic"'),
    Try("/api/topics/orders/groups", '"group":"newer"', CONSUMER_PROTOCOL),
    Try("/api/topics/orders/groups", '"group":"left-sharing"', NEWER_GROUPS),
    Try("/api/topics/orders/producers", '"rows":', "2.8"),
    Try("/api/groups", '"group":"classic","state":"Stable","type":"classic"'),
    Try("/api/groups", '"group":"newer","state":"Stable","type":"consumer"', CONSUMER_PROTOCOL),
    Try("/api/groups?sort=members", '"group":"streaming","state":"\\w+","type":"streams"', NEWER_GROUPS),
    Try("/api/groups/classic", '"client_id":"reader"'),
    Try("/api/groups/newer", '"protocol":"consumer","epoch":\\d+,"partitions":\\["orders-0","orders-1"\\]', "4.0"),
    Try("/api/groups/sharing", '"partitions":\\["orders-0","orders-1"\\]', NEWER_GROUPS),
    Try("/api/groups/streaming", '"client_id":"member"', NEWER_GROUPS),
    Try("/api/lag", '"group":"classic"'),
    Try("/api/clients", '"group":"classic"'),
    Try("/api/clients", '"group":"newer"', CONSUMER_PROTOCOL),
    Try("/api/transactions", '"transactional_id":"paying"', "3.0"),
    Try("/api/brokers", '"controller":true'),
    Try("/api/brokers/BROKER/settings", '"name":"log.cleaner.threads"'),
    Try("/api/acls", '"authorizer":true'),
    Try("/api/users", '"rows":', "2.7"),
    Try("/api/quotas", '"rows":', "2.6"),
    Try("/metrics", 'kafka_consumergroup_members{consumergroup="classic"} 1.0'),
]


@pytest.fixture(
    scope="module",
    params=[pytest.param("2.0.1", marks=AT_NIGHT), pytest.param("3.9.1", marks=AT_NIGHT), "4.4.0", MINIBROKER],
)
def kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AnyKafka]:
    try:
        with any_kafka(request.param, tmp_path_factory.mktemp("kafka")) as found:
            yield found
    except KafkaUnavailable as reason:
        pytest.skip(f"Apache Kafka {request.param} cannot be had: {reason}")


def test_every_command_works(kafka: AnyKafka) -> None:
    wrong = []
    for each in COMMANDS:
        status, out, err = run([*kafka.filled(each.line).split(), "-b", kafka.bootstrap], b"")
        works = status == each.status and re.search(each.prints, out + err)
        is_refused = status == 1 and re.search(rf"(use Apache Kafka|came with) {each.since}\b", err)
        if not (works if kafka.has(each.since) else is_refused or numbers(each.since) >= OF_GROUPS):
            wrong.append(f"{each.line}: {status}\n{out}{err}")
    assert not wrong, "\n".join(wrong)


def test_every_page_works(kafka: AnyKafka) -> None:
    wrong = []
    with console_of(kafka.bootstrap) as console:
        for each in PAGES:
            answer = ask(console, "GET", kafka.filled(each.line))
            text, prints = answer.body.decode(), each.prints.replace("VERSION", kafka.version)
            works = answer.status == 200 and re.search(prints, text)
            if not (works if kafka.has(each.since) else answer.status in (200, 404, 501)):
                wrong.append(f"{each.line}: {answer.status} {text[:1000]}")
        addresses = get(console, "/api/openapi.json")["paths"]
    assert not wrong, "\n".join(wrong)
    assert untried(addresses, [each.line for each in PAGES]) == []


def test_the_first_address_may_be_one_where_nobody_answers(kafka: AnyKafka) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor() as pool:
        bootstrap = f"127.0.0.1:{silent.getsockname()[1]},{kafka.bootstrap}"
        for found in pool.map(lambda line: minibroker(*line.split(), "-b", bootstrap), BESIDE_A_SILENT_ADDRESS):
            assert found.status == 0, found.err


def test_metrics_are_served(kafka: AnyKafka) -> None:
    with running("metrics", "serve", "-b", kafka.bootstrap, "--listen", "127.0.0.1:0") as process:
        assert process.stdout is not None
        with urllib.request.urlopen(process.stdout.readline().split()[-1], timeout=30) as response:
            assert b"kafka_brokers 1.0" in response.read()
        process.terminate()
        process.communicate()


@AT_NIGHT
@pytest.mark.parametrize("kafka", ["4.4.0"], indirect=True)
def test_a_group_moves_to_the_new_protocol_and_back_by_the_recipe(kafka: AnyKafka, tmp_path: Path) -> None:
    text = recipe_text("new-protocol", kafka.bootstrap).replace("orders", "moving")

    with shell(tmp_path, kafka.bootstrap) as started:
        started.write(files_of(text))
        for command in commands_of(text):
            if command.line.startswith("minibroker serve"):  # as the first job
                command = Command("sleep 600 &", [])
            if command.line != "minibroker groups list":  # which has the groups of the other tests too
                started.run(command)


def test_every_command_with_a_cluster_is_tried() -> None:
    lines = [each.line for each in COMMANDS]

    assert [
        name for name in names_of(get_command(app_of())) if not any(f"{line} ".startswith(f"{name} ") for line in lines)
    ] == TRIED_ALONE
