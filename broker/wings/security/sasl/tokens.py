"""Checks tokens (JSON Web Tokens, RFC 7519): unsecured ones as kafka 2.0.1, signed ones by the keys of a JWKS file.

Unsecured: as OAuthBearerUnsecuredValidatorCallbackHandler, with its options in the JAAS entry. Signed: as Kafka's later
OAuthBearerValidatorCallbackHandler; the settings are those of KIP-768, and only a file is read, no URL. A signature's
algorithm must fit its key: a token never chooses how it is checked. `cryptography` is imported with the first token.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from minibroker.broker.wings.security.sasl.oauthbearer import InvalidTokenError, Token
from minibroker.protocol.text import reason_of

MAX_KEYS_FILE_BYTES = 1 << 20
UNSECURED_OPTIONS = "unsecuredValidator"

Claims = dict[str, Any]


class TokenParts(NamedTuple):
    header: Claims
    claims: Claims
    signed: bytes
    signature: bytes


class UnsecuredTokens:
    """Accepts tokens that are not signed: any client can make one for any user. `options` are those of the entry."""

    def __init__(self, options: Mapping[str, str], now_ms: Callable[[], int]) -> None:
        """Raises ValueError, with a message that names the option."""
        self._now_ms = now_ms
        self._user_claim = options.get(UNSECURED_OPTIONS + "PrincipalClaimName", "").strip() or "sub"
        self._scope_claim = options.get(UNSECURED_OPTIONS + "ScopeClaimName", "").strip() or "scope"
        self._scopes = options.get(UNSECURED_OPTIONS + "RequiredScope", "").split()
        name = UNSECURED_OPTIONS + "AllowableClockSkewMs"
        skew = options.get(name, "").strip() or "0"
        if not skew.isdecimal():
            raise ValueError(f"{name} is not a number of milliseconds, 0 or more")
        self._skew_ms = int(skew)

    def validate(self, token: str) -> Token:
        parts = parts_of(token)
        if parts.signature or parts.header.get("alg") != "none":
            raise InvalidTokenError("the token is signed, or its algorithm is not none")
        checked = checked_claims(parts.claims, self._user_claim, self._now_ms(), self._skew_ms)
        require_scopes(scopes_of(parts.claims.get(self._scope_claim)), self._scopes)
        return checked


class SignedTokens:
    """Accepts tokens that a key of the file has signed. The file is read again when it has changed."""

    def __init__(
        self,
        path: Path,
        now_ms: Callable[[], int],
        *,
        audiences: Sequence[str] = (),
        issuer: str | None = None,
        skew_ms: int = 30_000,
        user_claim: str = "sub",
    ) -> None:
        self._path = path
        self._now_ms = now_ms
        self._audiences = set(audiences)
        self._issuer = issuer
        self._skew_ms = skew_ms
        self._user_claim = user_claim
        self._keys: list[Claims] = []
        self._read_as: tuple[int, int] | None = None

    def validate(self, token: str) -> Token:
        parts = parts_of(token)
        try:
            self._read()
        except (OSError, ValueError) as error:
            raise InvalidTokenError(f"cannot read {self._path}: {reason_of(error)}") from error
        if not any(is_signed_by(key, parts) for key in self._keys_for(parts.header)):
            raise InvalidTokenError("no key of the file has signed the token")
        claims = parts.claims
        audience = claims.get("aud")
        if self._audiences and self._audiences.isdisjoint([audience] if isinstance(audience, str) else audience or ()):
            raise InvalidTokenError("the token is for another audience")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise InvalidTokenError("the token is of another issuer")
        if not is_number(claims.get("iat")):
            raise InvalidTokenError("the token has no time of issue")
        if is_number(claims.get("nbf")) and claims["nbf"] * 1000 > self._now_ms() + self._skew_ms:
            raise InvalidTokenError("the token is not valid yet")
        return checked_claims(claims, self._user_claim, self._now_ms(), self._skew_ms)

    def _keys_for(self, header: Claims) -> list[Claims]:
        identity = header.get("kid")
        return [key for key in self._keys if identity is None or key.get("kid") == identity]

    def _read(self) -> None:
        status = os.stat(self._path)
        changed = (status.st_mtime_ns, status.st_size)
        if changed == self._read_as:
            return
        if status.st_size > MAX_KEYS_FILE_BYTES:
            raise ValueError(f"{status.st_size} bytes are too many for a file of keys")
        document = json.loads(self._path.read_bytes())
        keys = document.get("keys") if isinstance(document, dict) else None
        if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
            raise ValueError("it is not a JSON Web Key Set, an object with an array of keys")
        self._keys = [key for key in keys if key.get("use", "sig") == "sig"]
        self._read_as = changed


# -- claims ---------------------------------------------------------------------------------------------------


def parts_of(token: str) -> TokenParts:
    """Split a compact serialization. Raises InvalidTokenError."""
    pieces = token.split(".")
    if len(pieces) != 3:
        raise InvalidTokenError(f"the token has {len(pieces)} parts, not 3")
    header, claims, signature = map(decoded, pieces)
    return TokenParts(json_object(header), json_object(claims), f"{pieces[0]}.{pieces[1]}".encode(), signature)


def decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise InvalidTokenError("a part of the token is not base64url") from None


def json_object(data: bytes) -> Claims:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise InvalidTokenError("a part of the token is not a JSON object")
    return value


def checked_claims(claims: Claims, user_claim: str, now_ms: int, skew_ms: int) -> Token:
    """Check the user and the times, in seconds. Raises InvalidTokenError."""
    user, expires, issued = claims.get(user_claim), claims.get("exp"), claims.get("iat")
    if not isinstance(user, str) or not user.strip():
        raise InvalidTokenError(f"the token has no {user_claim}")
    if not is_number(expires):
        raise InvalidTokenError("the token has no time of expiration")
    assert expires is not None
    if issued is not None:
        if not is_number(issued) or issued >= expires:
            raise InvalidTokenError("the token's time of issue is not before its expiration")
        if issued * 1000 > now_ms + skew_ms:
            raise InvalidTokenError("the token is issued in the future")
    if now_ms - skew_ms >= expires * 1000:
        raise InvalidTokenError("the token has expired")
    return Token(user, int(expires * 1000))


def is_number(value: object) -> bool:
    """A finite number in the range of Java's times."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def scopes_of(claim: object) -> set[str]:
    words = claim.split() if isinstance(claim, str) else claim if isinstance(claim, list) else ()
    return {word for word in words if isinstance(word, str)}


def require_scopes(scopes: set[str], required: Sequence[str]) -> None:
    """Raises InvalidTokenError for the first scope that is missing, as kafka 2.0.1 OAuthBearerValidationUtils."""
    for scope in required:
        if scope not in scopes:
            raise InvalidTokenError(f"the token has no scope {scope}", " ".join(required))


# -- signatures -----------------------------------------------------------------------------------------------


def is_signed_by(key: Claims, parts: TokenParts) -> bool:
    """Return whether the signature is the key's. A malformed key has signed nothing."""
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm

    algorithm = str(parts.header.get("alg"))
    if key.get("alg", algorithm) != algorithm:
        return False
    try:
        if key.get("kty") == "RSA":
            verify_rsa(key, algorithm, parts)
        elif key.get("kty") == "EC":
            verify_ecdsa(key, algorithm, parts)
        else:
            return False
    except (InvalidSignature, UnsupportedAlgorithm, InvalidTokenError, KeyError, TypeError, ValueError):
        return False
    return True


def verify_rsa(key: Claims, algorithm: str, parts: TokenParts) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding, rsa

    digests: dict[str, Any] = {"256": hashes.SHA256(), "384": hashes.SHA384(), "512": hashes.SHA512()}
    digest = digests[algorithm[2:]]
    pads: dict[str, Any] = {
        "RS": lambda: padding.PKCS1v15(),
        "PS": lambda: padding.PSS(padding.MGF1(digest), digest.digest_size),
    }
    public = rsa.RSAPublicNumbers(number_of(key["e"]), number_of(key["n"])).public_key()
    public.verify(parts.signature, parts.signed, pads[algorithm[:2]](), digest)


def verify_ecdsa(key: Claims, algorithm: str, parts: TokenParts) -> None:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

    curves: dict[str, tuple[str, ec.EllipticCurve, hashes.HashAlgorithm]] = {
        "ES256": ("P-256", ec.SECP256R1(), hashes.SHA256()),
        "ES384": ("P-384", ec.SECP384R1(), hashes.SHA384()),
        "ES512": ("P-521", ec.SECP521R1(), hashes.SHA512()),
    }
    name, curve, digest = curves[algorithm]
    half = (curve.key_size + 7) // 8
    if key["crv"] != name or len(parts.signature) != 2 * half:
        raise ValueError("another curve")
    public = ec.EllipticCurvePublicNumbers(number_of(key["x"]), number_of(key["y"]), curve).public_key()
    r, s = parts.signature[:half], parts.signature[half:]
    signature = encode_dss_signature(int.from_bytes(r, "big"), int.from_bytes(s, "big"))
    public.verify(signature, parts.signed, ec.ECDSA(digest))


def number_of(text: str) -> int:
    return int.from_bytes(decoded(text), "big")
