"""OAUTHBEARER: its messages, unsecured tokens as Apache Kafka 2.0.1 checks them, signed tokens by a file of keys."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from minibroker.broker.wings.security.sasl.mechanism import AuthenticationFailedError
from minibroker.broker.wings.security.sasl.oauthbearer import CONFIRMATION, InvalidTokenError, OAuthBearerServer
from minibroker.broker.wings.security.sasl.tokens import SignedTokens, UnsecuredTokens

NOW_MS = 1_700_000_000_000
NOW = NOW_MS // 1000
CLAIMS = {"sub": "alice", "iat": NOW - 10, "exp": NOW + 60}


def base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def part(value: object) -> str:
    return base64url(value if isinstance(value, bytes) else json.dumps(value).encode())


def unsecured(claims: object = CLAIMS, header: object = None) -> str:
    return f"{part({'alg': 'none'} if header is None else header)}.{part(claims)}."


def validator(**options: str) -> UnsecuredTokens:
    return UnsecuredTokens({f"unsecuredValidator{name}": value for name, value in options.items()}, lambda: NOW_MS)


def first(token: str, *, authzid: str = "", auth: str = "Bearer ", more: str = "") -> bytes:
    return f"n,{authzid},\x01auth={auth}{token}\x01{more}\x01".encode()


# -- messages -------------------------------------------------------------------------------------------------


def respond(message: bytes) -> tuple[OAuthBearerServer, bytes | str]:
    server = OAuthBearerServer(validator())
    try:
        return server, server.respond(message)
    except AuthenticationFailedError as failure:
        return server, str(failure)


@pytest.mark.parametrize(
    "message",
    [
        first(unsecured()),
        first(unsecured(), authzid="a=alice"),
        first(unsecured(), auth="bearer  "),
        first(unsecured(), more="host=h\x01port=9092\x01"),
    ],
)
def test_a_token_logs_in_its_subject(message: bytes) -> None:
    server, answer = respond(message)

    assert (answer, server.user, server.expires_ms) == (b"", "alice", (NOW + 60) * 1000)


def test_a_refused_token_is_answered_with_json_and_fails_when_the_client_has_read_it() -> None:
    server, answer = respond(first(unsecured({**CLAIMS, "exp": NOW - 1})))

    assert (answer, server.user) == (b'{"status":"invalid_token"}', None)
    with pytest.raises(AuthenticationFailedError, match=r"^\{\"status\":\"invalid_token\"\}$"):
        server.respond(CONFIRMATION)


# -- unsecured tokens -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        (unsecured({"sub": "alice"}), "no time of expiration"),
        (unsecured({**CLAIMS, "exp": "soon"}), "no time of expiration"),
        (unsecured({**CLAIMS, "exp": True}), "no time of expiration"),
        (unsecured({**CLAIMS, "exp": 1e400}), "no time of expiration"),
        (unsecured({**CLAIMS, "exp": NOW}), "has expired"),
        (unsecured({**CLAIMS, "iat": NOW + 1}), "issued in the future"),
        (unsecured({**CLAIMS, "iat": NOW + 60}), "not before its expiration"),
        (unsecured({**CLAIMS, "iat": "x"}), "not before its expiration"),
        (unsecured({"exp": NOW + 60}), "no sub"),
        (unsecured({**CLAIMS, "sub": ""}), "no sub"),
        (unsecured({**CLAIMS, "sub": 7}), "no sub"),
        (unsecured(header={"alg": "HS256"}), "signed"),
        (unsecured(header={}), "signed"),
        (unsecured() + part(b"x"), "signed"),
        (unsecured().rstrip("."), "2 parts"),
        (unsecured() + ".", "4 parts"),
        (unsecured([1]), "not a JSON object"),
        (unsecured(b"["), "not a JSON object"),
        (unsecured(b"[" * 100_000), "not a JSON object"),
        ("a.b.", "base64url|JSON"),
        ("..", "JSON"),
        ("", "1 parts"),
    ],
)
def test_an_unsecured_token_is_refused(token: str, reason: str) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        validator().validate(token)


def test_an_unsecured_token_is_checked_by_the_options_of_the_login_module() -> None:
    token = unsecured({"name": "bob", "exp": NOW - 3, "roles": ["r", "w"]})
    options = {"PrincipalClaimName": "name", "ScopeClaimName": "roles", "AllowableClockSkewMs": "5000"}

    assert validator(**options, RequiredScope="r w").validate(token).user == "bob"
    with pytest.raises(InvalidTokenError, match="no scope x") as refused:
        validator(**options, RequiredScope="r x").validate(token)
    assert refused.value.scope == "r x"


@pytest.mark.parametrize("skew", ["x", "-1", "1.5"])
def test_a_clock_skew_is_a_number(skew: str) -> None:
    with pytest.raises(ValueError, match="unsecuredValidatorAllowableClockSkewMs"):
        validator(AllowableClockSkewMs=skew)


# -- signed tokens --------------------------------------------------------------------------------------------

pytest.importorskip("cryptography", reason="signed tokens need it: pip install cryptography")

from cryptography.hazmat.primitives import hashes  # noqa: E402
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa  # noqa: E402
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature  # noqa: E402

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_RSA_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())


def number(value: int, size: int) -> str:
    return base64url(value.to_bytes(size, "big"))


def rsa_jwk(kid: str, key: rsa.RSAPrivateKey = RSA_KEY, **more: str) -> dict[str, str]:
    public = key.public_key().public_numbers()
    return {"kty": "RSA", "kid": kid, "n": number(public.n, 256), "e": number(public.e, 3), **more}


def ec_jwk(kid: str) -> dict[str, str]:
    public = EC_KEY.public_key().public_numbers()
    return {"kty": "EC", "crv": "P-256", "kid": kid, "x": number(public.x, 32), "y": number(public.y, 32)}


def signed(claims: Any = CLAIMS, *, alg: str = "RS256", kid: str | None = "one", key: Any = RSA_KEY) -> str:
    header = {"alg": alg} | ({} if kid is None else {"kid": kid})
    text = f"{part(header)}.{part(claims)}"
    if alg == "ES256":
        r, s = decode_dss_signature(EC_KEY.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{base64url(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"
    if alg == "PS256":
        pad: Any = padding.PSS(padding.MGF1(hashes.SHA256()), 32)
    else:
        pad = padding.PKCS1v15()
    return f"{text}.{base64url(key.sign(text.encode(), pad, hashes.SHA256()))}"


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / "keys.json"
    path.write_text(json.dumps({"keys": [rsa_jwk("one"), ec_jwk("two"), rsa_jwk("enc", use="enc")]}))
    return path


def by_file(keys: Path, **settings: Any) -> SignedTokens:
    return SignedTokens(keys, lambda: NOW_MS, **settings)


@pytest.mark.parametrize(
    "token",
    [signed(), signed(kid=None), signed(alg="PS256"), signed(alg="ES256", kid="two"), signed(alg="ES256", kid=None)],
)
def test_a_token_that_a_key_of_the_file_has_signed_logs_in(keys: Path, token: str) -> None:
    assert by_file(keys).validate(token).user == "alice"


@pytest.mark.parametrize(
    "token",
    [
        unsecured(),
        signed().rpartition(".")[0] + ".",
        signed(key=OTHER_RSA_KEY),
        signed(kid="two"),
        signed(kid="enc"),
        signed(kid="nobody"),
        signed(alg="RS384"),  # it names another algorithm than it is signed with
        signed(alg="HS256"),
        signed(alg="none"),
        signed(alg="RS"),
        signed(alg="ES256", kid="one"),
        signed({**CLAIMS, "sub": "eve"}).split(".")[0] + "." + part({**CLAIMS, "sub": "bob"}) + "." + "AAAA",
    ],
)
def test_a_token_without_a_fitting_signature_is_refused(keys: Path, token: str) -> None:
    with pytest.raises(InvalidTokenError, match="no key of the file"):
        by_file(keys).validate(token)


@pytest.mark.parametrize(
    ("claims", "settings", "reason"),
    [
        ({"exp": NOW - 31}, {}, "has expired"),
        ({"iat": None}, {}, "no time of issue"),
        ({"nbf": NOW + 31}, {}, "not valid yet"),
        ({}, {"audiences": ["kafka"]}, "another audience"),
        ({"aud": "other"}, {"audiences": ["kafka"]}, "another audience"),
        ({"aud": ["other"]}, {"audiences": ["kafka"]}, "another audience"),
        ({"iss": "other"}, {"issuer": "me"}, "another issuer"),
        ({}, {"user_claim": "email"}, "no email"),
    ],
)
def test_a_signed_token_is_refused_by_its_claims(
    keys: Path, claims: dict[str, Any], settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidTokenError, match=reason):
        by_file(keys, **settings).validate(signed({**CLAIMS, "iat": NOW - 100, **claims}))


def test_a_signed_token_for_this_audience_of_this_issuer_is_valid(keys: Path) -> None:
    claims = {**CLAIMS, "exp": NOW - 20, "iat": NOW - 50, "aud": ["x", "kafka"], "iss": "me", "email": "a@b"}

    token = by_file(keys, audiences=["kafka"], issuer="me", user_claim="email").validate(signed(claims))

    assert token.user == "a@b"


def test_the_file_is_read_again_when_it_has_changed(keys: Path) -> None:
    tokens = by_file(keys)
    assert tokens.validate(signed()).user == "alice"

    keys.write_text(json.dumps({"keys": [rsa_jwk("one", OTHER_RSA_KEY), rsa_jwk("one", OTHER_RSA_KEY)]}))

    assert tokens.validate(signed(key=OTHER_RSA_KEY)).user == "alice"
    with pytest.raises(InvalidTokenError, match="no key of the file"):
        tokens.validate(signed())


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"keys": [1]}', '{"keys": {}}', "x" * (1 << 21)])
def test_a_file_without_keys_refuses_every_token(keys: Path, content: str) -> None:
    keys.write_text(content)

    with pytest.raises(InvalidTokenError, match="cannot read"):
        by_file(keys).validate(signed())


@pytest.mark.parametrize("broken", [{"n": "!"}, {"n": ""}, {"e": "AA"}, {"kty": "oct", "k": "AA"}, {"n": 7}])
def test_a_malformed_key_signs_nothing(keys: Path, broken: dict[str, Any]) -> None:
    keys.write_text(json.dumps({"keys": [{**rsa_jwk("one"), **broken}]}))

    with pytest.raises(InvalidTokenError, match="no key of the file"):
        by_file(keys).validate(signed())
