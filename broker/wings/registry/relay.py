"""The registries of a cluster, one beside each broker: that of the leader of `_schemas` answers.

Each leaves its address in the directory that the brokers share, and passes requests on to the leader's, as Confluent's
do to their primary. So all answer alike, and whichever broker dies, the others go on.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import trio

from minibroker.broker.parts import BrokerParts
from minibroker.broker.upkeep import threads
from minibroker.broker.wings.registry import refusals
from minibroker.broker.wings.registry.access import Request
from minibroker.broker.wings.registry.records import TOPIC
from minibroker.broker.wings.registry.schema_log import TIMEOUT_MS, SchemaLog
from minibroker.protocol.message_values import NO_LEADER
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.checkpoints import write_atomically

PASSED_ON = "x-forward"  # Confluent's: a request that has it is answered where it comes to
KEPT = ("host", "authorization")  # of a request's headers
ANY_HOST = {"0.0.0.0": "127.0.0.1", "::": "::1"}
LEADER_SECONDS = 10.0  # until another broker leads, after one died
POLL_SECONDS = 0.05
TIMEOUT_SECONDS = TIMEOUT_MS / 1000 + 5


class Relay:
    """Passes requests on, from the registry of this broker."""

    def __init__(self, parts: BrokerParts, log: SchemaLog, directory: Path) -> None:
        self._own_id = parts.config.broker_id
        self._leader_of = parts.metadata_cache.leader_of
        self._log = log
        self._directory = directory

    def publish(self, host: str, port: int) -> None:
        """Tell the other brokers where this registry is. Raises OSError."""
        write_atomically(self._file(self._own_id), f"{ANY_HOST.get(host, host)} {port}".encode())

    def _file(self, broker_id: int) -> Path:
        return self._directory / f"{broker_id}.registry"

    async def answer(self, request: Request, body: bytes, *, is_change: bool) -> tuple[int, bytes] | None:
        """The leader's status and body; None where this broker leads, or has an empty registry to tell of.

        Raises Refusal, and KafkaError.
        """
        headers = request.headers
        if PASSED_ON in headers:
            return None
        if is_change:
            self._log.create()
        kept = {name: headers[name] for name in KEPT if name in headers} | {PASSED_ON: "false"}
        deadline = trio.current_time() + LEADER_SECONDS
        while True:
            leader = self._leader_of(TopicPartition(TOPIC, 0))
            if leader == self._own_id or (leader is None and not is_change):
                return None
            if leader not in (None, NO_LEADER):
                try:
                    return await threads.run_sync(self._asked, leader, request, body, kept)
                except (OSError, HTTPException, ValueError) as error:
                    was_sent = not isinstance(error, ConnectionRefusedError | FileNotFoundError)
                    if (is_change and was_sent) or trio.current_time() > deadline:
                        raise refusals.NOT_PASSED_ON(leader, error) from error
            elif trio.current_time() > deadline:
                raise refusals.NO_LEADER()
            await trio.sleep(POLL_SECONDS)

    def _asked(self, leader: int, request: Request, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Raises OSError, HTTPException, ValueError."""
        host, port = self._file(leader).read_text().split()
        with closing(HTTPConnection(host, int(port), timeout=TIMEOUT_SECONDS)) as connection:
            connection.request(request.method, f"{request.path}?{request.query}", body or None, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.read()
