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
from minibroker.broker.wings.security.sasl.users import CREDENTIALS, SALT_KEY, ScramUsers
from minibroker.protocol.api import ApiKey
from minibroker.protocol.scram import (
    DEFAULT_ITERATIONS,
    SALT_BYTES,
    SCRAM_SHA_256,
    SCRAM_SHA_512,
    ScramCredential,
    credential_of,
    salted_password,
)
from tests.broker.conftest import InMemoryBroker, MakeBroker
from tests.broker.sasl_broker import new_credential

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


async def test_the_stored_credential_is_that_of_kafka_and_has_no_password(
    make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(tmp_path / "d")
    await alter(broker, upsertion("grace"))
    broker.close()
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


def test_a_damaged_credential_is_reported_without_its_values(tmp_path: Path) -> None:
    from minibroker.broker.cluster.file_state import FileStateError

    credentials = {"a": {"SCRAM-SHA-256": new_credential("x")}}
    state = FileState(tmp_path, 0, [CREDENTIALS, SALT_KEY])
    state.save("a user", StateChange(sections={CREDENTIALS: credentials}))
    state.close()
    document = json.loads((tmp_path / FILE_NAME).read_text())
    document["scram_credentials"]["a"]["SCRAM-SHA-256"]["stored_key"] = "hunter2"
    (tmp_path / FILE_NAME).write_text(json.dumps(document))

    with pytest.raises(FileStateError, match="a malformed SCRAM credential") as refused:
        FileState(tmp_path, 0, [CREDENTIALS, SALT_KEY]).read()
    assert "hunter2" not in str(refused.value)


# -- users who do not exist -----------------------------------------------------------------------------------


def users_with(tmp_path: Path, *credentials: tuple[int, int]) -> ScramUsers:
    """Users with these iterations and lengths of salt."""
    state = FileState(tmp_path, 0, [CREDENTIALS, SALT_KEY])
    users = ScramUsers(state)
    users.prepare()
    made = {}
    for number, (iterations, salt_bytes) in enumerate(credentials):
        salt = bytes([number]) * salt_bytes
        made[f"user{number}"] = {"SCRAM-SHA-256": credential_of(SCRAM_SHA_256, bytes(32), salt, iterations)}
    state.save("users", StateChange(sections={CREDENTIALS: made}))
    return users


def test_an_unknown_user_has_the_same_salt_each_time_and_after_a_restart(tmp_path: Path) -> None:
    users = users_with(tmp_path)

    first, is_known = users.credential(SCRAM_SHA_256, "nobody")
    state = FileState(tmp_path, 0, [CREDENTIALS, SALT_KEY])
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
