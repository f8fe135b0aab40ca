"""Assignments of replicas by Apache Kafka 2.0.1's own classes, for drawn clusters, and those of `assignment.py`.

To record anew: python -m tests.books kafka-2.0.1 assignments --record
"""

from __future__ import annotations

import subprocess
from random import Random

from benchmarks.apache_kafka import class_path, kafka_jars
from minibroker.broker.cluster.assignment import added_partitions, assign_replicas
from minibroker.protocol.errors import KafkaError
from tests.conformance.recordings import Comparison, read
from tests.jvm import QUICK_JVM
from tests.setup_clients import compiled_for_kafka

RECORDED = "kafka-2.0.1-assignments.json.gz"
CASES = 400
ASSIGN_SECONDS = 60.0


def drawn(seed: int) -> str:
    """A case, as `ReplicaAssignments.java` reads it: brokers with racks, some with none, and a topic."""
    random = Random(seed)
    broker_ids = sorted(random.sample(range(12), random.randint(1, 9)))
    kind = random.choice(("new", "new", "more"))
    # Whether all brokers have racks, if partitions are added, Kafka asks where it reads the brokers from ZooKeeper.
    rack_count, share = random.randint(1, 4), random.choice((0, 1, 1, 0.9 if kind == "new" else 0))
    racks = ["=" + random.choice("abcd"[:rack_count]) if random.random() < share else "" for _ in broker_ids]
    brokers = ",".join(f"{broker}{rack}" for broker, rack in zip(broker_ids, racks, strict=True))
    factor = random.randint(1, min(5, len(broker_ids)))
    if kind == "new":
        counts = random.choice((0, *range(1, 25))), random.choice((0, len(broker_ids) + 1, *[factor] * 8))
        return f"new\t{brokers}\t{counts[0]}\t{counts[1]}\t{random.randrange(len(broker_ids))}"
    existing = [random.sample(range(14), factor) for _ in range(random.randint(1, 20))]
    return f"more\t{brokers}\t{text_of(existing)}\t{len(existing) + random.randint(1, 20)}"


def text_of(assignment: list[list[int]]) -> str:
    return ";".join(",".join(map(str, replicas)) for replicas in assignment)


def assigned(case: str) -> str:
    """The assignment by this broker: the replicas of each partition, or the error."""
    kind, brokers, *fields = case.split("\t")
    racks = {int(broker): rack or None for broker, _, rack in (each.partition("=") for each in brokers.split(","))}
    try:
        if kind == "new":
            partition_count, factor, start = map(int, fields)
            return text_of(assign_replicas(racks, partition_count, factor, lambda _: start))
        existing = [list(map(int, replicas.split(","))) for replicas in fields[0].split(";")]
        return text_of(added_partitions(existing, int(fields[1]), None, racks))
    except KafkaError as error:
        return f"{error.code.name} {error.message}"


def kafkas_assignments(cases: list[str]) -> list[str]:
    """The same by Kafka's classes, all in one JVM. Raises KafkaUnavailable."""
    jars = class_path(kafka_jars())
    classes = compiled_for_kafka("ReplicaAssignments", jars)
    done = subprocess.run(
        ["java", *QUICK_JVM, "-Xmx256m", "-cp", f"{classes}:{jars}", "ReplicaAssignments"],
        input="".join(f"{case}\n" for case in cases),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=ASSIGN_SECONDS,
        check=True,
    )
    return done.stdout.splitlines()


def recorded() -> list[str]:
    """The outcomes of the seeds from 0 on."""
    found: list[str] = read(RECORDED)
    return found


def compared(seeds: range) -> Comparison:
    cases = [drawn(seed) for seed in seeds]
    kafkas = kafkas_assignments(cases)
    found = [
        f"-- seed {seed}: {case}\nKafka      {theirs}\nminibroker {mine}"
        for seed, case, theirs, mine in zip(seeds, cases, kafkas, map(assigned, cases), strict=True)
        if theirs != mine
    ]
    return Comparison(kafkas, len(cases), found)
