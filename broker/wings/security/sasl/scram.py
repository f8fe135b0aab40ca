"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802 without channel binding), as kafka 2.0.1 ScramSaslServer.

    client-first  n,,n=USER,r=NONCE            server-first  r=NONCE+OURS,s=SALT,i=ITERATIONS
    client-final  c=biws,r=NONCE+OURS,p=PROOF  server-final  v=SIGNATURE

Stricter than 2.0.1, as the RFC asks: the final message must repeat the whole nonce and the header of the first, and a
mandatory extension (`m=`) fails. The client's own nonce may come twice, as librdkafka before 2.6.1 sends it. A user who
does not exist gets a salt too: a client learns only at the end of the exchange that it failed.
"""

from __future__ import annotations

import base64
import hmac
import re
import secrets
from collections.abc import Callable

from minibroker.broker.wings.security.sasl.mechanism import (
    OTHER_AUTHORIZATION_ID,
    AuthenticationFailedError,
    invalid_credentials,
)
from minibroker.protocol.scram import ScramCredential, ScramMechanism

NAME = rb"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
PRINTABLE = rb"[\x21-\x2b\x2d-\x7e]+"
VALUE = rb"[\x01-\x2b\x2d-\x7f]+"
EXTENSIONS = rb"(?:,(?!m=)[A-Za-z]+=%b)*" % VALUE
BASE64 = rb"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{2}==)?"
FIRST = re.compile(
    rb"(?P<header>n,(?:a=(?P<authzid>%b))?,)(?P<bare>n=(?P<name>%b),r=(?P<nonce>%b)(?P<extensions>%b))"
    % (NAME, NAME, PRINTABLE, EXTENSIONS)
)
FINAL = re.compile(
    rb"(?P<bare>c=(?P<channel>%b),r=(?P<nonce>%b)%b),p=(?P<proof>%b)" % (BASE64, PRINTABLE, EXTENSIONS, BASE64)
)
TOKEN_AUTHENTICATION = re.compile(rb",tokenauth=true(?:,|$)", re.IGNORECASE)
NONCE_BYTES = 18
# A name that no user has: the store keeps no delegation tokens, and answers for it as for any unknown user.
TOKEN_OWNER_PREFIX = "\0token:"

# The credential of a user, and whether the user exists; a made-up credential for one who does not.
CredentialOf = Callable[[ScramMechanism, str], tuple[ScramCredential, bool]]


def new_nonce() -> bytes:
    return secrets.token_urlsafe(NONCE_BYTES).encode()


class ScramServer:
    """One login."""

    expires_ms: int | None = None

    def __init__(
        self,
        mechanism: ScramMechanism,
        credential_of: CredentialOf,
        new_nonce: Callable[[], bytes] = new_nonce,
    ) -> None:
        self._mechanism = mechanism
        self._credential_of = credential_of
        self._new_nonce = new_nonce
        self._credential: ScramCredential | None = None  # after the first message
        self._is_known = False
        self._name = ""
        self._header = self._client_nonce = self._nonce = self._transcript = b""
        self.user: str | None = None

    def respond(self, token: bytes) -> bytes:
        return self._first(token) if self._credential is None else self._final(token, self._credential)

    def _first(self, token: bytes) -> bytes:
        match = FIRST.fullmatch(token)
        if match is None:
            raise invalid_credentials(self._mechanism.name)
        self._name = unescaped(match["name"])
        if match["authzid"] is not None and unescaped(match["authzid"]) != self._name:
            raise AuthenticationFailedError(OTHER_AUTHORIZATION_ID)
        is_token = TOKEN_AUTHENTICATION.search(match["extensions"]) is not None
        self._credential, self._is_known = self._credential_of(
            self._mechanism, TOKEN_OWNER_PREFIX + self._name if is_token else self._name
        )
        self._header, self._client_nonce = match["header"], match["nonce"]
        self._nonce = self._client_nonce + self._new_nonce()
        salt = base64.b64encode(self._credential.salt)
        answer = b"r=%b,s=%b,i=%d" % (self._nonce, salt, self._credential.iterations)
        self._transcript = match["bare"] + b"," + answer
        return answer

    def _final(self, token: bytes, credential: ScramCredential) -> bytes:
        """Check everything and only then decide: which check failed takes no time that could be measured."""
        mechanism = self._mechanism
        match = FINAL.fullmatch(token)
        if match is None:
            raise invalid_credentials(mechanism.name)
        proof = base64.b64decode(match["proof"])
        is_right = hmac.compare_digest(match["channel"], base64.b64encode(self._header))
        is_right &= hmac.compare_digest(match["nonce"], self._nonce) | hmac.compare_digest(
            match["nonce"], self._client_nonce + self._nonce
        )
        is_right &= len(proof) == mechanism.hash_bytes
        transcript = self._transcript + b"," + match["bare"]
        client_signature = mechanism.hmac(credential.stored_key, transcript)
        client_key = bytes(map(int.__xor__, client_signature, proof.ljust(mechanism.hash_bytes, b"\0")))
        is_right &= hmac.compare_digest(mechanism.hash(client_key), credential.stored_key)
        server_signature = mechanism.hmac(credential.server_key, transcript)
        if not (is_right and self._is_known):
            raise invalid_credentials(mechanism.name)
        self.user = self._name
        return b"v=" + base64.b64encode(server_signature)


def unescaped(name: bytes) -> str:
    """The name that `=2C` and `=3D` were escaped in."""
    return name.replace(b"=2C", b",").replace(b"=3D", b"=").decode("ascii")
