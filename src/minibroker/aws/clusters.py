"""The brokers of an MSK cluster: what a request to create it asks for, and what runs for it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.cluster import Cluster
from minibroker.errors import BrokerError
from minibroker.process import Broker

SCRAM = "SCRAM-SHA-512"  # MSK has no other
ACTS_AS = ("0.10", "0.11", "1.1", "2.0", "2.8", "3.9", "4.0", "4.4")  # as `Broker` has it
MOST_BROKERS = 3  # that are started for one cluster
NUMBERS = re.compile(r"\d+")


class Listener(NamedTuple):
    """The protocol of a cluster's clients, and the field of GetBootstrapBrokers that has its addresses."""

    security: str | None  # as `Broker` has it
    field: str


PLAINTEXT = Listener(None, "BootstrapBrokerString")
TLS = Listener("SSL", "BootstrapBrokerStringTls")
SASL_SCRAM = Listener("SASL_SSL", "BootstrapBrokerStringSaslScram")


class Asked(NamedTuple):
    """The parameters of a CreateCluster or CreateClusterV2 that decide on brokers."""

    name: str
    listener: Listener
    brokers: int
    kafka_version: str

    @classmethod
    def of(cls, params: Mapping[str, Any]) -> Asked:
        """Of the parameters of either call. Raises BrokerError for a serverless cluster."""
        if "Serverless" in params:
            raise BrokerError(
                "a serverless cluster logs in by IAM, which minibroker does not know; ask for Provisioned"
            )
        provisioned: Mapping[str, Any] = params.get("Provisioned", params)
        in_transit = provisioned.get("EncryptionInfo", {}).get("EncryptionInTransit", {}).get("ClientBroker", "TLS")
        scram = provisioned.get("ClientAuthentication", {}).get("Sasl", {}).get("Scram", {}).get("Enabled")
        listener = SASL_SCRAM if scram else TLS if in_transit == "TLS" else PLAINTEXT
        return cls(params["ClusterName"], listener, provisioned["NumberOfBrokerNodes"], provisioned["KafkaVersion"])


def profile_for(kafka_version: str) -> str | None:
    """The newest release of `--act-as` that is not newer than a version of MSK, such as 3.9.x; None for later ones.

    Raises BrokerError for one before the first.
    """
    numbers = numbers_of(kafka_version)
    known = {name: numbers_of(name) for name in ACTS_AS}
    fitting = [name for name, each in known.items() if each <= numbers]
    if not fitting:
        raise BrokerError(f"no release of Kafka is like {kafka_version}; the first is {ACTS_AS[0]}")
    newest = ACTS_AS[-1]
    return None if fitting[-1] == newest and numbers[:2] > known[newest] else fitting[-1]


def numbers_of(version: str) -> tuple[int, ...]:
    return tuple(map(int, NUMBERS.findall(version)[:2]))


class Brokers:
    """The brokers that run for one cluster."""

    def __init__(self, asked: Asked, brokers: int | None) -> None:
        """Start them: `brokers`, or as many as are asked for, up to MOST_BROKERS. Raises BrokerError."""
        self.name = asked.name
        self._listener = asked.listener
        given: dict[str, Any] = {"act_as": profile_for(asked.kafka_version)}
        if self._listener.security is not None:
            given["security"] = self._listener.security
        if self._listener is SASL_SCRAM:
            given["mechanisms"] = [SCRAM]
        count = brokers or min(asked.brokers, MOST_BROKERS)
        self.broker: Broker | Cluster = Broker(**given) if count == 1 else Cluster(count, **given)
        self.secrets: dict[str, str] = {}  # the user of each by ARN
        try:
            self.broker.start()
        except BaseException:
            self.broker.close()
            raise

    @property
    def has_users(self) -> bool:
        return self._listener is SASL_SCRAM

    @property
    def bootstrap(self) -> dict[str, str]:
        """The answer of GetBootstrapBrokers."""
        return {self._listener.field: self.broker.bootstrap_servers}

    def associate(self, arn: str, user: str, password: str) -> None:
        self.broker.add_users({user: password})
        self.secrets[arn] = user

    def disassociate(self, arn: str) -> None:
        self.broker.remove_users(self.secrets.pop(arn))
