"""Three brokers with three replicas of everything, beside three of Apache Kafka 3.9.1, as confluent-kafka sees them.

Produce with acks=all: bytes of values a second, and the CPU of all brokers for a gigabyte. One record with acks=all
after the other; a transaction of four records; and a leader that is killed, until its client goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from confluent_kafka import Producer

from benchmarks.cases.throughput import SIZES, Size
from benchmarks.clusters import Cluster, cluster_of_kafka, cluster_of_ours
from benchmarks.lab import Lab
from benchmarks.measurements import Measurement, Run
from benchmarks.processes import ProcessError
from benchmarks.topics import QUIET, create_topic, delete_topic, fill_topic, settle_disk

CASE = "cluster"
PARTITIONS = 6
REPLICAS = 3
VOLUME = 0.4  # of what one broker gets
RECORDS = 500
TRANSACTIONS = 100
RECORDS_OF_TRANSACTION = 4
DELIVERY_SECONDS = 60.0
BYTES_PER_MB, BYTES_PER_GB = 1e6, 1e9


def measure(lab: Lab) -> list[Measurement]:
    """Start all clusters, and measure each in turn."""
    lab.close_brokers()
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(cluster_of_ours(name, python, lab.new_folder("cluster")))
            for name, python in lab.builds.items()
        ]
        if lab.has_kafka:
            clusters.append(stack.enter_context(cluster_of_kafka(lab.new_folder("cluster-kafka"))))
        measurements: list[Measurement] = []
        for size in SIZES:
            samples = lab.interleave(f"acks=all {size.text}", _runs(clusters, partial(_fill, lab, size)))
            text = f"acks=all to three brokers, {size.text}"
            measurements += [
                Measurement(CASE, f"{size.metric}_mb_per_s", text, "MB/s", samples["mb_per_s"]),
                Measurement(CASE, f"{size.metric}_cpu_s_per_gb", f"{text}, CPU of the brokers", "s/GB", samples["cpu"]),
            ]
        topics = {each.name: create_topic(each, CASE, replicas=REPLICAS) for each in clusters}
        one_by_one = _runs(clusters, lambda each: _one_by_one(lab, each, topics[each.name]))
        samples = lab.interleave("records and transactions", one_by_one)
        text = f"a transaction of {RECORDS_OF_TRANSACTION} records"
        measurements += [
            Measurement(CASE, "record_p50_us", "one record with acks=all, p50", "us", samples["record"]),
            Measurement(CASE, "transaction_p50_us", f"{text}, p50", "us", samples["transaction"]),
        ]
        samples = lab.interleave("a leader dies", _runs(clusters, lambda each: _fail_over(each, topics[each.name])))
        text = "a leader is killed, until its client goes on"
        return [*measurements, Measurement(CASE, "fail_over_s", text, "s", samples["fail_over"])]


def _runs(clusters: list[Cluster], run: Callable[[Cluster], dict[str, float]]) -> dict[str, Run]:
    return {each.name: partial(run, each) for each in clusters}


def _fill(lab: Lab, size: Size, cluster: Cluster) -> dict[str, float]:
    """Produce into a new topic, with the load's acks=all."""
    topic = create_topic(cluster, CASE, partitions=PARTITIONS, replicas=REPLICAS)
    try:
        settle_disk()
        before = cluster.cpu_seconds()
        count = lab.plan.amount(int(size.produced * VOLUME))
        loaded = fill_topic(cluster, topic, count=count, size_bytes=size.value_bytes, partitions=PARTITIONS)
        return {
            "mb_per_s": loaded["bytes"] / BYTES_PER_MB / loaded["seconds"],
            "cpu": (cluster.cpu_seconds() - before) / (loaded["bytes"] / BYTES_PER_GB),
        }
    finally:
        delete_topic(cluster, topic)


def _one_by_one(lab: Lab, cluster: Cluster, topic: str) -> dict[str, float]:
    producer = _producer(cluster)
    transactional = _producer(cluster, **{"transactional.id": CASE})
    transactional.init_transactions(DELIVERY_SECONDS)

    def transact() -> None:
        transactional.begin_transaction()
        for _ in range(RECORDS_OF_TRANSACTION):
            transactional.produce(topic, b"v" * 100)
        transactional.commit_transaction(DELIVERY_SECONDS)

    return {
        "record": _p50_us(lambda: _send(producer, topic), lab.plan.amount(RECORDS)),
        "transaction": _p50_us(transact, lab.plan.amount(TRANSACTIONS)),
    }


def _fail_over(cluster: Cluster, topic: str) -> dict[str, float]:
    """Kill the leader between two records; start it again afterwards, and wait until it is in sync."""
    cluster.wait_until_in_sync(topic)
    producer = _producer(cluster)
    _send(producer, topic)
    leader = cluster.leader_of(topic)
    cluster.brokers[leader].kill()
    began = time.perf_counter()
    _send(producer, topic)
    took_seconds = time.perf_counter() - began
    cluster.restart(leader)
    cluster.wait_until_in_sync(topic)
    return {"fail_over": took_seconds}


def _producer(cluster: Cluster, **settings: str) -> Producer:
    return Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0, **settings, **QUIET})


def _send(producer: Producer, topic: str) -> None:
    """Send a record, and wait until it is acknowledged. Raises ProcessError."""
    failed: list[str] = []
    producer.produce(topic, b"v" * 100, on_delivery=lambda error, _: failed.append(str(error)) if error else None)
    if producer.flush(DELIVERY_SECONDS) or failed:
        raise ProcessError(f"a record was not acknowledged in {DELIVERY_SECONDS:.0f} s: {failed}")


def _p50_us(step: Callable[[], None], count: int) -> float:
    """The median of so many steps, after a tenth of them."""
    took: list[float] = []
    for _ in range(count + count // 10):
        began = time.perf_counter()
        step()
        took.append(time.perf_counter() - began)
    return sorted(took[count // 10 :])[count // 2] * 1e6
