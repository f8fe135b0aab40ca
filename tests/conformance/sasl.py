"""Conversations of clients that authenticate, right and wrong: held with Apache Kafka 2.0.1 and with minibroker.

`python -m tests.books kafka-2.0.1 logins --record` records Kafka's answers in tests/golden/, which a test compares. A
conversation is a list of steps; each step sends one message, or several in one write, and its outcome is the answer, or
that the broker closed. Steps that depend on an earlier answer (SCRAM) get it.
"""

from __future__ import annotations

import base64
import json
import re
import struct
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apache_kafka import ApacheKafka, class_path, jvm_options, kafka_jars
from benchmarks.processes import free_port
from minibroker.conformance.raw_connection import RawConnection
from minibroker.conformance.requests import frame
from minibroker.protocol.api import API_TABLE, ApiKey, decode_response
from minibroker.protocol.scram import BY_NAME, ScramMechanism, salted_password
from tests.conformance.recordings import Comparison, read
from tests.jvm import QUICK_JVM
from tests.requests import framed

RECORDED = "kafka-2.0.1-sasl-conversations.json.gz"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
# Of the listener that clients log in by; the other one is PLAINTEXT.
SETTINGS = {
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_carol="carol-secret"'
    ' user_erin="erin-secret";',
    "listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} required;",
    # Kafka logs in as a client of its own at its start.
    "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": f"{OAUTHBEARER_MODULE} required"
    ' unsecuredLoginStringClaim_sub="broker";',
}
SCRAM_USERS = {"grace": "hopper", "b=o,b": "hopper"}
ANSWER_SECONDS = 10.0
END_SECONDS = 0.5
CLOSED = "closed"
OPEN = "open"
CLIENT_NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"n,,n=grace,r={CLIENT_NONCE}"

Json = Any
Step = Callable[[list[bytes]], bytes]  # from the tokens that the broker has answered to bytes with their length
Script = list[Step]


# -- steps ----------------------------------------------------------------------------------------------------


def request(key: ApiKey, version: int, /, client_id: str | None = "gold", **body: Any) -> Step:
    encoded = frame(key, version, 7, client_id, **body)
    return lambda tokens: encoded


def header_only(key: int, version: int, rest: bytes = b"") -> Step:
    return sent(framed(struct.pack(">hhih", key, version, 7, -1) + rest))


def sent(data: bytes) -> Step:
    return lambda tokens: data


def handshake(mechanism: str, version: int = 1) -> Step:
    return request(ApiKey.SASL_HANDSHAKE, version, mechanism=mechanism)


def token(data: bytes | str) -> Step:
    return sent(framed(data.encode() if isinstance(data, str) else data))


def authenticate(data: bytes | str, version: int = 0) -> Step:
    auth_bytes = data.encode() if isinstance(data, str) else data
    return request(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=auth_bytes)


def together(*steps: Step) -> Step:
    return lambda tokens: b"".join(step(tokens) for step in steps)


def scram_final(
    mechanism: str,
    first: str = FIRST,
    *,
    password: str = "hopper",
    nonce: str | None = None,
    channel: str | None = None,
    proof_bytes: int | None = None,
    bare: bool = False,
) -> Step:
    """The client's final message to the server's first."""
    hashes = BY_NAME[mechanism]

    def message(tokens: list[bytes]) -> bytes:
        answered = tokens[-1].decode()
        if not answered.startswith("r="):  # refused: whatever follows is not answered
            return authenticate("")(tokens)
        fields = dict(field.split("=", 1) for field in answered.split(","))
        header = first[: first.index("n=", 2)]
        shown = base64.b64encode(header.encode()).decode() if channel is None else channel
        without_proof = f"c={shown},r={fields['r'] if nonce is None else nonce}"
        said = f"{first[len(header) :]},{answered},{without_proof}".encode()
        proof = proof_of(hashes, password, base64.b64decode(fields["s"]), int(fields["i"]), said)
        text = f"{without_proof},p={base64.b64encode(proof[:proof_bytes]).decode()}"
        return (token(text) if bare else authenticate(text))(tokens)

    return message


def proof_of(mechanism: ScramMechanism, password: str, salt: bytes, iterations: int, said: bytes) -> bytes:
    client_key = mechanism.hmac(salted_password(mechanism, password, salt, iterations), b"Client Key")
    signature = mechanism.hmac(mechanism.hash(client_key), said)
    return bytes(a ^ b for a, b in zip(client_key, signature, strict=True))


API_VERSIONS = request(ApiKey.API_VERSIONS, 2)
METADATA = request(ApiKey.METADATA, 6, topics=[(bytes(16), "a")], allow_auto_topic_creation=False)
CAROL = "\0carol\0carol-secret"
WRONG = "\0carol\0wrong"
SHA_256 = handshake("SCRAM-SHA-256")
OTHER_APIS = {
    "ApiVersions": API_VERSIONS,
    "ApiVersions v99": header_only(18, 99),
    "SaslHandshake": handshake("PLAIN"),
    "SaslHandshake of another mechanism": handshake("GSSAPI", 0),
    "ListGroups": request(ApiKey.LIST_GROUPS, 2),
    "Metadata": METADATA,
    "Fetch": request(ApiKey.FETCH, 8, topics=[("a", [(0, -1, 5, -1, -1, 100)])]),
    "DescribeGroups": request(ApiKey.DESCRIBE_GROUPS, 1, groups=["a"]),
    "FindCoordinator": request(ApiKey.FIND_COORDINATOR, 2, key="g"),
    "CreateTopics": request(ApiKey.CREATE_TOPICS, 2, topics=[("a", 1, 1, [], [])], timeout_ms=1),
    "InitProducerId": request(ApiKey.INIT_PRODUCER_ID, 1, transactional_id="t", transaction_timeout_ms=1000),
    "EndTxn": request(ApiKey.END_TXN, 1, transactional_id="t", producer_id=1, producer_epoch=0, is_commit=True),
    "OffsetCommit": request(ApiKey.OFFSET_COMMIT, 3, group_id="g", topics=[("a", [(0, 1, -1, -1, "")])]),
}


def scripts() -> dict[str, Script]:
    """Every conversation by name; names that begin with `*` are answered in another way on purpose."""
    plain1, plain0 = handshake("PLAIN"), handshake("PLAIN", 0)
    found: dict[str, Script] = {
        "plain v1": [API_VERSIONS, plain1, authenticate(CAROL), METADATA, API_VERSIONS],
        "plain v1 without versions": [plain1, authenticate(CAROL), API_VERSIONS],
        "plain v0": [plain0, token(CAROL), API_VERSIONS],
        "plain in one write": [together(API_VERSIONS, plain1, authenticate(CAROL), API_VERSIONS)],
        "a wrong password in one write": [together(API_VERSIONS, plain1, authenticate(WRONG), API_VERSIONS)],
        "plain v0 in one write": [together(plain0, token(CAROL), API_VERSIONS)],
        "no client id": [request(ApiKey.SASL_HANDSHAKE, 1, None, mechanism="PLAIN"), authenticate(CAROL)],
    }
    tokens: dict[str, str | bytes] = {
        "wrong password": WRONG,
        "unknown user": "\0nobody\0carol-secret",
        "other case": "\0Carol\0carol-secret",
        "the user's own id": "carol\0carol\0carol-secret",
        "another id": "erin\0carol\0carol-secret",
        "no user": "\0\0carol-secret",
        "no password": "\0carol\0",
        "one part": "carol",
        "two parts": "carol\0carol-secret",
        "four parts": "\0carol\0carol-secret\0x",
        "nothing": "",
        "not UTF-8": b"\0carol\0\xff\xfe",
    }
    for name, data in tokens.items():
        found[f"plain v1, {name}"] = [plain1, authenticate(data), API_VERSIONS]
        if data:
            found[f"plain v0, {name}"] = [plain0, token(data), API_VERSIONS]
    for mechanism in ("GSSAPI", "plain", "", "SCRAM-SHA-1"):
        found[f"mechanism {mechanism!r}"] = [handshake(mechanism), plain1]
        found[f"mechanism {mechanism!r}, v0"] = [handshake(mechanism, 0), plain0]
    found |= scram_scripts() | oauthbearer_scripts() | out_of_turn_scripts() | size_scripts()
    return found


def scram_scripts() -> dict[str, Script]:
    found: dict[str, Script] = {}
    own, other, escaped = f"n,a=grace,{FIRST[3:]}", f"n,a=erin,{FIRST[3:]}", f"n,,n=b=3Do=2Cb,r={CLIENT_NONCE}"
    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        begin = handshake(mechanism)
        found[mechanism] = [begin, authenticate(FIRST), scram_final(mechanism), API_VERSIONS]
        found[f"{mechanism} v0"] = [
            *(handshake(mechanism, 0), token(FIRST), scram_final(mechanism, bare=True)),
            API_VERSIONS,
        ]
        found[f"{mechanism}, wrong password"] = [
            *(begin, authenticate(FIRST), scram_final(mechanism, password="wrong")),
            API_VERSIONS,
        ]
        found[f"{mechanism} v0, wrong password"] = [
            *(handshake(mechanism, 0), token(FIRST), scram_final(mechanism, password="wrong", bare=True)),
        ]
    final, name = scram_final, "SCRAM-SHA-256"
    found["own id"] = [SHA_256, authenticate(own), final(name, own), API_VERSIONS]
    found["another id"] = [SHA_256, authenticate(other)]
    found["an escaped name"] = [SHA_256, authenticate(escaped), final(name, escaped), API_VERSIONS]
    for extension in ("x=y", "tokenauth=false", "*m=x"):
        first = f"{FIRST},{extension.removeprefix('*')}"
        mark = "*" if extension.startswith("*") else ""
        found[f"{mark}extension {extension}"] = [SHA_256, authenticate(first), final(name, first), API_VERSIONS]
    found["*an unknown user"] = [SHA_256, authenticate(FIRST.replace("grace", "nobody"))]
    found["*a PLAIN user"] = [SHA_256, authenticate(FIRST.replace("grace", "carol"))]
    found["*a token"] = [SHA_256, authenticate(f"{FIRST},tokenauth=true")]
    for wrong in (
        *("y,,n=grace,r=abc", "p=tls-unique,,n=grace,r=abc", "n=grace,r=abc", "n,,n=,r=abc", "n,,n=grace,r="),
        *("n,,n=grace,r=a b", "n,,r=abc,n=grace", "n,,n=b=o,r=abc", "n,,n=é,r=abc", "", "garbage"),
    ):
        found[f"first message {wrong!r}"] = [SHA_256, authenticate(wrong), API_VERSIONS]
    for wrong in ("", "garbage", FIRST, "c=biws,r=abc", "c=biws,r=abc,p="):
        found[f"final message {wrong!r}"] = [SHA_256, authenticate(FIRST), authenticate(wrong), API_VERSIONS]
    found["*a short proof"] = [SHA_256, authenticate(FIRST), final(name, proof_bytes=31)]
    found["*another nonce"] = [SHA_256, authenticate(FIRST), final(name, nonce="other")]
    found["*another header"] = [SHA_256, authenticate(FIRST), final(name, channel="eSws")]
    return found


def oauthbearer_scripts() -> dict[str, Script]:
    begin = handshake("OAUTHBEARER")

    def unsecured(claims: Json, header: str = '{"alg":"none"}') -> str:
        parts = (header, claims if isinstance(claims, str) else json.dumps(claims))
        return ".".join(base64.urlsafe_b64encode(part.encode()).decode().rstrip("=") for part in parts) + "."

    def first(value: str, authzid: str = "", auth: str = "Bearer") -> str:
        return f"n,{authzid},\x01auth={auth} {value}\x01\x01"

    later, earlier = 4_000_000_000, 1_000_000_000
    right = unsecured({"sub": "alice", "iat": earlier, "exp": later})
    found: dict[str, Script] = {
        "a token": [begin, authenticate(first(right)), API_VERSIONS],
        "a token, v0": [handshake("OAUTHBEARER", 0), token(first(right)), API_VERSIONS],
        "a token with its own id": [begin, authenticate(first(right, "a=alice")), API_VERSIONS],
        "a token of lower case": [begin, authenticate(first(right, auth="bearer")), API_VERSIONS],
    }
    for name, text in {
        "another id": first(right, "a=bob"),
        "another scheme": first(right, auth="Basic"),
        "no auth": "n,,\x01host=h\x01\x01",
        "nothing": "",
        "one byte": "\x01",
        "an unfinished message": first(right)[:-1],
    }.items():
        found[f"oauthbearer, {name}"] = [begin, authenticate(text), API_VERSIONS]
    for name, value in {
        "expired": unsecured({"sub": "alice", "iat": 1, "exp": earlier}),
        "without an expiration": unsecured({"sub": "alice"}),
        "an expiration of text": unsecured({"sub": "alice", "exp": "x"}),
        "issued in the future": unsecured({"sub": "alice", "iat": later - 1, "exp": later}),
        "issued after its expiration": unsecured({"sub": "alice", "iat": 5, "exp": 4}),
        "without a subject": unsecured({"exp": later}),
        "a subject of numbers": unsecured({"sub": 7, "exp": later}),
        "an empty subject": unsecured({"sub": "", "exp": later}),
        "another algorithm": unsecured({"sub": "alice", "exp": later}, '{"alg":"HS256"}'),
        "no algorithm": unsecured({"sub": "alice", "exp": later}, "{}"),
        "a signature": right + "eA",
        "two parts": right.rstrip("."),
        "not JSON": unsecured("x"),
        "an array": unsecured("[]"),
    }.items():
        found[f"a token: {name}"] = [begin, authenticate(first(value)), authenticate("\x01"), API_VERSIONS]
    return found


def out_of_turn_scripts() -> dict[str, Script]:
    plain1, plain0 = handshake("PLAIN"), handshake("PLAIN", 0)
    found: dict[str, Script] = {}
    for name, step in {
        "Metadata": METADATA,
        "SaslAuthenticate": authenticate(CAROL),
        "a token": token(CAROL),
        "HTTP": sent(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
        "a TLS hello": sent(bytes.fromhex("160301020001000001fc0303") + bytes(500)),
        "SaslHandshake v2": header_only(17, 2, b"\0\5PLAIN"),
        "SaslHandshake v99": header_only(17, 99, b"\0\5PLAIN"),
        "SaslHandshake v-1": header_only(17, -1, b"\0\5PLAIN"),
        "an unknown API": header_only(999, 0),
        "a short header": sent(framed(b"\0\x11\0")),
    }.items():
        found[f"first {name}"] = [step]
        found[f"{name} after ApiVersions"] = [API_VERSIONS, step]
    found["ApiVersions twice"] = [API_VERSIONS, API_VERSIONS]
    found["ApiVersions of unknown versions"] = [
        *(header_only(18, 99), header_only(18, 99), API_VERSIONS, plain1),
        authenticate(CAROL),
    ]
    for name, step in OTHER_APIS.items():
        found[f"{name} instead of SaslAuthenticate"] = [plain1, step]
    found["ListGroups between SCRAM's steps"] = [SHA_256, authenticate(FIRST), OTHER_APIS["ListGroups"]]
    found["a token instead of SaslAuthenticate"] = [plain1, token(CAROL)]
    found["SaslAuthenticate v9"] = [plain1, header_only(36, 9, framed(CAROL.encode()))]
    found["a request after handshake v0"] = [plain0, METADATA]
    for name, step in {
        "SaslHandshake": plain1,
        "SaslHandshake v0": plain0,
        "SaslHandshake of another mechanism": handshake("GSSAPI"),
        "SaslAuthenticate": authenticate("\0erin\0erin-secret"),
    }.items():
        found[f"{name} after success"] = [plain1, authenticate(CAROL), step, API_VERSIONS]
    return found


def size_scripts() -> dict[str, Script]:
    plain1 = handshake("PLAIN")
    return {
        "the greatest token": [plain1, authenticate(bytes(524_288 - 4 - 14))],
        "a token too large": [plain1, sent(struct.pack(">i", 524_289))],
        "a first request too large": [sent(struct.pack(">i", 524_289))],
        "an empty request": [sent(bytes(4))],
        "a negative size": [sent(struct.pack(">i", -1))],
        "after success a large request": [
            *(plain1, authenticate(CAROL)),
            header_only(18, 0, bytes(600_000)),
        ],
    }


# -- conversations --------------------------------------------------------------------------------------------


def hold(script: Script, port: int, *, end_seconds: float = END_SECONDS) -> list[Json]:
    """Hold one conversation; each step's outcome: the answers in it, and `closed` if the broker closed then.

    A connection that the broker has not closed `end_seconds` after the last answer is `open`.
    """
    with RawConnection("127.0.0.1", port, answer_seconds=ANSWER_SECONDS) as connection:
        tokens: list[bytes] = []
        outcomes: list[Json] = []
        for step in script:
            data = step(tokens)
            frames = list(frames_of(data))
            outcome: list[Json] = []
            connection.send(data)
            for frame in frames:
                answer = connection.receive_frame()
                if answer is None:
                    outcome.append(CLOSED)
                    break
                outcome.append(plain(frame, answer, tokens, outcomes))
            outcomes.append(outcome)
            if CLOSED in outcome:
                return outcomes
        # A connection that is open answers nothing more.
        has_ended = connection.has_answer(within_seconds=end_seconds) and connection.receive_frame() is None
        return [*outcomes, CLOSED if has_ended else OPEN]


def frames_of(data: bytes) -> Iterator[bytes]:
    """The frames of one write; bytes that form no frame count as one."""
    while data:
        size = int.from_bytes(data[:4], "big", signed=True)
        if not 0 < size <= len(data) - 4:
            yield b""
            return
        yield data[4 : 4 + size]
        data = data[4 + size :]


def plain(frame: bytes, answer: bytes, tokens: list[bytes], before: list[Json]) -> Json:
    """An answer as JSON, without what is random; a server's token is also kept in `tokens`."""
    key, version = struct.unpack_from(">hh", frame) if len(frame) >= 8 else (-1, 0)
    is_token = handshake_version(before) == 0 and not is_logged_in(before)
    if is_token or key not in API_TABLE or len(answer) < 4:
        tokens.append(answer)
        return {"token": shown(answer)}
    if key == ApiKey.API_VERSIONS:
        error = int.from_bytes(answer[4:6], "big", signed=True)
        return {"api": "ApiVersions", "error_code": error, "has_keys": int.from_bytes(answer[6:10], "big") > 0}
    body = decode_response(key, version, answer)[1]
    row = as_json(body)
    if key == ApiKey.SASL_HANDSHAKE:
        row["mechanisms"].sort()
    if key == ApiKey.SASL_AUTHENTICATE:
        tokens.append(bytes(body.auth_bytes))
        row["auth_bytes"] = shown(bytes(body.auth_bytes))
    if key == ApiKey.METADATA:
        row = {"error_codes": [topic["error_code"] for topic in row["topics"]], "has_brokers": bool(row["brokers"])}
    elif key not in (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE):
        row = {"body": answer[4:].hex()}
    return {"api": API_TABLE[key].name, "version": version, **row}


def handshake_version(before: list[Json]) -> int | None:
    found = [each for outcome in before for each in outcome if isinstance(each, dict)]
    versions = [each["version"] for each in found if each.get("api") == "SaslHandshake" and not each["error_code"]]
    return versions[0] if versions else None


def is_logged_in(before: list[Json]) -> bool:
    """After handshake v0: whether the last token of the server ends the exchange."""
    last = [each["token"] for outcome in before for each in outcome if isinstance(each, dict) and "token" in each]
    return bool(last) and (last[-1] == "" or last[-1].startswith("v="))


def as_json(value: Any) -> Any:
    if hasattr(value, "_asdict"):
        return {name: as_json(each) for name, each in value._asdict().items()}
    if isinstance(value, list | tuple):
        return [as_json(each) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


def shown(data: bytes) -> str:
    """A server's token without what is random: the nonce, the salt of Kafka's tools, the signature over them."""
    text = data.decode("latin-1")
    text = re.sub(r"^r=[^,]+,s=[^,]+", f"r={CLIENT_NONCE}...,s=...", text) if text.startswith("r=") else text
    return "v=..." if text.startswith("v=") else text


def hold_all(port: int) -> dict[str, list[Json]]:
    return {name: hold(script, port) for name, script in scripts().items()}


def recorded() -> dict[str, list[Json]]:
    found: dict[str, list[Json]] = read(RECORDED)
    return found


# -- Apache Kafka ---------------------------------------------------------------------------------------------


@contextmanager
def apache_kafka(directory: Path, settings: Mapping[str, str] = SETTINGS) -> Iterator[tuple[ApacheKafka, int]]:
    """Apache Kafka 2.0.1 with the users; yields it with the port of SASL_PLAINTEXT. Raises KafkaUnavailable."""
    jars = kafka_jars()
    port = free_port()
    kafka = ApacheKafka(jars, directory)
    kafka._settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{kafka.port},SASL_PLAINTEXT://127.0.0.1:{port}",
        **settings,
    }
    try:
        kafka.start()
        for user, password in SCRAM_USERS.items():
            add_scram_user(kafka, jars, user, password)
        yield kafka, port
    finally:
        kafka.kill()


def add_scram_user(kafka: ApacheKafka, jars: Path, user: str, password: str) -> None:
    import subprocess

    config = ",".join(f"{mechanism}=[iterations=4096,password={password}]" for mechanism in BY_NAME)
    command = ["java", *jvm_options(QUICK_JVM), "-cp", class_path(jars), "kafka.admin.ConfigCommand"]
    command += ["--zookeeper", f"127.0.0.1:{kafka.zookeeper_port}", "--alter", "--add-config", config]
    done = subprocess.run(
        [*command, "--entity-type", "users", "--entity-name", user], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def compared(seeds: range) -> Comparison:
    """Kafka's answers, and what of them is not as it was recorded."""
    with tempfile.TemporaryDirectory() as directory, apache_kafka(Path(directory)) as (_, port):
        answers = hold_all(port)
    before = recorded()
    found = [
        f"{name}: {before.get(name)}, now {answer}" for name, answer in answers.items() if answer != before.get(name)
    ]
    return Comparison(answers, len(answers), found)
