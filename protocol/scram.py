"""The hashes of SCRAM (RFC 5802, RFC 7677): a password becomes a salted password, and that a credential's two keys.

A server stores only the credential: neither the password nor the salted password can be computed from it. The
mechanisms are those of kafka's ScramMechanism, with its numbers and the iterations that Kafka allows.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import NamedTuple

MIN_ITERATIONS = 4096
MAX_ITERATIONS = 16_384
DEFAULT_ITERATIONS = 4096
SALT_BYTES = 20


class ScramMechanism(NamedTuple):
    """`number` names it in requests, `hash_name` in Python."""

    name: str
    number: int
    hash_name: str
    hash_bytes: int

    def hash(self, data: bytes) -> bytes:
        return hashlib.new(self.hash_name, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        return hmac.digest(key, data, self.hash_name)


SCRAM_SHA_256 = ScramMechanism("SCRAM-SHA-256", 1, "sha256", 32)
SCRAM_SHA_512 = ScramMechanism("SCRAM-SHA-512", 2, "sha512", 64)
BY_NAME = {each.name: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}
BY_NUMBER = {each.number: each for each in (SCRAM_SHA_256, SCRAM_SHA_512)}


class ScramCredential(NamedTuple):
    """The credential that a server stores of a password. `repr` shows no key."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"


class Deletion(NamedTuple):
    """A user's credential for a mechanism goes, as AlterUserScramCredentials names it."""

    user: str
    mechanism: int


class Upsertion(NamedTuple):
    """A user's credential for a mechanism is made or changed. `repr` shows neither salt nor password."""

    user: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes

    def __repr__(self) -> str:
        return f"Upsertion({self.user!r}, {self.mechanism}, {self.iterations})"


def new_salt() -> bytes:
    return secrets.token_bytes(SALT_BYTES)


def salted_password(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int) -> bytes:
    """Hash a password as a client does; at 4096 iterations this takes milliseconds."""
    return hashlib.pbkdf2_hmac(mechanism.hash_name, password.encode(), salt, iterations)


def credential_of(mechanism: ScramMechanism, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """Make the credential that is stored, from the salted password."""
    client_key = mechanism.hmac(salted, b"Client Key")
    return ScramCredential(salt, mechanism.hash(client_key), mechanism.hmac(salted, b"Server Key"), iterations)
