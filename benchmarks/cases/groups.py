"""The coordinators: offset commits and heartbeats a second, a rebalance of fifty members, transactions a second.

Raw is a relay that takes every transaction for committed: what the client takes.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import Any

from benchmarks import frames
from benchmarks.cases.requests import small_requests
from benchmarks.lab import RELAYED, Lab
from benchmarks.load.groups import GROUP, Member, generation
from benchmarks.measurements import RAW, Measurement, Run
from benchmarks.processes import ServerProcess, module_command, run_json
from benchmarks.topics import Broker, create_topic

CASE = "groups"
COMMITS = "benchmark-commits"
MEMBERS = 50
REBALANCES = 20
TRANSACTIONS = 1000
LOAD_SECONDS = 120.0
COORDINATOR_SECONDS = 30.0
RETRY_SECONDS = 0.1
WARM_UPS = 2  # the JVM compiles


def measure(lab: Lab) -> list[Measurement]:
    """All of them, on every broker."""
    commits = {broker.name: small_requests(lab, broker, commit_of_offsets(broker)) for broker in lab.brokers()}
    samples = lab.interleave("commits of offsets", commits, warm_ups=WARM_UPS)
    measurements = [
        Measurement(CASE, "commits_per_s", "OffsetCommit, one partition, ten connections", "1/s", samples["per_s"]),
        Measurement(CASE, "commit_p99_us", "OffsetCommit, p99", "us", samples["p99_us"]),
        Measurement(CASE, "commit_cpu_us", "OffsetCommit, server CPU", "us", samples["cpu_us"]),
        Measurement(CASE, "commit_kernel_us", "OffsetCommit, of it in the kernel", "us", samples["kernel_us"]),
    ]
    with ExitStack() as stack:
        heartbeats = {broker.name: _heartbeats(lab, broker, stack) for broker in lab.brokers()}
        samples = lab.interleave("heartbeats", heartbeats, warm_ups=WARM_UPS)
    measurements += [
        Measurement(CASE, "heartbeats_per_s", "Heartbeat, ten connections", "1/s", samples["per_s"]),
        Measurement(CASE, "heartbeat_cpu_us", "Heartbeat, server CPU", "us", samples["cpu_us"]),
    ]
    rebalances = {broker.name: _rebalance_run(lab, broker) for broker in lab.brokers()}
    samples = lab.interleave(f"rebalances of {MEMBERS} members", rebalances, warm_ups=WARM_UPS)
    text = f"{MEMBERS} members join again and are assigned"
    measurements += [Measurement(CASE, "rebalance_p50_ms", f"{text}, p50", "ms", samples["p50_ms"])]
    with lab.relay() as relay:
        transactions = {each.name: _transaction_run(lab, each, create_topic(each, CASE)) for each in lab.brokers()}
        transactions[RAW] = _transaction_run(lab, relay, RELAYED)
        samples = lab.interleave("transactions", transactions, warm_ups=WARM_UPS)
    measurements += [
        Measurement(CASE, "transactions_per_s", "transactions of one message", "1/s", samples["transactions_per_s"]),
        Measurement(CASE, "transaction_p99_ms", "a transaction, p99", "ms", samples["p99_ms"]),
        Measurement(CASE, "transaction_cpu_us", "a transaction, server CPU", "us", samples["cpu_us"]),
    ]
    return measurements


def commit_of_offsets(broker: Broker) -> frames.Frame:
    """A commit by a consumer that assigns its partitions itself, to a coordinator that takes it."""
    request = frames.offset_commit(COMMITS, create_topic(broker, CASE))
    wait_for_coordinator(broker, COMMITS, request)
    return request


def _heartbeats(lab: Lab, broker: Broker, stack: ExitStack) -> Run:
    """Heartbeats of one member, which has joined before."""
    member = Member(broker.host, broker.port)
    stack.callback(member.close)
    generation([member])
    request = frames.heartbeat(GROUP, member.generation_id, member.id)
    frames.ask(broker.host, broker.port, request)
    return small_requests(lab, broker, request)


def wait_for_coordinator(broker: Broker, group_id: str, request: frames.Frame) -> Any:
    """Answer a request of a group: the first look for a coordinator makes its topic, for which Kafka needs a while."""
    deadline = time.monotonic() + COORDINATOR_SECONDS
    while True:
        try:
            frames.ask(broker.host, broker.port, frames.find_coordinator(group_id))
            return frames.ask(broker.host, broker.port, request)[1]
        except frames.FrameError:
            if time.monotonic() > deadline:
                raise
            time.sleep(RETRY_SECONDS)


def _rebalance_run(lab: Lab, broker: Broker) -> Run:
    command = module_command("benchmarks.load.groups", "rebalance", broker.bootstrap)
    command += ["--count", str(lab.plan.amount(REBALANCES)), "--members", str(MEMBERS)]
    return lambda: run_json(command, seconds=LOAD_SECONDS)


def _transaction_run(lab: Lab, broker: Broker | ServerProcess, topic: str) -> Run:
    command = module_command("benchmarks.load.groups", "transact", broker.bootstrap)
    command += ["--topic", topic, "--count", str(lab.plan.amount(TRANSACTIONS))]

    def run() -> dict[str, float]:
        before = broker.cpu_seconds()
        measured = run_json(command, seconds=LOAD_SECONDS)
        cpu_seconds = broker.cpu_seconds() - before
        return {**measured, "cpu_us": cpu_seconds / lab.plan.amount(TRANSACTIONS) * 1e6}

    return run
