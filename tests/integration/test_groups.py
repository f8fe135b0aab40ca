"""Groups of real clients: they share partitions, take over from each other, and resume where they committed."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Group, Join, StartMinibroker, Write
from tests.integration.members import LIBRARIES, wait_until, wait_until_read, wait_until_shared

PARTITIONS = 4


@pytest.mark.ability("groups")
@pytest.mark.parametrize("library", LIBRARIES)
def test_members_share_the_partitions_take_over_and_resume_where_they_committed(library: str, group: Group) -> None:
    one, two = (group.join(library) for _ in range(2))
    wait_until_shared([one, two], PARTITIONS)

    before = group.write(10)
    wait_until_read(before, one, two)
    assert len(one.values()) == len(two.values()) == len(before) / 2
    for member in (one, two):
        member.commit()
    two.close()
    wait_until_shared([one], PARTITIONS)
    assert [one.committed(partition) for partition in range(PARTITIONS)] == [10] * PARTITIONS
    uncommitted = group.write(5)
    wait_until(lambda: len(one.values()) == 20 + len(uncommitted), "what is not committed")
    assert set(uncommitted) < set(one.values())
    one.close()

    next_member = group.join(library)

    wait_until_read(uncommitted, next_member)


@pytest.mark.ability("groups")
@pytest.mark.sample(of=lambda library: library in ("confluent-kafka", "kafkajs"))
@pytest.mark.parametrize("library", LIBRARIES)
def test_automatically_committed_records_are_not_read_again(library: str, group: Group) -> None:
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = group.join(library, **settings)
    wait_until_read(group.write(5), first)
    first.close()
    after = group.write(1)

    second = group.join(library, **settings)

    wait_until_read(after, second)


QUICK_CONSUMER_GROUPS = {
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
    "num.partitions": PARTITIONS,
}


@pytest.mark.ability("new protocol", "confluent-kafka")
def test_members_of_the_consumer_protocol_outlive_kills_of_each_other_and_of_the_broker(
    start_in_place: StartMinibroker, join: Join, write: Write
) -> None:
    broker = start_in_place(settings=QUICK_CONSUMER_GROUPS)
    settings = {"bootstrap": broker.bootstrap, "group_protocol": "consumer"}
    written = write("t", 5, bootstrap=broker.bootstrap)
    one = join("confluent-kafka", "group", "t", **settings)
    wait_until_read(written, one)
    one.commit()
    two = join("confluent-kafka", "group", "t", **settings)
    wait_until_shared([one, two], PARTITIONS)
    lost = one.lost()

    broker.kill()
    start_in_place(settings=QUICK_CONSUMER_GROUPS)
    written += write("t", 5, bootstrap=broker.bootstrap)
    wait_until_read(written, one, two)
    assert (one.lost(), two.lost()) == (lost, [])
    one.commit()
    two.kill()
    wait_until_shared([one], PARTITIONS)
    written = write("t", 5, bootstrap=broker.bootstrap)
    wait_until(lambda: set(written) <= set(one.values()), "the records of the member that was killed")
