"""Apache Kafka 2.0.1 and minibroker side by side, and the same script held with both."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.apache_kafka import ApacheKafka, kafka_jars
from minibroker.conformance.answers import Plain
from minibroker.conformance.conversation import CORRELATION_BYTES, SocketPeer
from minibroker.conformance.holding import SETTINGS, cleaning
from minibroker.conformance.steps import Script, Step
from minibroker.protocol.api import API_TABLE, ApiKey
from tests.conformance.comparing import Difference, first_difference, wait_for_coordinator
from tests.integration.brokers import Minibroker

# Requests of all connections are served in the order in which they arrive.
KAFKA_SETTINGS = {"num.network.threads": 1, "num.io.threads": 1, "num.replica.fetchers": 1}
LOG_POLL_SECONDS = 0.005
APPLY_SECONDS = 30.0
HELD_AGAIN = 4
TOPIC = 2  # of the resource types
PREFIX = "r{:06d}-"


class ApacheKafkaPeer(SocketPeer):
    """Apache Kafka, whose log reports when the changed configs of a topic are applied."""

    def __init__(self, kafka: ApacheKafka) -> None:
        super().__init__(kafka.host, kafka.port)
        self._log_path = kafka.broker.log_path
        self._read_bytes = 0

    def _settle(self, step: Step, answer: bytes | str) -> None:
        if step.key != ApiKey.ALTER_CONFIGS or isinstance(answer, str):
            return
        body, _ = API_TABLE[step.key].response.decode(step.version, answer, CORRELATION_BYTES)
        changed = [row for row in body.responses if row.error_code == 0 and row.resource_type == TOPIC]
        if step.body.get("validate_only"):
            return
        unapplied = {f" topics/{row.resource_name} with config" for row in changed}
        deadline = time.monotonic() + APPLY_SECONDS
        while unapplied:
            if time.monotonic() > deadline:
                raise TimeoutError(f"Apache Kafka has not applied the configs: {sorted(unapplied)}")
            time.sleep(LOG_POLL_SECONDS)
            with self._log_path.open("rb") as log:
                log.seek(self._read_bytes)
                reported = log.read().decode(errors="replace")
            unapplied = {each for each in unapplied if each not in reported}
        self._read_bytes = self._log_path.stat().st_size


class Pair:
    """Both brokers. Every script gets topics of its own, by a prefix no other has."""

    def __init__(self, kafka: SocketPeer, minibroker: SocketPeer) -> None:
        self.kafka = kafka
        self.minibroker = minibroker
        self.vanished: list[Difference] = []  # were not there when all was done again
        self._runs = itertools.count(1)

    def hold(self, script: Script) -> tuple[list[Plain], list[Plain]]:
        """The answers of Apache Kafka and of minibroker; the script's topics are deleted behind it."""
        prefix = PREFIX.format(next(self._runs))
        script = [*script, cleaning(script)]
        answers: dict[str, list[Plain]] = {}
        failures: list[BaseException] = []

        def hold_with(name: str, peer: SocketPeer) -> None:
            try:
                answers[name] = peer.hold(script, prefix)[:-1]
            except BaseException as error:
                failures.append(error)

        other = threading.Thread(target=hold_with, args=("kafka", self.kafka))
        other.start()
        hold_with("minibroker", self.minibroker)
        other.join()
        if failures:
            raise failures[0]
        return answers["kafka"], answers["minibroker"]

    def difference(self, script: Script) -> Difference | None:
        """The first difference. One that goes away when all is done again is counted, and is none.

        Apache Kafka leaves some things to chance: a group whose leader has left takes the first of a hash map by ids
        that are drawn, so one of two members, and half of the answers differ.
        """
        found = first_difference(script, *self.hold(script))
        if found is None:
            return None
        for _ in range(HELD_AGAIN):
            again = first_difference(script, *self.hold(script))
            if again is None:
                self.vanished.append(found)
                return None
        return again


@contextmanager
def running_pair(directory: Path) -> Iterator[Pair]:
    """Both brokers in processes of their own. Raises KafkaUnavailable."""
    jars = kafka_jars()
    with ExitStack() as stack:
        kafka = ApacheKafka(jars, directory / "kafka", settings={**SETTINGS, **KAFKA_SETTINGS})
        minibroker = Minibroker(directory / "minibroker", "--set", "broker.id=0", settings=SETTINGS)
        stack.callback(minibroker.kill)
        stack.callback(kafka.kill)
        kafka.start()
        minibroker.wait_until_ready()
        peers = [ApacheKafkaPeer(kafka), SocketPeer(minibroker.host, minibroker.port)]
        for peer in peers:
            stack.callback(peer.close)
            wait_for_coordinator(peer)
        yield Pair(*peers)
