"""Groups of real clients: they share partitions, take over from each other, and resume where they committed."""

from __future__ import annotations

import pytest

from tests.integration.conftest import Group, Join, StartMinibroker, Write
from tests.integration.members import LIBRARIES, wait_until, wait_until_read, wait_until_shared

PARTITIONS = 4


@pytest.mark.parametrize("library", LIBRARIES)
def test_two_members_share_the_partitions_and_one_takes_over_when_the_other_leaves(library: str, group: Group) -> None:
    one, two = (group.join(library) for _ in range(2))
    wait_until_shared([one, two], PARTITIONS)

    before = group.write(10)
    wait_until_read(before, one, two)
    assert len(one.values()) == len(two.values()) == len(before) / 2
    for member in (one, two):
        member.commit()
    two.close()
    wait_until_shared([one], PARTITIONS)
    after = group.write(10)

    wait_until(lambda: len(one.values()) == 20 + len(after), "what was written since")
    assert set(after) < set(one.values())


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_group_resumes_where_it_committed(library: str, group: Group) -> None:
    first = group.join(library)
    wait_until_read(group.write(5), first)
    first.commit()
    assert [first.committed(partition) for partition in range(PARTITIONS)] == [5] * PARTITIONS
    uncommitted = group.write(5)
    wait_until(lambda: len(first.values()) == 40, "what is not committed")
    first.close()

    second = group.join(library)

    wait_until_read(uncommitted, second)


@pytest.mark.sample(of=lambda library: library in ("confluent-kafka", "kafkajs"))
@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_committed_automatically_is_not_read_again(library: str, group: Group) -> None:
    settings = {"enable_auto_commit": True, "auto_commit_interval_ms": 100}
    first = group.join(library, **settings)
    wait_until_read(group.write(5), first)
    first.close()
    after = group.write(1)

    second = group.join(library, **settings)

    wait_until_read(after, second)


@pytest.mark.sample(of=lambda library: library == "kafka-python")
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_member_that_is_killed_is_replaced_when_its_session_ends(library: str, group: Group) -> None:
    one, two = (group.join(library) for _ in range(2))
    wait_until_shared([one, two], PARTITIONS)

    two.kill()

    wait_until_shared([one], PARTITIONS)


def test_libraries_share_a_group(group: Group) -> None:
    together = ("kafka-python", "confluent-kafka", "aiokafka", "java")
    members = [group.join(each, partition_assignment_strategy="roundrobin") for each in together]
    wait_until_shared(members, PARTITIONS)

    wait_until_read(group.write(5), *members)


QUICK_CONSUMER_GROUPS = {
    "group.consumer.session.timeout.ms": 3000,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.assignment.interval.ms": 0,
    "num.partitions": PARTITIONS,
}


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


@pytest.mark.nightly
def test_members_of_both_protocols_share_a_group_and_it_changes_with_them(group: Group) -> None:
    classic = [group.join(library, partition_assignment_strategy="range") for library in ("kafka-python", "aiokafka")]
    wait_until_shared(classic, PARTITIONS)
    wait_until_read(group.write(5), *classic)
    for member in classic:
        member.commit()

    new = [group.join("confluent-kafka", group_protocol="consumer") for _ in range(2)]
    wait_until_shared([*classic, *new], PARTITIONS)
    written = group.write(5)
    wait_until(lambda: set(written) <= {each for member in (*classic, *new) for each in member.values()}, "all records")
    for member in new:
        member.commit()
        member.close()
    wait_until_shared(classic, PARTITIONS)
    after = group.write(5)

    wait_until(lambda: set(after) <= {each for member in classic for each in member.values()}, "the last records")
