"""Every command against a broker that asks for a login: `--command-config` as Kafka's own tools take it."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from minibroker.any_cluster.librdkafka import LibrdkafkaConsumer
from minibroker.cli.app import main
from minibroker.client.errors import NoAnswer
from tests.integration.secured import (
    OAUTHBEARER,
    PASSWORDS,
    PLAIN,
    PLAINTEXT,
    SASL_PLAINTEXT,
    SASL_SSL,
    SCRAM_256,
    SCRAM_512,
    SSL,
    STORE_PASSWORD,
    SecuredBroker,
)

ADMIN = PASSWORDS["admin"]
JAAS_PLAIN = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{ADMIN}";'
JAAS_SCRAM = f'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="{ADMIN}";'
JAAS_BEARER = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    'unsecuredLoginStringClaim_sub="admin";'
)
TRUST_PEM = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "{authority_pem}"}
TRUST_PKCS12 = {"ssl.truststore.location": "{authority_p12}", "ssl.truststore.password": STORE_PASSWORD}
# Kafka's client properties, by what is particular in them.
LOGINS: dict[str, dict[str, str]] = {
    "PLAIN": {"security.protocol": SASL_PLAINTEXT, "sasl.mechanism": PLAIN, "sasl.jaas.config": JAAS_PLAIN},
    "SCRAM, TLS by PKCS#12": {
        "security.protocol": SASL_SSL,
        "sasl.mechanism": SCRAM_512,
        "sasl.jaas.config": JAAS_SCRAM,
        **TRUST_PKCS12,
    },
    "certificate": {
        "security.protocol": SSL,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": "{admin_pem}",
        **TRUST_PEM,
    },
}
OTHER_LOGINS: dict[str, dict[str, str]] = {
    "librdkafka's names": {
        "security.protocol": SASL_SSL,
        "sasl.mechanisms": SCRAM_256,
        "sasl.username": "admin",
        "sasl.password": ADMIN,
        "ssl.ca.location": "{authority_pem}",
    },
    "unsecured token": {
        "security.protocol": SASL_SSL,
        "sasl.mechanism": OAUTHBEARER,
        "sasl.jaas.config": JAAS_BEARER,
        **TRUST_PEM,
    },
    "token in a file": {
        "security.protocol": SASL_PLAINTEXT,
        "sasl.mechanism": OAUTHBEARER,
        "sasl.jaas.config": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;",
        "sasl.oauthbearer.token.endpoint.url": "file://{token}",
    },
    "certificate in PKCS#12": {
        "security.protocol": SSL,
        "ssl.keystore.location": "{admin_p12}",
        "ssl.keystore.password": STORE_PASSWORD,
        **TRUST_PKCS12,
    },
    "PEM in the properties": {
        "security.protocol": SSL,
        "ssl.keystore.key": "{admin_text}",
        "ssl.keystore.certificate.chain": "{admin_text}",
        "ssl.truststore.certificates": "{authority_text}",
    },
    "any host": {
        "security.protocol": SASL_SSL,
        "sasl.mechanism": PLAIN,
        "sasl.jaas.config": JAAS_PLAIN,
        "ssl.endpoint.identification.algorithm": "",
        **TRUST_PEM,
    },
}
UNSUPPORTED = "does not support this request"
# Each with what it prints, where that is the same for every broker.
STORY: list[tuple[str, str | None]] = [
    ("topics create TOPIC --partitions 2", "created: TOPIC"),
    ("topics list", "TOPIC"),
    ("topics grow TOPIC --partitions 3", "TOPIC"),
    ("topics describe TOPIC", "LEADER"),
    ("configs set --topic TOPIC retention.ms=60000000", "set: retention.ms"),
    ("configs describe --topic TOPIC", "60000000"),
    ("configs unset --topic TOPIC retention.ms", "retention.ms"),
    ("configs describe --broker 0", None),
    ("produce TOPIC --file LINES", "produced: 2 records to TOPIC"),
    ("consume TOPIC", "one"),
    ("consume TOPIC --group of-TOPIC", "one"),
    ("offsets TOPIC", "LATEST"),
    ("groups list", "of-TOPIC"),
    ("groups describe of-TOPIC", "TOPIC"),
    ("groups export of-TOPIC", "TOPIC,"),
    ("groups reset of-TOPIC --to beginning --execute", None),
    ("groups delete of-TOPIC", "of-TOPIC"),
    ("topics delete-records TOPIC --before end", None),
    ("log-dirs TOPIC", "TOPIC"),
    ("health", "healthy: 1 broker"),
    ("apis", "SaslHandshake"),
    ("acls add --allow zoe --consumer --topic TOPIC --group of-TOPIC", "TOPIC"),
    ("acls list --topic TOPIC", "zoe"),
    ("acls remove --allow zoe --topic TOPIC", "TOPIC"),
    ("topics delete TOPIC", "deleted: TOPIC"),
]
# Changes of a login of alice's, and what the command then explains; properties that are no login: test_logins.py.
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "wrong password": (
        {"sasl.jaas.config": 'x required username="alice" password="not-hers";'},
        "refused the login of alice with PLAIN (Authentication failed: Invalid username or password)",
    ),
    "wrong password for SCRAM": (
        {"sasl.mechanism": SCRAM_256, "sasl.jaas.config": 'x required username="alice" password="not-hers";'},
        "refused the login of alice with SCRAM-SHA-256",
    ),
    "no password": ({"sasl.jaas.config": 'x required username="alice";'}, "needs a password"),
    "TLS without TLS": (
        {"bootstrap.servers": SASL_PLAINTEXT, "security.protocol": SASL_SSL, **TRUST_PEM},
        "it does not speak TLS); correct security.protocol",
    ),
    "SASL without SASL": ({"bootstrap.servers": PLAINTEXT}, "its listener has no SASL); correct security.protocol"),
    "TLS only": (
        {"bootstrap.servers": SASL_SSL, "security.protocol": SSL, **TRUST_PEM},
        "it closes the connection at a request without SASL); correct security.protocol",
    ),
    "no TLS at a port with TLS": ({"bootstrap.servers": SASL_SSL}, "it speaks TLS); correct security.protocol"),
    "untrusted": (
        {"bootstrap.servers": SASL_SSL, "security.protocol": SASL_SSL},
        "its certificate is not trusted: unable to get local issuer certificate); set ssl.truststore.location",
    ),
    "no certificate": ({"bootstrap.servers": SSL, "security.protocol": SSL, **TRUST_PEM}, "set ssl.keystore.location"),
}
SECRETS = (*PASSWORDS.values(), STORE_PASSWORD, "not-hers", "not-it")
NUMBERS = itertools.count()
REFUSAL_SECONDS = 20


class Commands:
    """Commands with one login, in this process."""

    def __init__(self, broker: SecuredBroker, directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self._broker = broker
        self._directory = directory
        self._capsys = capsys
        (directory / "lines").write_text("one\ntwo\n")
        (directory / "token").write_text(broker.token("admin"))
        certificates = broker.certificates
        admin = certificates.of_user("admin")
        self._values = {
            "authority_pem": str(certificates.authority_file),
            "authority_p12": str(broker.stores.authority),
            "admin_pem": str(admin),
            "admin_p12": str(broker.stores.of(admin)),
            "token": str(directory / "token"),
            "admin_text": admin.read_text().replace("\n", "\\n"),
            "authority_text": certificates.authority_file.read_text().replace("\n", "\\n"),
        }

    def filled(self, text: str) -> str:
        """The text with the paths of this broker."""
        for name, value in self._values.items():
            text = text.replace(f"{{{name}}}", value)
        return text

    def run(self, command: str, properties: Mapping[str, str], *options: str) -> tuple[int, str, str]:
        """Exit status, standard output, standard error; never a secret."""
        protocol = properties.get("bootstrap.servers", properties["security.protocol"])
        file = self._directory / "client.properties"
        addressed = {**properties, "bootstrap.servers": self._broker.address(protocol)}
        file.write_text("".join(f"{name}={self.filled(value)}\n" for name, value in addressed.items()))
        words = command.replace("LINES", str(self._directory / "lines")).split()
        status = main([*words, *options, "--command-config", str(file)])
        printed = self._capsys.readouterr()
        assert not [secret for secret in SECRETS if secret in printed.out + printed.err]
        return status, printed.out, printed.err

    def tell(self, story: Sequence[tuple[str, str | None]], properties: Mapping[str, str]) -> None:
        """Run the commands one after the other, about a topic of their own. Raises AssertionError."""
        topic = f"story-{next(NUMBERS)}"
        for command, expected in story:
            status, out, err = self.run(command.replace("TOPIC", topic), properties)
            assert (status, err) == (0, ""), command
            assert (expected or "").replace("TOPIC", topic) in out, command


@pytest.fixture
def commands(secured: SecuredBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(secured, tmp_path, capsys)


@pytest.fixture(params=["librdkafka", "kafka-python"])
def record_client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client that reads and writes the records of `consume` and `produce`."""
    if request.param == "kafka-python":
        monkeypatch.setitem(sys.modules, "minibroker.any_cluster.librdkafka", None)


# Apache Kafka proves the tests right at night.
of_minibroker = pytest.mark.sample(of=lambda secured: secured == "minibroker")


@pytest.mark.sample(of=lambda secured, login: secured == "minibroker" and login.startswith("SCRAM"))
@pytest.mark.parametrize("login", LOGINS)
def test_every_command_works(login: str, commands: Commands) -> None:
    commands.tell(STORY, LOGINS[login])


@of_minibroker
@pytest.mark.parametrize("command", ["transactions list", "producers LATER", "quotas list", "users list"])
def test_commands_for_later_brokers_log_in_too(command: str, commands: Commands, secured: SecuredBroker) -> None:
    topic = f"later-{next(NUMBERS)}"
    commands.run(f"topics create {topic}", LOGINS["PLAIN"])

    status, _, err = commands.run(command.replace("LATER", topic), LOGINS["PLAIN"])

    assert (status, UNSUPPORTED in err) == ((0, False) if secured.is_minibroker else (1, True))


@of_minibroker
@pytest.mark.usefixtures("record_client")
@pytest.mark.parametrize("login", OTHER_LOGINS)
def test_every_form_of_a_login_works(login: str, commands: Commands) -> None:
    topic = f"forms-{next(NUMBERS)}"

    for command in ("topics create TOPIC", "produce TOPIC --file LINES", "consume TOPIC"):
        status, out, err = commands.run(command.replace("TOPIC", topic), OTHER_LOGINS[login])
        assert (status, err) == (0, "")

    assert out == "one\ntwo\n"


@of_minibroker
@pytest.mark.parametrize("command", ["topics list", "consume refused"])
@pytest.mark.parametrize("reason", REFUSED)
def test_a_refused_login_is_one_line_with_the_next_step(command: str, reason: str, commands: Commands) -> None:
    changes, explanation = REFUSED[reason]
    alice = JAAS_PLAIN.replace("admin", "alice").replace(ADMIN, PASSWORDS["alice"])
    properties = {**LOGINS["PLAIN"], "sasl.jaas.config": alice, **changes}

    status, out, err = commands.run(command, properties)

    assert (status in (1, 2), out, err.count("\n")) == (True, "", 1)
    assert commands.filled(explanation) in err


@of_minibroker
def test_a_property_of_the_command_line_goes_before_the_file(commands: Commands) -> None:
    status, _, err = commands.run("topics list", LOGINS["PLAIN"], "-X", "sasl.username=zoe")

    assert (status, "the login of zoe" in err) == (1, True)


@of_minibroker
def test_a_login_that_is_refused_later_ends_the_command(secured: SecuredBroker) -> None:
    settings = {
        "group.id": "later",
        "bootstrap.servers": secured.address(SASL_PLAINTEXT),
        "security.protocol": SASL_PLAINTEXT,
        "sasl.mechanisms": PLAIN,
        "sasl.username": "alice",
        "sasl.password": "not-hers",
    }
    with (
        closing(LibrdkafkaConsumer(settings, lambda *_: [])) as consumer,
        pytest.raises(NoAnswer, match="auth"),
    ):
        for _ in range(REFUSAL_SECONDS):
            consumer.poll(1.0, at_most=None)
