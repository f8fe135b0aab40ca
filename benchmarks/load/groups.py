"""Load on a group coordinator and on a transaction coordinator, in a process of its own.

    rebalance   members over raw sockets join again, all at once, and get their assignments; so often
    transact    confluent-kafka writes one message a transaction, one after the other

Each prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from typing import Any

from confluent_kafka import Producer

from benchmarks.load.confluent import ANSWER_SECONDS, LoadError
from minibroker.protocol.api import ApiKey, decode_response, encode_request
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.messages.groups import HeartbeatRequest, JoinGroupRequest, SyncGroupRequest

GROUP = f"benchmark-rebalance-{os.getpid()}"  # members stay in it until their sessions end
JOIN_VERSION = 2
SYNC_VERSION = 1
HEARTBEAT_VERSION = 1
SESSION_TIMEOUT_MS = 30_000
METADATA = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"  # ConsumerProtocolSubscription v0 of one topic, t
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\0\xff\xff\xff\xff"
VALUE = bytes(100)


class RebalanceInProgress(LoadError):
    """A member is to join again."""


class Member:
    """One member of the group, on a connection of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.id = ""
        self.generation_id = -1
        self._connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    def send(self, api_key: ApiKey, version: int, body: Any) -> None:
        self._connection.sendall(encode_request(api_key, version, 1, "benchmark", body))

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """The answer's body. Raises LoadError for an error code in it."""
        size_bytes = int.from_bytes(self._read(4), "big")
        body = decode_response(api_key, version, self._read(size_bytes))[1]
        if body.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
            raise RebalanceInProgress
        if body.error_code:
            raise LoadError(f"{api_key.name} was answered with {ErrorCode(body.error_code).name}")
        return body

    def join(self) -> None:
        body = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            member_id=self.id,
            protocol_type="consumer",
            protocols=[("range", METADATA)],
        )
        self.send(ApiKey.JOIN_GROUP, JOIN_VERSION, body)

    def joined(self) -> Any:
        body = self.receive(ApiKey.JOIN_GROUP, JOIN_VERSION)
        self.id, self.generation_id = body.member_id, body.generation_id
        return body

    def wait_for_rebalance(self) -> None:
        """Ask by heartbeats, as members do, until one is answered that there is a rebalance."""
        body = HeartbeatRequest(group_id=GROUP, generation_id=self.generation_id, member_id=self.id)
        while True:
            self.send(ApiKey.HEARTBEAT, HEARTBEAT_VERSION, body)
            try:
                self.receive(ApiKey.HEARTBEAT, HEARTBEAT_VERSION)
            except RebalanceInProgress:
                return

    def sync(self, joined: Any) -> None:
        assignments = [(member.member_id, ASSIGNMENT) for member in joined.members]  # the leader's; others give none
        body = SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=self.id, assignments=assignments
        )
        self.send(ApiKey.SYNC_GROUP, SYNC_VERSION, body)

    def synced(self) -> None:
        self.receive(ApiKey.SYNC_GROUP, SYNC_VERSION)

    def _read(self, size_bytes: int) -> bytes:
        data = self._connection.recv(size_bytes, socket.MSG_WAITALL)
        if len(data) < size_bytes:
            raise LoadError("the broker closed a member's connection")
        return data


def rebalance(host: str, port: int, *, members: int, rounds: int) -> dict[str, float]:
    """Milliseconds from the first member's JoinGroup to the last one's assignment; the first two rounds not counted.

    The leader's JoinGroup begins the rebalance; the others join when the heartbeat of one of them has returned
    REBALANCE_IN_PROGRESS. The group forms member by member before that, which is not counted.
    """
    group: list[Member] = []
    for _ in range(members):
        group.append(Member(host, port))
        generation(group)
    took: list[float] = []
    for _ in range(rounds + 2):
        start = time.perf_counter()
        generation(group)
        took.append((time.perf_counter() - start) * 1000)
    took = sorted(took[2:])
    return {"rebalances": len(took), "p50_ms": took[len(took) // 2], "max_ms": took[-1]}


def generation(group: list[Member]) -> None:
    """One rebalance. The leader is first in `group`: its JoinGroup, or that of a new member, begins the rebalance."""
    starters = [group[-1]] if not group[-1].id else []
    others = [member for member in group if member not in starters]
    if not starters:
        starters, others = others[:1], others[1:]
    starters[0].join()
    for member in others:
        if member is others[0]:
            member.wait_for_rebalance()
        member.join()
    answers = {member: member.joined() for member in (*starters, *others)}
    for member, joined in answers.items():
        member.sync(joined)
    for member in answers:
        member.synced()
    leader = next(member for member, joined in answers.items() if joined.leader == member.id)
    group.sort(key=lambda member: member is not leader)


def transact(bootstrap: str, topic: str, *, count: int) -> dict[str, float]:
    """Write `count` transactions of one message each."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"benchmark-{topic}", "linger.ms": 0})
    producer.init_transactions(ANSWER_SECONDS)
    took: list[float] = []
    start = time.perf_counter()
    for _ in range(count):
        began = time.perf_counter()
        producer.begin_transaction()
        producer.produce(topic, VALUE, partition=0)
        producer.commit_transaction(ANSWER_SECONDS)
        took.append((time.perf_counter() - began) * 1000)
    seconds = time.perf_counter() - start
    took.sort()
    return {"transactions_per_s": count / seconds, "p50_ms": took[count // 2], "p99_ms": took[count * 99 // 100]}


def main() -> None:
    """Put on the load that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=["rebalance", "transact"])
    parser.add_argument("bootstrap")
    parser.add_argument("--topic", default="")
    parser.add_argument("--count", type=int, required=True, help="rounds, or transactions")
    parser.add_argument("--members", type=int, default=50)
    options = parser.parse_args()
    host, _, port = options.bootstrap.rpartition(":")
    try:
        if options.load == "rebalance":
            measured = rebalance(host, int(port), members=options.members, rounds=options.count)
        else:
            measured = transact(options.bootstrap, options.topic, count=options.count)
    except LoadError as error:
        sys.exit(str(error))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
