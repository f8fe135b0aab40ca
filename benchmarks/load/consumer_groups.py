"""Load on a coordinator of groups of the consumer protocol, in a process of its own.

Members over raw sockets join, all at once, and heartbeat until each has its assignment; then one leaves, and the others
heartbeat until they have its partitions; then all leave. It prints one line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import time
from typing import Any

from benchmarks.frames import ANSWER_SECONDS, Frame, FrameError, consumer_group_heartbeat, receive
from benchmarks.load.confluent import LoadError
from minibroker.protocol.api import decode_response
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.message_values import LEAVE_EPOCH, NEW_EPOCH

REBALANCE_TIMEOUT_MS = 60_000
SETTLE_SECONDS = 90.0
# Between two heartbeats of a member: real ones wait five seconds, and would take so long to settle.
PAUSE_SECONDS = 0.05


class Member:
    """One member, on a connection of its own."""

    def __init__(self, host: str, port: int, group_id: str, member_id: str) -> None:
        self.epoch = NEW_EPOCH
        self.partitions: list[tuple[bytes, list[int]]] = []
        self._has_news = False
        self._group_id = group_id
        self._id = member_id
        self._connection = socket.create_connection((host, port), timeout=ANSWER_SECONDS)
        self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self._connection.close()

    @property
    def partition_count(self) -> int:
        return sum(len(partitions) for _, partitions in self.partitions)

    def join(self, subscription: dict[str, Any]) -> None:
        self._send(NEW_EPOCH, rebalance_timeout_ms=REBALANCE_TIMEOUT_MS, topic_partitions=[], **subscription)

    def beat(self) -> None:
        """Report the partitions of the last assignment, once."""
        self._send(self.epoch, **({"topic_partitions": self.partitions} if self._has_news else {}))
        self._has_news = False

    def leave(self) -> None:
        self._send(LEAVE_EPOCH)

    def answered(self) -> None:
        """Take the answer. Raises LoadError for an error code in it."""
        frame = self._sent
        body = decode_response(frame.api_key, frame.version, receive(self._connection))[1]
        if body.error_code:
            raise LoadError(f"a heartbeat was answered with {ErrorCode(body.error_code).name}: {body.error_message}")
        self.epoch = body.member_epoch
        if body.assignment is not None:
            self.partitions = [(topic_id, list(each)) for topic_id, each in body.assignment[0]]
            self._has_news = True

    def _send(self, epoch: int, **body: Any) -> None:
        self._sent: Frame = consumer_group_heartbeat(self._group_id, self._id, epoch, **body)
        self._connection.sendall(self._sent.payload)


def settle(members: list[Member], partitions: int) -> float:
    """Heartbeat until all are in one epoch and have all partitions, as many each; return the seconds."""
    start = time.perf_counter()
    while True:
        for member in members:
            member.beat()
        for member in members:
            member.answered()
        is_in_one_epoch = len({member.epoch for member in members}) == 1
        counts = [member.partition_count for member in members]
        if is_in_one_epoch and sum(counts) == partitions and max(counts) - min(counts) <= 1:
            return time.perf_counter() - start
        if time.perf_counter() - start > SETTLE_SECONDS:
            raise LoadError(f"{len(members)} members have not settled in {SETTLE_SECONDS:.0f} s")
        time.sleep(PAUSE_SECONDS)


def in_turn(members: list[Member], send: Any) -> None:
    """Send the requests of all members, then take the answers."""
    for member in members:
        send(member)
    for member in members:
        member.answered()


def rebalances(
    address: tuple[str, int], *, count: int, partitions: int, subscription: dict[str, Any]
) -> dict[str, float]:
    """Seconds until a new group has settled, and until it has after one of its members has left."""
    group_id = f"benchmark-{os.getpid()}"
    members = [Member(*address, group_id, f"member-{number}") for number in range(count)]
    start = time.perf_counter()
    in_turn(members, lambda member: member.join(subscription))
    settle(members, partitions)
    measured = {"joined_s": time.perf_counter() - start}
    if count > 1:
        in_turn(members[:1], Member.leave)
        measured["left_s"] = settle(members[1:], partitions)
        members[0].close()
    in_turn(members[-count + 1 :], Member.leave)
    for member in members:
        member.close()
    return measured


def main() -> None:
    """Put on the load that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("bootstrap")
    parser.add_argument("--members", type=int, required=True)
    parser.add_argument("--partitions", type=int, required=True, help="of all topics that they subscribe to")
    subscription = parser.add_mutually_exclusive_group(required=True)
    subscription.add_argument("--topic")
    subscription.add_argument("--regex")
    options = parser.parse_args()
    host, _, port = options.bootstrap.rpartition(":")
    of_members = (
        {"subscribed_topic_names": [options.topic]} if options.topic else {"subscribed_topic_regex": options.regex}
    )
    try:
        measured = rebalances(
            (host, int(port)), count=options.members, partitions=options.partitions, subscription=of_members
        )
    except (LoadError, FrameError) as error:
        sys.exit(str(error))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
