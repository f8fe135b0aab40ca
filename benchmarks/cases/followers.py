"""The fetches of followers, with nothing new: 100 topics of three partitions with three replicas, on three brokers.

A cluster in which nobody writes still fetches: each broker asks the two others for what it follows, and they answer
after replica.fetch.wait.max.ms. In a session (KIP-227) such a request names no partition. The sizes are those of real
brokers, by their transcripts.
"""

from __future__ import annotations

import statistics
import time

from benchmarks.lab import Lab
from benchmarks.measurements import MINIBROKER, Measurement
from minibroker.cluster import Cluster
from minibroker.transcript.exchanges import Exchange

CASE = "followers"
BROKERS = 3
TOPICS = 100
PARTITIONS = 3
IDLE_SECONDS = 10.0
FULL_EPOCH = 0
NS_PER_SECOND = 1e9


def measure(lab: Lab) -> list[Measurement]:
    """Count the bytes of full and of incremental fetches, and of all while nobody writes, one sample a round."""
    rounds = [figures(lab.plan.volume * IDLE_SECONDS) for _ in range(lab.plan.rounds)]
    texts = {
        "partitions": ("partitions of a full fetch", ""),
        "full_bytes": ("a full fetch and its answer", "B"),
        "incremental_bytes": ("an incremental fetch with nothing new, and its answer", "B"),
        "idle_fetches_per_s": ("fetches of all followers, idle", "1/s"),
        "idle_bytes_per_s": ("bytes of these fetches", "B/s"),
        "idle_full_bytes_per_s": ("bytes of as many full fetches", "B/s"),
    }
    return [
        Measurement(CASE, metric, text, unit, {MINIBROKER: [each[metric] for each in rounds]})
        for metric, (text, unit) in texts.items()
    ]


def figures(idle_seconds: float) -> dict[str, float]:
    """Return the figures of a new cluster with these topics, each of whose brokers leads a third of the partitions."""
    with Cluster(brokers=BROKERS, transcript=True) as cluster:
        for number in range(TOPICS):
            cluster.create_topic(f"topic-{number}", partitions=PARTITIONS)
        began_ns = time.time_ns()
        time.sleep(idle_seconds)  # nobody writes
        ended_ns = time.time_ns()
        follower = cluster.broker_ids[-1]
        cluster.stop(follower)  # its sessions end: it begins new ones with full fetches
        cluster.start(follower)
        cluster.until_isr("topic-0", 0, cluster.broker_ids)
        fetches = [
            each
            for broker in cluster.brokers
            for each in broker.transcript.exchanges()
            if each.api == "Fetch" and each.outcome == "answered"
        ]
    full = max((each for each in fetches if each.request.session_epoch == FULL_EPOCH), key=partitions_of)
    idle = [each for each in fetches if began_ns <= each.time_ns <= ended_ns]
    followed = TOPICS * PARTITIONS / BROKERS  # of each leader, by each follower
    seconds = (ended_ns - began_ns) / NS_PER_SECOND
    return {
        "partitions": partitions_of(full),
        "full_bytes": size_of(full),
        "incremental_bytes": statistics.median(map(size_of, idle)),
        "idle_fetches_per_s": len(idle) / seconds,
        "idle_bytes_per_s": sum(map(size_of, idle)) / seconds,
        "idle_full_bytes_per_s": len(idle) * followed * size_of(full) / partitions_of(full) / seconds,
    }


def partitions_of(fetch: Exchange) -> int:
    return sum(len(topic.partitions) for topic in fetch.request.topics)


def size_of(fetch: Exchange) -> int:
    """Return the bytes of the request and of its answer."""
    assert fetch.response_bytes is not None
    return fetch.request_bytes + fetch.response_bytes
