"""`Broker`: a process that is started, addressed, stopped, killed and started again, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer

import minibroker
from minibroker import Broker, BrokerError
from minibroker.administration import connected
from minibroker.any_cluster import topic_admin
from minibroker.protocol.api import ApiKey
from tests.integration.members import is_alive, wait_until_gone
from tests.requests import by_name

pytestmark = [pytest.mark.integration, pytest.mark.slow]


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The directory of temporary files during the test, this process's and its children's."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder


def partitions_of(broker: Broker) -> dict[str, int]:
    with connected(broker.bootstrap_servers) as client:
        return {topic.name: topic.partitions for topic in topic_admin.topics(client)}


def groups_of(broker: Broker) -> set[str]:
    with connected(broker.bootstrap_servers) as connection:
        return {group.group_id for group in connection.ask(ApiKey.LIST_GROUPS).groups}


def test_in_a_with_it_answers_and_afterwards_nothing_is_left(temporary: Path) -> None:
    with Broker() as broker:
        pid = broker.pid
        assert partitions_of(broker) == {}
        assert broker.is_running
        assert broker.get_bootstrap_server() == broker.bootstrap_servers
        assert broker.data_dir.is_relative_to(temporary)

    assert not broker.is_running
    assert not is_alive(pid)
    assert list(temporary.iterdir()) == []


def test_two_brokers_do_not_meet_and_an_address_in_use_is_an_error() -> None:
    with Broker() as one, Broker() as two:
        one.create_topic("mine", partitions=2)
        third = Broker(listen=one.bootstrap_servers)

        with pytest.raises(BrokerError, match="Address already in use"):
            third.start()
        third.close()

        assert one.bootstrap_servers != two.bootstrap_servers
        assert (partitions_of(one), partitions_of(two)) == ({"mine": 2}, {})


def test_a_given_data_directory_stays_with_its_topics(temporary: Path, tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("kept", partitions=2)

    with Broker(data_dir=str(tmp_path / "data")) as broker:
        assert partitions_of(broker) == {"kept": 2}
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_ended_and_started_again_it_has_its_address_and_its_data(end: str) -> None:
    with Broker() as broker:
        broker.create_topic("kept", partitions=2)
        address, pid = broker.bootstrap_servers, broker.pid

        status = getattr(broker, end)()
        assert not broker.is_running
        assert not broker.has_died
        broker.start()

        assert status == (0 if end == "stop" else None)
        assert broker.bootstrap_servers == address
        assert broker.pid != pid
        assert partitions_of(broker) == {"kept": 2}


def test_settings_are_the_brokers_by_their_names() -> None:
    settings = {"num.partitions": 5, "auto.create.topics.enable": False, "made.up": "x"}
    with pytest.warns(minibroker.SettingWarning), Broker(settings=settings, unknown_settings=True) as broker:
        log = broker.last_log_lines()

    assert "made.up is not a setting of Kafka 2.0" in log
    assert "auto.create" not in log


def test_a_broker_that_cannot_start_ends_with_its_reason(temporary: Path) -> None:
    broker = Broker(settings={"num.partitions": "many"})

    with pytest.raises(BrokerError, match=r"status 1:\nminibroker: Invalid value many for .*num\.partitions"):
        broker.start()

    assert not broker.is_running
    broker.close()
    assert list(temporary.iterdir()) == []


def test_a_broker_that_is_not_ready_in_time_is_killed() -> None:
    broker = Broker()

    with pytest.raises(BrokerError, match="not ready in 0 s"):
        broker.start(timeout_seconds=0)

    assert not broker.is_running
    broker.close()


def test_one_that_runs_is_not_started_twice_nor_one_that_was_closed() -> None:
    with Broker() as broker, pytest.raises(BrokerError, match="already running"):
        broker.start()

    with pytest.raises(BrokerError, match="make a new Broker"):
        broker.start()


def test_without_a_start_there_is_no_process(temporary: Path) -> None:
    broker = Broker()

    assert not broker.is_running
    assert broker.stop() == 0
    assert broker.last_log_lines() == "(no log)"
    with pytest.raises(BrokerError, match="not started"):
        _ = broker.pid
    broker.close()
    assert list(temporary.iterdir()) == []


def test_it_listens_on_ipv6_with_an_address_clients_can_use() -> None:
    with Broker(listen="[::1]:0") as broker:
        assert broker.bootstrap_servers.startswith("[::1]:")
        assert partitions_of(broker) == {}


def test_modules_in_the_current_directory_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("minibroker.py", "json.py", "trio.py"):
        (tmp_path / name).write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)

    with Broker() as broker:
        assert broker.is_running


def test_the_package_has_no_other_names_to_offer() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Kafka'"):
        _ = minibroker.Kafka


# -- with the process that started it


def started_by(program: str) -> tuple[subprocess.Popen[str], int]:
    """A Python process that starts a Broker as `broker`, and the broker's process id once `program` has run."""
    source = f"import os, sys, threading, time\nfrom minibroker import Broker\n{program}\n"
    starter = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    return starter, int(starter.stdout.readline())


def end(starter: subprocess.Popen[str]) -> None:
    starter.communicate()


PRINT_PID = "print(broker.pid, flush=True)"
WAIT = "sys.stdin.read()"


def test_it_ends_with_a_killed_process_though_a_fork_of_that_lives_on() -> None:
    starter, pid = started_by(
        "broker = Broker().start()\nif os.fork() == 0:\n    time.sleep(60)\n    os._exit(0)\n" + f"{PRINT_PID}\n{WAIT}"
    )
    children = Path(f"/proc/{starter.pid}/task/{starter.pid}/children").read_text().split()
    (fork,) = {int(child) for child in children} - {pid}

    try:
        starter.kill()
        starter.wait()

        wait_until_gone(pid)
        assert is_alive(fork)
    finally:
        os.kill(fork, signal.SIGKILL)
        end(starter)


def test_ctrl_c_reaches_only_the_process_that_started_it() -> None:
    with Broker() as broker:
        assert os.getpgid(broker.pid) == broker.pid != os.getpgrp()


def test_it_outlives_the_thread_that_started_it() -> None:
    starter, pid = started_by(
        "broker = Broker()\nthread = threading.Thread(target=broker.start)\nthread.start()\nthread.join()\n"
        f"time.sleep(1.5)\n{PRINT_PID}\n{WAIT}"
    )

    assert is_alive(pid)

    end(starter)
    wait_until_gone(pid)


def test_at_the_end_of_the_interpreter_it_is_closed(temporary: Path) -> None:
    starter, pid = started_by(f"broker = Broker().start()\n{PRINT_PID}")

    end(starter)

    assert not is_alive(pid)
    assert list(temporary.iterdir()) == []


def test_a_fork_that_closes_it_changes_nothing() -> None:
    starter, pid = started_by(
        "broker = Broker().start()\nif os.fork() == 0:\n    broker.close()\n    os._exit(0)\nos.wait()\n"
        f"assert broker.is_running and broker.data_dir.exists()\n{PRINT_PID}\n{WAIT}"
    )

    assert is_alive(pid)

    end(starter)
    assert starter.returncode == 0


# -- what a test asks of it


def test_its_environment_is_the_images_and_not_that_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_NUM_PARTITIONS", "7")
    given = {"KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false", "KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://localhost:9092"}

    with Broker(environment=given | {"KAFKA_MADE_UP": "x"}) as broker:
        broker.create_topic("of-the-default")

        assert partitions_of(broker) == {"of-the-default": 1}
        assert "made.up is not a setting of Kafka 2.0 (KAFKA_MADE_UP)" in broker.last_log_lines()


def test_a_topic_is_created_with_partitions_and_configs_and_only_once() -> None:
    with Broker() as broker:
        broker.create_topic("mine", partitions=3, configs={"cleanup.policy": "compact"})

        assert partitions_of(broker) == {"mine": 3}
        with pytest.raises(BrokerError, match="cannot create topic mine: TOPIC_ALREADY_EXISTS"):
            broker.create_topic("mine")
        with pytest.raises(BrokerError, match="INVALID_CONFIG"):
            broker.create_topic("other", configs={"made.up": "x"})


def test_a_reset_leaves_no_topic_and_no_group_also_of_consumers_that_run() -> None:
    with Broker(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        broker.create_topic("mine", partitions=2)
        quiet = {"session.timeout.ms": 120_000, "heartbeat.interval.ms": 100_000}  # it does not come back by itself
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "left", **quiet})
        consumer.subscribe(["mine"])
        while not consumer.assignment():
            consumer.poll(0.1)
        assert groups_of(broker) == {"left"}

        broker.reset()

        assert partitions_of(broker).keys() == {"__consumer_offsets"}
        assert groups_of(broker) == set()
        consumer.close()


def test_a_client_that_is_left_open_does_not_make_the_topics_of_a_reset_again() -> None:
    with Broker() as broker, connected(broker.bootstrap_servers) as left_open:
        broker.create_topic("mine")
        left_open.ask(ApiKey.METADATA, topics=by_name("mine"))

        broker.reset()

        left_open.ask(ApiKey.METADATA, topics=by_name("mine"))
        broker.create_topic("mine", partitions=3)
        (mine,) = left_open.ask(ApiKey.METADATA, topics=by_name("mine")).topics
        assert len(mine.partitions) == 3


def test_a_reset_of_a_dead_broker_fails_with_its_obituary() -> None:
    with Broker() as broker:
        os.kill(broker.pid, signal.SIGKILL)
        wait_until_gone(broker.pid)

        with pytest.raises(
            BrokerError, match=r"was killed by SIGKILL; its last log lines:(.*\n)+.*minibroker is ready"
        ):
            broker.reset()
        assert broker.has_died


def test_a_given_log_file_stays_and_an_unwritable_one_is_an_error(temporary: Path, tmp_path: Path) -> None:
    with Broker(log_file=tmp_path / "kept.log"):
        pass

    assert "minibroker is ready" in (tmp_path / "kept.log").read_text()
    assert list(temporary.iterdir()) == []
    with pytest.raises(BrokerError, match=r"cannot write the broker's log to .*missing/log: No such file"):
        Broker(log_file=tmp_path / "missing" / "log").start()
