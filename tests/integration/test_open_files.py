"""A broker with few open files: it refuses partitions in time, and names the limit when it cannot start."""

from __future__ import annotations

import resource
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from minibroker import Cluster
from minibroker.conformance.raw_connection import Closed, RawConnection
from minibroker.protocol.api import API_TABLE, ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.integration.brokers import Minibroker
from tests.integration.conftest import StartMinibroker
from tests.integration.topics import create_topic
from tests.integration.wire import connection_to, read
from tests.minibroker.commands import minibroker

LIMIT = 200
FITS = 100
START_SECONDS = 60
CREATE_TOPICS, CREATE_PARTITIONS = API_TABLE[ApiKey.CREATE_TOPICS].request, API_TABLE[ApiKey.CREATE_PARTITIONS].request


@pytest.fixture
def limited(start_minibroker: StartMinibroker) -> Minibroker:
    """A broker with few open files, half of them used."""
    broker = start_minibroker().wait_until_ready()
    resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (LIMIT, LIMIT))
    create_topic(broker, "fits", FITS)
    return broker


def create(connection: RawConnection, *topics: tuple[str, int], validate_only: bool = False) -> dict[str, Any]:
    rows: list[Any] = [(name, count, 1, [], []) for name, count in topics]
    answer = connection.call(ApiKey.CREATE_TOPICS, 1, topics=rows, timeout_ms=10_000, validate_only=validate_only)
    return {row.name: row for row in answer.topics}


@pytest.mark.parametrize("validate_only", [False, True])
def test_a_topic_with_too_many_partitions_is_refused_and_nothing_of_it_made(
    limited: Minibroker, validate_only: bool
) -> None:
    with connection_to(limited.bootstrap) as connection:
        answers = create(connection, ("small", 10), ("large", FITS), validate_only=validate_only)

        assert (answers["small"].error_code, answers["large"].error_code) == (0, ErrorCode.POLICY_VIOLATION)
        assert "this broker may open" in answers["large"].error_message
        assert f"of {LIMIT}; start it with a higher limit (ulimit -n)" in answers["large"].error_message
        assert not list(limited.data_dir.glob("large-*"))
        assert read(connection, "fits", partition=FITS - 1).error_code == 0


def test_a_topic_does_not_grow_beyond_the_limit(limited: Minibroker) -> None:
    rows = [("fits", 2 * FITS, None)]
    with connection_to(limited.bootstrap) as connection:
        (answer,) = connection.call(ApiKey.CREATE_PARTITIONS, 0, topics=rows, timeout_ms=10_000).results

    assert answer.error_code == ErrorCode.POLICY_VIOLATION
    assert len(list(limited.data_dir.glob("fits-*"))) == FITS


def test_a_broker_with_more_logs_than_open_files_names_the_limit(start_minibroker: StartMinibroker) -> None:
    broker = start_minibroker().wait_until_ready()
    create_topic(broker, "t", FITS)
    assert broker.terminate() == 0
    command = [
        sys.executable,
        "-m",
        "minibroker",
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--data-dir",
        str(broker.data_dir),
    ]

    done = subprocess.run(
        ["sh", "-c", f'ulimit -n {FITS}; exec "$@"', "sh", *command], capture_output=True, timeout=START_SECONDS
    )

    (line,) = done.stderr.decode().splitlines()
    assert done.returncode == 1
    assert "Too many open files" in line
    assert line.endswith("each partition needs an open file: raise the limit (ulimit -n)")


def test_connections_leave_descriptors_for_logs(limited: Minibroker) -> None:
    with ExitStack() as opened:
        connections = [opened.enter_context(connection_to(limited.bootstrap)) for _ in range(LIMIT)]
        answers = [each.ask(ApiKey.API_VERSIONS, 0) for each in connections]

        assert answers[0] is not Closed
        assert answers[-1] is Closed
        assert len(list(Path(f"/proc/{limited.pid}/fd").iterdir())) < LIMIT


def test_a_replica_without_a_descriptor_comes_once_there_is_one() -> None:
    with Cluster(brokers=3) as cluster:
        victim = next(each for each in cluster.broker_ids if each != cluster.controller)
        pid = cluster.broker(victim).pid
        limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used, limits[1]))
        other = cluster.broker(cluster.controller)
        assert minibroker("topics", "create", "new", "-p", "3", "-r", "3", "-b", other.bootstrap_servers).status == 0
        cluster.wait_for(lambda: "Too many open files" in cluster.broker(victim).last_log_lines())
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)

        for number in range(3):
            cluster.until_isr("new", number, {1, 2, 3})
