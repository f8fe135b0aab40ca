"""Groups of real clients: they share partitions, take over from each other, and resume where they committed."""

from __future__ import annotations

import time

import pytest

from tests.integration.conftest import Join, NewTopic, StartMinibroker, Write
from tests.integration.members import LIBRARIES, wait_until, wait_until_read, wait_until_shared

PARTITIONS = 4
STOP_SECONDS = 30.0  # on a busy machine: half of what the members wait


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(
    library: str, join: Join, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic("shared", PARTITIONS)
    one, two = (join(library, f"group-{topic}", topic) for _ in range(2))
    wait_until_shared([one, two], PARTITIONS)

    before = write(topic, 10)
    wait_until_read(before, one, two)
    assert len(one.values()) == len(two.values()) == len(before) / 2
    for member in (one, two):
        member.commit()
    two.close()
    wait_until_shared([one], PARTITIONS)
    after = write(topic, 10)

    wait_until(lambda: len(one.values()) == 20 + len(after), "what was written since")
    assert set(after) < set(one.values())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_resumes_where_it_committed(library: str, join: Join, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic("resumed", PARTITIONS)
    first = join(library, f"group-{topic}", topic)
    wait_until_read(write(topic, 5), first)
    first.commit()
    assert [first.committed(partition) for partition in range(PARTITIONS)] == [5] * PARTITIONS
    uncommitted = write(topic, 5)
    wait_until(lambda: len(first.values()) == 40, "what is not committed")
    first.close()

    second = join(library, f"group-{topic}", topic)

    wait_until_read(uncommitted, second)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_committed_automatically_is_not_read_again(
    library: str, join: Join, new_topic: NewTopic, write: Write
) -> None:
    topic = new_topic("automatic", PARTITIONS)
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = join(library, f"group-{topic}", topic, **settings)
    wait_until_read(write(topic, 5), first)
    first.close()
    after = write(topic, 1)

    second = join(library, f"group-{topic}", topic, **settings)

    wait_until_read(after, second)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_that_is_killed_is_replaced_when_its_session_ends(
    library: str, join: Join, new_topic: NewTopic
) -> None:
    topic = new_topic("killed", PARTITIONS)
    one, two = (join(library, f"group-{topic}", topic) for _ in range(2))
    wait_until_shared([one, two], PARTITIONS)

    two.kill()

    wait_until_shared([one], PARTITIONS)


def test_libraries_share_a_group(join: Join, new_topic: NewTopic, write: Write) -> None:
    topic = new_topic("mixed", PARTITIONS)
    together = ("kafka-python", "confluent-kafka", "aiokafka", "java")
    members = [join(each, f"group-{topic}", topic, partition_assignment_strategy="roundrobin") for each in together]
    wait_until_shared(members, PARTITIONS)

    wait_until_read(write(topic, 5), *members)


def test_a_broker_stops_at_once_while_members_wait(start_minibroker: StartMinibroker, join: Join) -> None:
    settings = {"group.initial.rebalance.delay.ms": 60_000, "group.min.session.timeout.ms": 1000}
    broker = start_minibroker(settings=settings).wait_until_ready()
    member = join("kafka-python", "group", "topic", bootstrap=broker.bootstrap)
    broker.wait_for_log("group group: rebalance after generation 0")

    begun = time.monotonic()
    status = broker.terminate()

    assert (status, time.monotonic() - begun < STOP_SECONDS) == (0, True)
    assert member.assignment() == []
