"""The nemesis itself: a seed draws one plan, and its judges find what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from minibroker.history.recorder import PolledRecord
from tests.nemesis.ours import unsettled
from tests.nemesis.plan import LASTING, SUDDEN, draw
from tests.nemesis.rounds import DEFECT, sent_again_by_client
from tests.nemesis.workload import wrong_copies


def test_a_seed_draws_one_plan() -> None:
    plans = [draw(seed, seconds=6) for seed in range(200)]

    assert [draw(seed, seconds=6) for seed in range(200)] == plans
    assert {fault.kind for plan in plans for fault in plan.faults} == LASTING.keys() | SUDDEN.keys()
    assert {plan.brokers for plan in plans} == {3, 4, 5}
    assert {draw(seed, seconds=6, brokers=4).brokers for seed in range(20)} == {4}


FOLLOWER = {"leader": 1, "leader_epoch": 4, "high_watermark": 9, "log_end_offset": 9}
ROW = {
    "topic": "t",
    "partition": 0,
    "leader": 1,
    "leader_seen": 1,
    "leader_epoch": 4,
    "in_sync_replicas": [2, 1],
    "replicas": [1, 2],
}


@pytest.mark.parametrize(
    ("changes", "of_the_replica", "wrong"),
    [
        ({}, {}, ""),
        ({"in_sync_replicas": [1]}, {}, "ISR"),
        ({"leader_seen": 2}, {}, "shows the leader 2"),
        ({"replicas": [1, 2, 3], "in_sync_replicas": [1, 2, 3]}, {}, "broker 3 has None"),
        ({}, {"leader_epoch": 3}, "and should be"),
        ({}, {"leader": 2}, "and should be"),
        ({}, {"high_watermark": 8}, "has committed up to 8"),
        ({"partition": 1}, {}, "the same partitions"),
    ],
)
def test_a_cluster_that_has_not_settled_is_found(
    changes: dict[str, Any], of_the_replica: dict[str, Any], wrong: str
) -> None:
    row = {**ROW, **changes}
    views = {
        1: [{**ROW, **(changes if "partition" not in changes else {}), "replica": FOLLOWER}],
        2: [{**row, "replica": {**FOLLOWER, **of_the_replica}}],
        3: [{**ROW, **(changes if "partition" not in changes else {}), "replica": None}],
    }

    found = unsettled(views)

    assert bool(found) == bool(wrong)
    assert wrong in "\n".join(found)


@pytest.mark.parametrize(
    ("copies", "wrong"),
    [
        (["a 0 0"], ""),
        (["a 0 0", "b 0 1"], ""),
        (["b 0 1"], "should be 'a 0 0'"),
        (["a 0 0", "a 0 0"], "should be 'b 0 1'"),
        (["a 0 0", "b 0 1", "c 0 2"], "has 3 copies of 2 records"),
    ],
)
def test_each_record_is_copied_once(copies: list[str], wrong: str) -> None:
    read = [PolledRecord("sent", 0, offset, value) for offset, value in enumerate("ab")]
    read += [PolledRecord("copied", 0, offset, value) for offset, value in enumerate(copies)]

    found = wrong_copies(read)

    assert bool(found) == bool(wrong)
    assert wrong in "\n".join(found)


@pytest.mark.parametrize(
    ("line", "is_defect"),
    [
        ("Traceback (most recent call last):", True),
        ("2026-11-26 01:00:00,000 ERROR minibroker.broker: cannot follow broker 1 in t-0: a defect", True),
        ("2026-11-26 01:00:00,000 INFO minibroker.broker: minibroker is ready", False),
    ],
)
def test_a_defect_in_a_log_is_found(line: str, is_defect: bool) -> None:
    assert (DEFECT.search(f"first\n{line}\nlast") is not None) == is_defect


def test_a_record_that_librdkafka_sends_again_is_not_the_brokers() -> None:
    log = (
        "%7|1.1|DRAIN|rdkafka#producer-2| [thrd:127.0.0.1:1/1]: sent [2] beginning partition drain\n"
        "%7|1.2|ERRSEQ|rdkafka#producer-2| [thrd:127.0.0.1:1/1]: 127.0.0.1:1/1: ProduceRequest for sent [1] with 3 "
        "message(s) failed due to skipped sequence numbers (PID{Id:1000,Epoch:0}, base seq 39 > next seq 37) caused by "
        "previous failed request (NOT_LEADER_FOR_PARTITION, actions Refresh,MsgNotPersisted)\n"
    )

    assert sent_again_by_client(log) == {("sent", 1)}
