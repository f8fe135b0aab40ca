"""The settings of SASL listeners: login modules as Kafka reads them, and what refuses the start, in Kafka's words.

The messages are those of Apache Kafka 2.0.1, started with each of these settings.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from minibroker.broker.cluster.file_state import FileState
from minibroker.broker.config.kafka_config import ConfigError, KafkaConfig
from minibroker.broker.config.sasl import accounts
from minibroker.broker.wings.security.logins import max_session_ms
from minibroker.broker.wings.security.sasl.mechanisms import mechanisms_of
from minibroker.broker.wings.security.sasl.oauthbearer import OAuthBearerServer
from minibroker.broker.wings.security.sasl.plain import PlainServer
from minibroker.broker.wings.security.sasl.scram import ScramServer
from minibroker.broker.wings.security.sasl.tokens import SignedTokens, UnsecuredTokens
from minibroker.broker.wings.security.sasl.users import CREDENTIALS, SALT_KEY, ScramUsers
from tests.broker.settings_rows import JAAS_FILES

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
SECRET = "hunter2"


def config(listener: str = "sasl_plaintext", **given: str) -> KafkaConfig:
    """Keywords name settings of the SASL listener, with _ for the dots before `sasl`."""
    settings = {"listeners": f"PLAINTEXT://:1,{listener.upper()}://:2"}
    for name, value in given.items():
        settings[name if "." in name else f"listener.name.{listener}.{name}.sasl.jaas.config"] = value
    return KafkaConfig(settings)


def test_the_users_of_plain_are_those_of_its_login_module() -> None:
    text = f'{PLAIN} required username="broker" password="b" user_alice="{SECRET}" user_bob="b";'

    listener = config(**{"sasl.enabled.mechanisms": "PLAIN", "plain": text}).sasl_listeners["SASL_PLAINTEXT"]

    assert accounts(listener.mechanisms["PLAIN"]) == {"alice": SECRET, "bob": "b"}
    assert SECRET not in repr(listener)


def test_the_users_of_a_file_are_those_of_the_listeners_section(tmp_path: Path) -> None:
    (tmp_path / "jaas.conf").write_text(JAAS_FILES["users.conf"])
    protocols = "IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT"
    made = KafkaConfig(
        {
            "listeners": "IN://:1,OUT://:2",
            "listener.security.protocol.map": protocols,
            "inter.broker.listener.name": "OUT",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.out.scram-sha-256.sasl.jaas.config": f'{SCRAM} required username="x";',
            "java.security.auth.login.config": str(tmp_path / "jaas.conf"),
        }
    )

    modules = {name: each.mechanisms for name, each in made.sasl_listeners.items()}
    assert accounts(modules["IN"]["PLAIN"]) == {"bob": "c"}
    assert accounts(modules["OUT"]["PLAIN"]) == {"admin": "a", "ann": "b"}
    assert modules["OUT"]["SCRAM-SHA-256"].options == {"username": "x"}
    assert modules["IN"]["SCRAM-SHA-256"].options == {}


def test_a_login_module_of_another_mechanism_counts_as_empty() -> None:
    listener = config(**{"sasl.enabled.mechanisms": "PLAIN", "plain": f'{SCRAM} required user_a="b";'})

    assert accounts(listener.sasl_listeners["SASL_PLAINTEXT"].mechanisms["PLAIN"]) == {}


def test_each_listener_has_mechanisms_and_users_of_its_own() -> None:
    settings = {
        "listeners": "PLAINTEXT://:1,IN://:2,OUT://:3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,OUT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.out.sasl.enabled.mechanisms": "SCRAM-SHA-256, PLAIN",
        "listener.name.in.plain.sasl.jaas.config": f'{PLAIN} required user_a="1";',
        "listener.name.out.plain.sasl.jaas.config": f'{PLAIN} required user_b="2";',
        "listener.name.out.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
    }

    made = KafkaConfig(settings)

    found = {name: list(each.mechanisms) for name, each in made.sasl_listeners.items()}
    assert found == {"IN": ["PLAIN"], "OUT": ["SCRAM-SHA-256", "PLAIN"]}
    assert accounts(made.sasl_listeners["IN"].mechanisms["PLAIN"]) == {"a": "1"}
    assert (made.warnings, made.notes) == ([], [])


def test_signed_tokens_need_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "keys.json").write_text("{}")
    settings = {"sasl.enabled.mechanisms": "OAUTHBEARER", "oauthbearer": f"{OAUTHBEARER} required;"}
    monkeypatch.setattr("minibroker.broker.config.sasl.find_spec", lambda name: None)

    with pytest.raises(ConfigError, match="pip install cryptography"):
        config(**settings, **{"sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri()})


def test_keys_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "a b.json").write_text("{}")
    url = (tmp_path / "a b.json").as_uri()
    handler = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
    prefix = "listener.name.sasl_plaintext"

    made = config(
        **{
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "oauthbearer": f"{OAUTHBEARER} required;",
            f"{prefix}.sasl.oauthbearer.jwks.endpoint.url": url,
            f"{prefix}.oauthbearer.sasl.server.callback.handler.class": handler,
        }
    )

    assert made.sasl_listeners["SASL_PLAINTEXT"].keys_file == tmp_path / "a b.json"
    assert made.warnings == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, 0),
        ({"connections.max.reauth.ms": "1"}, 1),
        ({"connections.max.reauth.ms": "1", "listener.name.sasl_plaintext.connections.max.reauth.ms": "2"}, 2),
        (
            {
                "listener.name.sasl_plaintext.connections.max.reauth.ms": "2",
                "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": "3",
            },
            3,
        ),
    ],
)
def test_the_end_of_sessions_is_set_for_a_mechanism_a_listener_or_all(given: dict[str, str], expected: int) -> None:
    made = config(**{"sasl.enabled.mechanisms": "PLAIN", "plain": f"{PLAIN} required;", **given})

    assert max_session_ms(made, "SASL_PLAINTEXT", "PLAIN") == expected
    assert made.warnings == []


def test_an_open_broker_reads_nothing_of_it() -> None:
    assert KafkaConfig({}).sasl_listeners == {}


def test_each_enabled_mechanism_has_its_server_and_signed_tokens_another_check(tmp_path: Path) -> None:
    (tmp_path / "keys.json").write_text('{"keys": []}')
    modules = {"plain": PLAIN, "scram-sha-512": SCRAM, "oauthbearer": OAUTHBEARER}
    settings = {name: f'{module} required user_a="b";' for name, module in modules.items()}
    enabled = {"sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER"}
    keys = {"sasl.oauthbearer.jwks.endpoint.url": (tmp_path / "keys.json").as_uri()}

    for more, validator in (({}, UnsecuredTokens), (keys, SignedTokens)):
        made = config(**enabled, **settings, **more)
        found = mechanisms_of(
            "SASL_PLAINTEXT", made, ScramUsers(FileState(tmp_path, 0, [CREDENTIALS, SALT_KEY])), lambda: 0
        )

        servers = {name: make() for name, make in found.items()}
        assert {name: type(server) for name, server in servers.items()} == {
            "PLAIN": PlainServer,
            "SCRAM-SHA-512": ScramServer,
            "OAUTHBEARER": OAuthBearerServer,
        }
        assert servers["PLAIN"].respond(b"\0a\0b") == b""
        assert type(vars(servers["OAUTHBEARER"])["_validator"]) is validator
