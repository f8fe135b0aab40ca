"""Client libraries log in to a secured broker through each mechanism, by what `Broker.client_settings` returns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from minibroker.client_settings import Access, client_settings
from tests.integration.clients import ClientError, DriverProcess, UnavailableError, go_program, node_program
from tests.integration.conftest import Drivers
from tests.integration.records import Record
from tests.integration.secured import (
    OAUTHBEARER,
    PLAIN,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SSL,
    SecuredBroker,
)

# The driver of each library (clients.py), or its command.
DRIVERS: dict[str, str | Callable[[], list[str]]] = {
    "kafka-python": "kafka-python-3.0",
    "kafka-python-2.3": "kafka-python-2.3",
    "confluent-kafka": "confluent-kafka",
    "aiokafka": "aiokafka",
    "kcat": "kcat",
    "java": "java-3.9",
    "java-4.4": "java-4.4",
    "kafkajs": partial(node_program, "kafkajs_login"),
    "franz-go": partial(go_program, "login"),
}
PYTHON = ("kafka-python", "kafka-python-2.3", "aiokafka")
MECHANISMS = {
    PLAIN: SASL_PLAINTEXT,
    SCRAM_256: SASL_SSL,
    SCRAM_512: SASL_PLAINTEXT,
    OAUTHBEARER: SASL_SSL,
    "": SSL,
}
# Tokens of kafka-python 2.3 are objects of its own, which no settings of ours make.
LOGINS = [pair for pair in itertools.product(DRIVERS, MECHANISMS) if pair != ("kafka-python-2.3", OAUTHBEARER)]
# The error of a wrong password. kafka-python and aiokafka only log the reason, and raise that they did not bootstrap.
REFUSALS = {
    "kafka-python": ("KafkaTimeoutError", "SaslAuthenticationFailedError"),
    "kafka-python-2.3": ("KafkaTimeoutError", "SaslAuthenticationFailedError"),
    "confluent-kafka": ("KafkaException", "_AUTHENTICATION"),
    "aiokafka": ("KafkaConnectionError", "AuthenticationFailed"),
    "kcat": ("RuntimeError", "SASL authentication error: Authentication failed"),
    "java": ("SaslAuthenticationException", "Authentication failed"),
    "java-4.4": ("SaslAuthenticationException", "Authentication failed"),
    "kafkajs": ("KafkaJSSASLAuthenticationError", "Authentication failed"),
    "franz-go": ("SASL_AUTHENTICATION_FAILED", "Authentication failed"),
}
WRONG = "wrong"
BOOTSTRAP_MS = 1000  # of kafka-python, which tries a wrong password again for as long
NUMBERS = itertools.count()


class Clients:
    """A driver of each library; those of kafkajs and franz-go are for this alone."""

    def __init__(self, drivers: Drivers, log_path: Path) -> None:
        self._drivers = drivers
        self._log = log_path.open("ab")
        self._own: dict[str, DriverProcess] = {}
        self._read_until = 0

    def round_trip(self, library: str, access: Access, topic: str, value: str) -> str:
        """Write a record and read the first of the topic. Raises ClientError."""
        driver = DRIVERS[library]
        if not isinstance(driver, str):
            settings = client_settings(library, access)
            own = self._started(library, driver)
            answer: str = own.call("round_trip", settings=settings, topic=topic, group=f"of-{topic}", value=value)
            return answer
        client = self._drivers.get(driver, access.bootstrap_servers)
        settings = in_a_driver(library, access)
        client.produce(topic, [Record(None, value.encode())], **settings)
        (record,) = client.consume(topic, 1, **settings)
        return (record.value or b"").decode()

    def forget_log(self) -> None:
        self._read_until = self._drivers.log_path.stat().st_size

    def log(self) -> str:
        """Return what the drivers in Python have logged since."""
        return self._drivers.log_path.read_bytes()[self._read_until :].decode()

    def _started(self, library: str, command: Callable[[], list[str]]) -> DriverProcess:
        if library not in self._own:
            try:
                self._own[library] = DriverProcess(library, command(), self._log)
            except UnavailableError as error:
                pytest.skip(str(error))
        return self._own[library]

    def close(self) -> None:
        for each in self._own.values():
            each.kill()
        self._log.close()


def in_a_driver(library: str, access: Access) -> dict[str, Any]:
    """The settings that a driver adds to those of its own."""
    if library == "kafka-python-2.3":  # its environment has no minibroker
        old: dict[str, Any] = client_settings("kafka-python", access)
        del old["bootstrap_servers"]
        return old
    if library in PYTHON:  # some values are objects
        is_wrong = library == "kafka-python" and access.password == WRONG
        quick = {"bootstrap_timeout_ms": BOOTSTRAP_MS} if is_wrong else {}
        return {"access": json.dumps(access._asdict()), **quick}
    if library == "kcat":
        return dict(word.split("=", 1) for word in client_settings("kcat", access)[3::2])
    settings: dict[str, Any] = client_settings(library.removesuffix("-4.4"), access)
    del settings["bootstrap.servers"]
    return settings


@pytest.fixture(scope="module")
def clients(session_drivers: Drivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clients]:
    started = Clients(session_drivers, tmp_path_factory.mktemp("clients") / "drivers.log")
    yield started
    started.close()


@pytest.mark.ability("logins")
@pytest.mark.sample(of=lambda secured, library: secured == "minibroker" and library != "java-4.4")
@pytest.mark.parametrize(("library", "mechanism"), LOGINS)
def test_a_client_logs_in(library: str, mechanism: str, clients: Clients, secured: SecuredBroker) -> None:
    topic = secured.create_topic(f"login-{next(NUMBERS)}")
    access = secured.access(MECHANISMS[mechanism], mechanism, "admin")

    assert clients.round_trip(library, access, topic, "in") == "in"


# kafka-python 2.3 tries for 20 s before it gives up.
@pytest.mark.ability("logins")
@pytest.mark.sample(
    of=lambda secured, library: secured == "minibroker" and library not in ("kafka-python-2.3", "java-4.4")
)
@pytest.mark.parametrize("mechanism", [PLAIN, SCRAM_512])
@pytest.mark.parametrize("library", DRIVERS)
def test_a_wrong_password_is_an_error_of_authentication(
    library: str, mechanism: str, clients: Clients, secured: SecuredBroker
) -> None:
    topic = secured.create_topic(f"refused-{next(NUMBERS)}")
    access = secured.access(SASL_PLAINTEXT, mechanism, "admin", WRONG)
    clients.forget_log()

    with pytest.raises(ClientError) as raised:
        clients.round_trip(library, access, topic, "in")

    kind, reason = REFUSALS[library]
    assert raised.value.kind == kind
    # 2.0.1 closes with its refusal, which kafka-python overlooks if both arrive at once.
    if secured.is_minibroker or library != "kafka-python":
        assert reason in (clients.log() if library in PYTHON else str(raised.value))
