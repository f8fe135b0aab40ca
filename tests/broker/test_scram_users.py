"""AlterUserScramCredentials, DescribeUserScramCredentials, and what is kept of a password.

The answers are those of Apache Kafka 3.9.1; a request may change both mechanisms of a user, as with ZooKeeper.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.cluster.file_state import FILE_NAME, FileState
from minibroker.broker.cluster.state import Change as StateChange
from minibroker.broker.security.sasl.users import ScramUsers
from minibroker.protocol.api import ApiKey
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.scram import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    credential_of,
    new_credential,
    salted_password,
)
from tests.broker.conftest import InMemoryBroker, MakeBroker

SALT = b"0123456789abcdef"
SALTED = salted_password(SCRAM_SHA_256, "hopper", SALT, 4096)
SALTED_512 = salted_password(SCRAM_SHA_512, "hopper", SALT, 4096)

Change = tuple[Any, ...]


def upsertion(
    user: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = SALT, salted: bytes | None = None
) -> Change:
    return (user, mechanism, iterations, salt, (SALTED_512 if mechanism == 2 else SALTED) if salted is None else salted)


async def alter(broker: InMemoryBroker, *changes: Change) -> list[tuple[str, int, str | None]]:
    answer = await broker.call(
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        deletions=[change for change in changes if len(change) == 2],
        upsertions=[change for change in changes if len(change) == 5],
    )
    return [(row.user, row.error_code, row.error_message) for row in answer.results]


async def described(broker: InMemoryBroker, *users: str) -> list[tuple[str, int, str | None, list[tuple[int, int]]]]:
    answer = await broker.call(
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, users=[(user,) for user in users] if users else None
    )
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (row.user, row.error_code, row.error_message, [tuple(info) for info in row.credential_infos])
        for row in answer.results
    ]


async def test_credentials_are_added_changed_described_and_removed(broker: InMemoryBroker) -> None:
    assert await alter(broker, upsertion("b"), upsertion("a"), upsertion("a", 2)) == [("b", 0, None), ("a", 0, None)]
    assert await described(broker) == [("a", 0, None, [(1, 4096), (2, 4096)]), ("b", 0, None, [(1, 4096)])]

    assert await alter(broker, ("a", 1), upsertion("b", iterations=16384)) == [("a", 0, None), ("b", 0, None)]
    assert await described(broker, "b", "a") == [("b", 0, None, [(1, 16384)]), ("a", 0, None, [(2, 4096)])]

    assert await alter(broker, ("a", 2)) == [("a", 0, None)]
    assert [user for user, *_ in await described(broker)] == ["b"]


UNKNOWN = "Unknown SCRAM mechanism"
TWICE = "A user credential cannot be altered twice in the same request"
MISSING = "Attempt to delete a user credential that does not exist"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([upsertion("")], [("", 93, "Username must not be empty")]),
        ([("", 1)], [("", 93, "Username must not be empty")]),
        ([upsertion("b", iterations=4095)], [("b", 93, "Too few iterations")]),
        ([upsertion("b", iterations=-1)], [("b", 93, "Too few iterations")]),
        ([upsertion("b", iterations=16385)], [("b", 93, "Too many iterations")]),
        ([upsertion("b", 3)], [("b", 33, UNKNOWN)]),
        ([("a", 0)], [("a", 33, UNKNOWN)]),
        ([("zz", 1)], [("zz", 91, MISSING)]),
        ([("a", 2), upsertion("a")], [("a", 91, MISSING)]),
        ([upsertion("d"), upsertion("d")], [("d", 92, TWICE)]),
        ([("a", 1), upsertion("a")], [("a", 92, TWICE)]),
        ([upsertion("d", iterations=1), upsertion("d")], [("d", 93, "Too few iterations")]),
        ([upsertion("f"), upsertion("f", 2, iterations=1)], [("f", 93, "Too few iterations")]),
        ([upsertion("c", salt=b"")], [("c", 93, "A salt has between 1 and 255 bytes")]),
        ([upsertion("c", salt=bytes(256))], [("c", 93, "A salt has between 1 and 255 bytes")]),
        ([upsertion("c", salted=b"")], [("c", 93, "A salted password of SCRAM-SHA-256 has 32 bytes")]),
        ([upsertion("c", 2, salted=bytes(32))], [("c", 93, "A salted password of SCRAM-SHA-512 has 64 bytes")]),
        ([], []),
    ],
)
async def test_a_refused_change_changes_nothing_of_its_user(
    broker: InMemoryBroker, changes: list[Change], expected: list[Any]
) -> None:
    await alter(broker, upsertion("a"))

    assert await alter(broker, *changes) == expected
    assert await described(broker) == [("a", 0, None, [(1, 4096)])]


async def test_the_other_users_of_a_request_are_changed(broker: InMemoryBroker) -> None:
    assert await alter(broker, upsertion("h"), upsertion("i", iterations=1)) == [
        ("h", 0, None),
        ("i", 93, "Too few iterations"),
    ]
    assert [user for user, *_ in await described(broker)] == ["h"]


async def test_descriptions_of_unknown_and_repeated_users(broker: InMemoryBroker) -> None:
    await alter(broker, upsertion("a"))

    twice = "Cannot describe SCRAM credentials for the same user twice in a single request: "
    missing = "Attempt to describe a user credential that does not exist: "
    assert await described(broker, "a", "zz") == [("a", 0, None, [(1, 4096)]), ("zz", 91, f"{missing}zz", [])]
    assert await described(broker, "a", "a") == [("a", 92, f"{twice}a", [])]
    assert await described(broker, "zz", "zz") == [("zz", 92, f"{twice}zz", [])]
    assert await described(broker, "") == [("", 91, missing, [])]


async def test_what_is_stored_is_the_credential_of_kafka_and_no_password(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "d")
    await alter(broker, upsertion("grace"))
    text = (tmp_path / "d" / FILE_NAME).read_text()
    client_key = SCRAM_SHA_256.hmac(SALTED, b"Client Key")

    stored = json.loads(text)["scram_credentials"]["grace"]["SCRAM-SHA-256"]

    assert stored == {
        "salt": base64.b64encode(SALT).decode(),
        "stored_key": base64.b64encode(SCRAM_SHA_256.hash(client_key)).decode(),
        "server_key": base64.b64encode(SCRAM_SHA_256.hmac(SALTED, b"Server Key")).decode(),
        "iterations": 4096,
    }
    for secret in (SALTED, client_key):
        assert base64.b64encode(secret).decode() not in text
    assert "hopper" not in text
    assert (tmp_path / "d" / FILE_NAME).stat().st_mode & 0o777 == 0o600


async def test_users_outlive_a_restart(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path / "d")
    await alter(broker, upsertion("a"), upsertion("a", 2))
    broker.close()

    assert await described(make_broker(tmp_path / "d")) == [("a", 0, None, [(1, 4096), (2, 4096)])]


async def test_a_change_that_cannot_be_stored_changes_nothing(
    broker: InMemoryBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await alter(broker, upsertion("a"))

    def full(*_: object) -> None:
        raise OSError("no space")

    monkeypatch.setattr(broker.app._state, "_store", full)
    refused = [("b", ErrorCode.KAFKA_STORAGE_ERROR, "cannot store the credentials: no space")]
    assert await alter(broker, upsertion("b")) == refused
    monkeypatch.undo()

    assert [user for user, *_ in await described(broker)] == ["a"]


def test_a_damaged_credential_is_reported_without_its_values(tmp_path: Path) -> None:
    from minibroker.broker.cluster.file_state import FileStateError

    credentials = {"a": {"SCRAM-SHA-256": new_credential(SCRAM_SHA_256, "x")}}
    FileState(tmp_path, 0).save("a user", StateChange(scram_credentials=credentials))
    document = json.loads((tmp_path / FILE_NAME).read_text())
    document["scram_credentials"]["a"]["SCRAM-SHA-256"]["stored_key"] = "hunter2"
    (tmp_path / FILE_NAME).write_text(json.dumps(document))

    with pytest.raises(FileStateError, match="a malformed SCRAM credential") as refused:
        FileState(tmp_path, 0).read()
    assert "hunter2" not in str(refused.value)


# -- users who do not exist -----------------------------------------------------------------------------------


def users_with(tmp_path: Path, *credentials: tuple[int, int]) -> ScramUsers:
    """Users with these iterations and lengths of salt."""
    state = FileState(tmp_path, 0)
    users = ScramUsers(state)
    users.prepare()
    made = {}
    for number, (iterations, salt_bytes) in enumerate(credentials):
        salt = bytes([number]) * salt_bytes
        made[f"user{number}"] = {"SCRAM-SHA-256": credential_of(SCRAM_SHA_256, bytes(32), salt, iterations)}
    state.save("users", StateChange(scram_credentials=made))
    return users


def test_an_unknown_user_has_the_same_salt_each_time_and_after_a_restart(tmp_path: Path) -> None:
    users = users_with(tmp_path)

    first, is_known = users.credential(SCRAM_SHA_256, "nobody")
    state = FileState(tmp_path, 0)
    state.read()
    again = ScramUsers(state)

    assert not is_known
    assert again.credential(SCRAM_SHA_256, "nobody")[0] == first
    assert (len(first.salt), first.iterations) == (SALT_BYTES, DEFAULT_ITERATIONS)
    assert len({users.credential(SCRAM_SHA_256, f"nobody{each}")[0].salt for each in range(50)}) == 50
    assert users.credential(SCRAM_SHA_512, "nobody")[0].salt != first.salt


def test_another_broker_makes_up_other_salts(tmp_path: Path) -> None:
    for name in "12":
        (tmp_path / name).mkdir()
    one, other = users_with(tmp_path / "1"), users_with(tmp_path / "2")

    assert one.credential(SCRAM_SHA_256, "nobody")[0].salt != other.credential(SCRAM_SHA_256, "nobody")[0].salt


def test_a_made_up_credential_looks_as_most_do(tmp_path: Path) -> None:
    users = users_with(tmp_path, (8192, 64), (8192, 64), (4096, 24))

    found = users.credential(SCRAM_SHA_256, "nobody")[0]

    assert (found.iterations, len(found.salt)) == (8192, 64)
    assert len(users.credential(SCRAM_SHA_512, "user0")[0].salt) == SALT_BYTES


def test_credentials_show_no_key() -> None:
    credential = ScramCredential(b"salt", b"hunter2", b"hunter3", 4096)

    assert repr(credential) == "ScramCredential(iterations=4096)"
    assert f"{credential!s}" == "ScramCredential(iterations=4096)"


# -- without a SASL listener, or after the login --------------------------------------------------------------


async def test_there_is_nothing_to_authenticate(broker: InMemoryBroker) -> None:
    """As frames of Apache Kafka 2.0.1 have it; the connection stays."""
    shaken = await broker.call(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
    asked = await broker.call(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0carol\0carol-secret")

    assert (shaken.error_code, list(shaken.mechanisms)) == (34, [])
    message = "SaslAuthenticate request received after successful authentication"
    assert (asked.error_code, asked.error_message, asked.auth_bytes) == (34, message, b"")
