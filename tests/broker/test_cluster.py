"""Brokers and replicas at the handlers: what is there, where it lies, and that nothing is being moved."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from tests.broker.conftest import InMemoryBroker
from tests.integration.brokers import Minibroker


async def test_the_size_of_the_disk_is_answered_from_version_4_on(broker: InMemoryBroker) -> None:
    disk = os.statvfs(broker.app._log_manager.log_dir)

    answer = await broker.call(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[])

    assert answer.results[0].total_bytes == disk.f_blocks * disk.f_frsize
    assert 0 < answer.results[0].usable_bytes < answer.results[0].total_bytes


# What the admin client of kafka-python gets: the error code of each partition.
REASSIGNING = """
import sys
from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import NewTopic

admin = KafkaAdminClient(bootstrap_servers=sys.argv[1])
admin.create_topics([NewTopic("t", 3, 1)])
asked = {("t", 0): [0], ("t", 1): [1], ("t", 2): None, ("nope", 0): None}
found = admin.alter_partition_reassignments({TopicPartition(*key): replicas for key, replicas in asked.items()})
print([found[key].errno if found[key] else 0 for key in asked])
"""


@pytest.mark.integration
def test_a_client_asks_for_reassignments(tmp_path: Path) -> None:
    broker = Minibroker(tmp_path)
    try:
        broker.wait_until_ready()
        command = [sys.executable, "-W", "ignore", "-c", REASSIGNING, f"{broker.host}:{broker.port}"]
        printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        broker.kill()

    codes = ("NONE", "INVALID_REPLICA_ASSIGNMENT", "NO_REASSIGNMENT_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION")
    assert ast.literal_eval(printed) == [ErrorCode[code] for code in codes]
