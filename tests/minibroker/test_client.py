"""The client of a cluster: its questions go around brokers that are slow, silent, gone, or of another release."""

from __future__ import annotations

import os
import signal
import socket
import struct
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from minibroker import Broker, Cluster
from minibroker.client import client as client_module
from minibroker.client.address import Address, parse_address
from minibroker.client.client import Client, Question
from minibroker.client.connection import Connection, last_by_name, wait
from minibroker.client.errors import NoAnswer, TooSlow, Unreachable, Unsupported
from minibroker.client.login import WrongProtocol
from minibroker.protocol.api import ASKED_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.primitives import ZERO_UUID

pytestmark = [pytest.mark.integration, pytest.mark.slow]

DELAY_SECONDS = 1.0
WAITS = 1.9  # in which two delays do not fit
LATE = 1.3


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(3) as started:
        yield started


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    with Client([parse_address(each) for each in cluster.bootstrap_servers.split(",")]) as connected:
        yield connected


def test_several_questions_to_a_slow_broker_cost_one_wait(cluster: Cluster, client: Client) -> None:
    with cluster.broker(3).faults.delay(DELAY_SECONDS):
        began = time.monotonic()
        answers = client.answers({number: Question(ApiKey.LIST_GROUPS, {}, 3) for number in range(3)})
        seconds = time.monotonic() - began

    assert [answer.groups for answer in answers.values()] == [[], [], []]
    assert DELAY_SECONDS <= seconds < WAITS * DELAY_SECONDS


def test_a_lone_broker_whose_answers_are_late_is_reached_and_asked_within_two_of_them() -> None:
    late_seconds = 1.6  # of two answers in turn, longer than a silent address is waited for
    with Broker(control=True) as broker, broker.faults.delay(late_seconds):
        began = time.monotonic()
        with Client([parse_address(broker.bootstrap_servers)]) as client:
            client.metadata()
        seconds = time.monotonic() - began

    assert 2 * late_seconds <= seconds < 2.7 * late_seconds


def test_several_threads_ask_at_once(cluster: Cluster, client: Client) -> None:
    found: list[int] = []
    threads = [
        threading.Thread(target=lambda: found.extend(len(client.metadata([]).brokers) for _ in range(50)))
        for _ in range(4)
    ]
    with cluster.broker(2).faults.delay(DELAY_SECONDS):
        for each in threads:
            each.start()
        for each in threads:
            each.join()

    assert found == [3] * 200


def test_a_question_for_any_broker_goes_to_another_one_where_the_first_is_late(cluster: Cluster) -> None:
    addresses = [parse_address(each) for each in cluster.bootstrap_servers.split(",")]
    with Client(addresses[:1]) as client, cluster.broker(1).faults.delay(60.0):
        began = time.monotonic()

        assert len(client.metadata([]).brokers) == 3
        assert time.monotonic() - began < 5 * LATE


def test_a_topic_exists_if_any_broker_has_heard_of_it(cluster: Cluster) -> None:
    """The first broker does not hear the controller, and so of no new topic."""
    addresses = [parse_address(each) for each in cluster.bootstrap_servers.split(",")]
    cluster.wait_for(lambda: cluster.controller != 1 or cluster.move_controller() != 1)
    cluster.isolate(cluster.controller, 1, "to")
    try:
        with Client(addresses[:1]) as client:
            topic = ASKED_TABLE[ApiKey.CREATE_TOPICS].request.row("topics")("new", 1, 1)
            client.at_controller(ApiKey.CREATE_TOPICS, topics=[topic], timeout_ms=1000)

            assert (
                client.ask(ApiKey.METADATA, broker=1, topics=[(ZERO_UUID, "new")], allow_auto_topic_creation=False)
                .topics[0]
                .error_code
            )
            assert len(client.metadata(["new"]).topics[0].partitions) == 1
    finally:
        cluster.heal()


def test_a_broker_that_stands_still_is_told_from_one_that_is_late(cluster: Cluster) -> None:
    addresses = [parse_address(each) for each in cluster.bootstrap_servers.split(",")]
    deadline = float("inf")
    with Client(addresses, until=lambda: deadline) as client, cluster.broker(2).faults.delay(60.0):
        with pytest.raises(NoAnswer, match=r"broker 2 at 127.0.0.1:\d+ does not answer$") as raised:
            client.ask(ApiKey.LIST_GROUPS, broker=2)
        assert raised.value.is_silent
        deadline = time.monotonic()
        late = cluster.broker(3).faults.delay(60.0)
        with late, pytest.raises(TooSlow, match="broker 3 has not answered in time"):
            client.ask(ApiKey.LIST_GROUPS, broker=3)


def test_a_broker_that_was_started_again_is_connected_to_again() -> None:
    with Broker() as broker, Client([parse_address(broker.bootstrap_servers)]) as client:
        broker.kill()
        with pytest.raises(NoAnswer):
            client.metadata()
        broker.start()

        assert client.metadata().topics == []


def test_a_lone_broker_is_asked_once_for_a_topic_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ApiKey] = []
    question = client_module.Question

    def noted(api_key: ApiKey, *rest: Any) -> Question:
        asked.append(api_key)
        return question(api_key, *rest)

    monkeypatch.setattr(client_module, "Question", noted)
    with Broker() as broker, Client([parse_address(broker.bootstrap_servers)]) as client:
        asked.clear()

        assert client.metadata(["missing"]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    assert asked == [ApiKey.METADATA]


def test_a_broker_of_an_older_release_is_asked_in_its_versions() -> None:
    with Broker(act_as="0.10") as broker, Client([parse_address(broker.bootstrap_servers)]) as client:
        assert client.metadata().topics == []
        with pytest.raises(Unsupported, match="DeleteGroups"):
            client.ask(ApiKey.DELETE_GROUPS, group_names=[])
        os.kill(broker.pid, signal.SIGSTOP)
        with pytest.raises(Unreachable) as raised:
            Client([parse_address(broker.bootstrap_servers)])
        assert "answers nothing" in str(raised.value.__cause__)
        os.kill(broker.pid, signal.SIGCONT)


@pytest.mark.parametrize("sent", [struct.pack(">i", 1 << 30), struct.pack(">iii", 8, 4711, 0)], ids=["long", "unasked"])
def test_a_connection_ends_at_an_answer_that_is_none(sent: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, Connection(Address(*server.getsockname())) as connection:
        theirs, _ = server.accept()
        with theirs:
            theirs.sendall(sent)
            until = time.monotonic() + 20
            while connection.error is None and time.monotonic() < until:
                wait([connection], until)

    assert isinstance(connection.error, WrongProtocol)


def test_versions_that_name_topics_by_their_ids_are_not_used() -> None:
    assert [last_by_name(ASKED_TABLE[key]) for key in (ApiKey.FETCH, ApiKey.PRODUCE, ApiKey.OFFSET_FETCH)] == [
        12,
        12,
        9,
    ]
