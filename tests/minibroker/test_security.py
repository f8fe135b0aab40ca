"""The settings of a secured broker, and what its arguments may be."""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

import pytest

from minibroker import Acl, Broker
from minibroker.security import Security, written


def security(tmp_path: Path, protocol: str = "SASL_PLAINTEXT", **arguments: Any) -> Security:
    return Security(protocol, tmp_path / "certificates", **arguments)


def test_plain_accounts_are_in_the_settings_of_their_listener(tmp_path: Path) -> None:
    made = security(tmp_path, users={"ann": 'a"b', "bob c": "b"}, mechanisms=["PLAIN", "SCRAM-SHA-256"])

    settings = made.settings()

    jaas = settings["listener.name.sasl_plaintext.plain.sasl.jaas.config"]
    assert 'user_ann="a\\"b"' in jaas and '"user_bob c"="b"' in jaas and "user_admin=" in jaas
    assert settings["listener.name.sasl_plaintext.sasl.enabled.mechanisms"] == "PLAIN,SCRAM-SHA-256"
    assert settings["sasl.enabled.mechanisms"] == "PLAIN", "of the other listener"
    assert made.scram_mechanisms == ("SCRAM-SHA-256",)


def test_only_acls_make_an_authorizer(tmp_path: Path) -> None:
    assert "authorizer.class.name" not in security(tmp_path, users=["ann"]).settings()
    settings = security(tmp_path, acls=[]).settings()
    assert (settings["authorizer.class.name"], settings["super.users"]) == (
        "kafka.security.auth.SimpleAclAuthorizer",
        "User:admin;User:minibroker",
    )


def test_users_of_tls_have_certificates(tmp_path: Path) -> None:
    made = security(tmp_path, "SSL", users=["ann"])

    access = made.access("127.0.0.1:1", "ann", None)

    assert made.settings()["ssl.client.auth"] == "required"
    assert (access.mechanism, "PRIVATE KEY" in Path(access.key_file).read_text()) == ("", True)


def test_tls_without_users_asks_for_no_certificate(tmp_path: Path) -> None:
    made = security(tmp_path, "SSL")

    assert "ssl.client.auth" not in made.settings()
    assert made.access("127.0.0.1:1", None, None).key_file == ""


def test_a_user_is_the_super_user_unless_it_is_named(tmp_path: Path) -> None:
    made = security(tmp_path, users={"ann": "of ann", "admin": "of admin"})

    assert made.access("a:1", None, None)[3:5] == ("admin", "of admin")
    assert made.access("a:1", "ann", "SCRAM-SHA-512")[2:5] == ("SCRAM-SHA-512", "ann", "of ann")


@pytest.mark.parametrize(
    ("user", "mechanism", "reason"),
    [
        ("zoe", None, "the broker has no user zoe, only admin, ann"),
        ("ann", "OAUTHBEARER", "the broker has no mechanism OAUTHBEARER, only PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"),
    ],
)
def test_a_user_or_mechanism_that_is_not_there_is_refused(
    user: str, mechanism: str | None, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match=reason):
        security(tmp_path, users=["ann"]).access("a:1", user, mechanism)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"security": "TLS"}, "security='TLS' is none of SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"security": "SASL_SSL", "mechanisms": ["GSSAPI"]}, "'GSSAPI' is none of the mechanisms"),
        ({"users": ["ann"]}, "are of a secured broker"),
        ({"acls": [Acl("ann", "read", topic="t")]}, "are of a secured broker"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_and_leave_nothing(
    arguments: dict[str, Any], reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    with pytest.raises(ValueError, match=reason):
        Broker(**arguments)

    assert list(tmp_path.iterdir()) == []


def test_an_open_broker_has_no_users() -> None:
    broker = Broker()

    with pytest.raises(ValueError, match="an open broker has no users"):
        broker.client_settings("java", user="ann")
    broker.close()


def test_settings_with_passwords_are_for_this_user_alone(tmp_path: Path) -> None:
    file = written({"a": "back\\slash"}, tmp_path / "secret")

    assert file.read_text() == "a=back\\\\slash\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
