"""The users that log in by SCRAM: their credentials, stored before they count.

Which users exist cannot be seen from outside: a user without a credential gets a made-up one, always the same, from a
key that is stored beside the credentials. It has the iterations and the length of salt that most users have.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import secrets
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from minibroker.broker.cluster.sections import Section
from minibroker.broker.cluster.state import Change, ClusterState
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.scram import (
    BY_NUMBER,
    DEFAULT_ITERATIONS,
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    SALT_BYTES,
    Deletion,
    ScramCredential,
    ScramMechanism,
    Upsertion,
    credential_of,
)

KEY_BYTES = 32
MAX_SALT_BYTES = 255

ScramCredentials = Mapping[str, Mapping[str, ScramCredential]]  # by user and mechanism


def base64_text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def credentials_document(credentials: ScramCredentials) -> dict[str, Any]:
    """As kafka 2.0.1 has them in ZooKeeper, ScramCredentialUtils."""
    return {
        user: {
            mechanism: {
                "salt": base64_text(each.salt),
                "stored_key": base64_text(each.stored_key),
                "server_key": base64_text(each.server_key),
                "iterations": each.iterations,
            }
            for mechanism, each in its_own.items()
        }
        for user, its_own in credentials.items()
    }


def parse_credentials(document: Mapping[str, Any]) -> ScramCredentials:
    return {
        str(user): {str(mechanism): parse_credential(each) for mechanism, each in its_own.items()}
        for user, its_own in document.items()
    }


def parse_credential(document: Mapping[str, Any]) -> ScramCredential:
    """Raises ValueError without the values: they are secret."""
    try:
        salt, stored_key, server_key = (
            base64.b64decode(document[name], validate=True) for name in ("salt", "stored_key", "server_key")
        )
        return ScramCredential(salt, stored_key, server_key, int(document["iterations"]))
    except (binascii.Error, ValueError, TypeError):
        raise ValueError("a malformed SCRAM credential") from None


CREDENTIALS: Section[ScramCredentials] = Section(
    "scram_credentials", {}, to_json=credentials_document, from_json=parse_credentials, is_secret=True
)
# Makes up the salts of unknown users.
SALT_KEY = Section(
    "scram_salt_key",
    b"",
    to_json=base64_text,
    from_json=lambda text: base64.b64decode(text, validate=True),
    is_secret=True,
)


class ScramUsers:
    """The credentials in the state of the cluster, by user and mechanism."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._usual_of: object = None
        self._usual_by_name: dict[str, tuple[int, int]] = {}

    def names(self) -> Iterable[str]:
        return self._state.get(CREDENTIALS).keys()

    def described(self, user: str) -> list[tuple[int, int]]:
        """The mechanisms of a user's credentials by number, with their iterations; none for an unknown user."""
        found = self._state.get(CREDENTIALS).get(user, {})
        return [
            (number, found[mechanism.name].iterations)
            for number, mechanism in BY_NUMBER.items()
            if mechanism.name in found
        ]

    def credential(self, mechanism: ScramMechanism, user: str) -> tuple[ScramCredential, bool]:
        """The credential, and whether the user has one: else it is made up, and no password fits it."""
        made_up = self._made_up(mechanism, user)
        known = self._state.get(CREDENTIALS).get(user, {}).get(mechanism.name)
        return (made_up, False) if known is None else (known, True)

    def alter(self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]) -> dict[str, KafkaError | None]:
        """Change credentials, of each user all or none, and store them; return each user's error.

        Raises KafkaError(KAFKA_STORAGE_ERROR), and changes nothing then.
        """
        while True:
            changed, outcomes = self._altered(deletions, upsertions)
            change = Change(sections={CREDENTIALS: changed})
            if None not in outcomes.values() or self._state.save("the credentials", change):
                return outcomes

    def _altered(
        self, deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
    ) -> tuple[ScramCredentials, dict[str, KafkaError | None]]:
        """Apply the changes to the stored credentials; return the new credentials, and each user's error."""
        outcomes: dict[str, KafkaError | None] = {}
        changed = {user: dict(credentials) for user, credentials in self._state.get(CREDENTIALS).items()}
        users = [change.user for change in deletions] + [change.user for change in upsertions]
        for user in dict.fromkeys(users):
            before = dict(changed.get(user, {}))
            try:
                after = altered(
                    user,
                    before,
                    [change for change in deletions if change.user == user],
                    [change for change in upsertions if change.user == user],
                )
            except KafkaError as error:
                outcomes[user] = error
                continue
            outcomes[user] = None
            changed.pop(user, None)
            if after:
                changed[user] = after
        return changed, outcomes

    def prepare(self) -> None:
        """Store the key of made-up salts, if there is none yet. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        while not self._state.get(SALT_KEY):
            self._state.save("a key", Change(sections={SALT_KEY: secrets.token_bytes(KEY_BYTES)}))

    def _made_up(self, mechanism: ScramMechanism, user: str) -> ScramCredential:
        iterations, salt_bytes = self._usual(mechanism)
        key = self._state.get(SALT_KEY)
        name = f"{mechanism.name}:{user}".encode()
        stream = b"".join(hmac.digest(key, bytes([block]) + name, "sha512") for block in range(5))
        keys = hmac.digest(key, b"key" + name, "sha512")[: mechanism.hash_bytes]
        return ScramCredential(stream[:salt_bytes], keys, keys, iterations)

    def _usual(self, mechanism: ScramMechanism) -> tuple[int, int]:
        """The iterations and the length of salt that most credentials of the mechanism have."""
        known = self._state.get(CREDENTIALS)
        if self._usual_of is not known:  # every change makes a new table
            self._usual_of, self._usual_by_name = known, {}
        if mechanism.name not in self._usual_by_name:
            found = Counter(
                (credentials[mechanism.name].iterations, len(credentials[mechanism.name].salt))
                for credentials in known.values()
                if mechanism.name in credentials
            )
            usual = max(found, key=lambda each: (found[each], each)) if found else (DEFAULT_ITERATIONS, SALT_BYTES)
            self._usual_by_name[mechanism.name] = usual
        return self._usual_by_name[mechanism.name]


def altered(
    user: str, before: dict[str, ScramCredential], deletions: Sequence[Deletion], upsertions: Sequence[Upsertion]
) -> dict[str, ScramCredential]:
    """The credentials of a user after the changes. Raises KafkaError, as kafka 3.9 ScramControlManager."""
    if not user:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
    after = dict(before)
    touched: set[str] = set()
    changes: list[Deletion | Upsertion] = [*deletions, *upsertions]
    for change in changes:
        mechanism = BY_NUMBER.get(change.mechanism)
        if mechanism is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if mechanism.name in touched:
            message = "A user credential cannot be altered twice in the same request"
            raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, message)
        touched.add(mechanism.name)
        if isinstance(change, Upsertion):
            check_acceptable(mechanism, change)
            after[mechanism.name] = credential_of(mechanism, change.salted_password, change.salt, change.iterations)
        elif after.pop(mechanism.name, None) is None:
            message = "Attempt to delete a user credential that does not exist"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, message)
    return after


def check_acceptable(mechanism: ScramMechanism, change: Upsertion) -> None:
    """Raises KafkaError(UNACCEPTABLE_CREDENTIAL)."""
    if change.iterations < MIN_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
    if change.iterations > MAX_ITERATIONS:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
    if not change.salt or len(change.salt) > MAX_SALT_BYTES:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"A salt has between 1 and {MAX_SALT_BYTES} bytes")
    if len(change.salted_password) != mechanism.hash_bytes:
        message = f"A salted password of {mechanism.name} has {mechanism.hash_bytes} bytes"
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, message)
