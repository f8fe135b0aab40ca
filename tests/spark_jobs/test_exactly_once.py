"""A small form of `python -m tests.spark_jobs.nemesis`, and what judges its rounds."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from minibroker.spark_jobs import archive
from tests.spark_jobs.nemesis import BROKER, DRIVER, KINDS, ONE, Driver, Fault, Plan, Round, draw
from tests.spark_jobs.transactions import ABORTED, COMMITTED, UNKNOWN, Sent, miscounted

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_seed_draws_one_plan(kind: str) -> None:
    plans = [draw(seed, kind=kind, records=1000, workers=2) for seed in range(20)]

    assert plans == [draw(seed, kind=kind, records=1000, workers=2) for seed in range(20)]
    assert len({str(plan) for plan in plans}) == 20


ONES, TWOS, THREES = (list(Sent("x", number, 2, "").values()) for number in (1, 2, 3))


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        ([*ONES], []),
        ([*ONES, *THREES], []),
        ([*ONES, *THREES[:1]], ["number=3"]),
        ([*ONES, *THREES, *THREES], ["number=3"]),
        ([*ONES[:1]], ["number=1"]),
        ([*ONES, ONES[0]], ["number=1"]),
        ([*ONES, TWOS[0]], ["number=2"]),
        ([*ONES, b"another"], ["another"]),
    ],
    ids=[
        "committed",
        "of unknown end, whole",
        "half of an unknown",
        "an unknown again",
        "half of a committed",
        "one again",
        "one of an aborted",
        "one that was not sent",
    ],
)
def test_each_committed_record_is_found_once_and_no_other(found: list[bytes], wrong: list[str]) -> None:
    sent = [Sent("x", 1, 2, COMMITTED), Sent("x", 2, 2, ABORTED), Sent("x", 3, 2, UNKNOWN)]

    texts = miscounted(sent, found)

    assert len(texts) == len(wrong)
    assert all(part in text for part, text in zip(wrong, texts, strict=True))


class InSession(Driver):
    """The job in the session of the test. Its end is not sudden: it ends behind a micro-batch that is not noted."""

    def __init__(self, spark: SparkSession, plan: Plan, folder: Path, **addresses: str) -> None:
        super().__init__(plan, folder, **addresses)
        self._spark = spark
        self._failures: list[Exception] = []

    def start(self) -> None:
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(self._stop,))
        self._thread.start()

    def kill(self) -> None:
        self._stop.set()
        self._thread.join()

    def stop(self, seconds: float) -> None:
        self.check()
        self.kill()

    def check(self) -> None:
        if self._failures:
            raise self._failures[0]

    def _run(self, stop: threading.Event) -> None:
        try:
            archive.run(self._spark, archive.options().parse_args(self.arguments), stop)
        except Exception as failure:
            self._failures.append(failure)


SMALL = Plan(
    seed=1,
    kind=ONE,
    workers=0,
    records=3000,
    partitions=2,
    producers=2,
    records_at_a_time=800,
    segment_bytes=50_000,
    decodes=True,
    compacts=False,
    faults=(Fault(BROKER, 0, 0, 0.2, 0.2), Fault(DRIVER, 0, 1, 0.2, 0.0), Fault(BROKER, 0, 1, 0.1, 0.2)),
)


@pytest.mark.sample(of=lambda kind: kind == ONE)
@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_of_transactions_is_exact_though_its_broker_is_killed_and_the_job_begins_again(
    kind: str, spark: SparkSession, tmp_path: Path
) -> None:
    assert Round(SMALL._replace(kind=kind), tmp_path, spark, driver_of=partial(InSession, spark)).run() == []
