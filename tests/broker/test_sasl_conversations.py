"""Every conversation of a client that authenticates, compared with the recorded answers of Apache Kafka 2.0.1."""

from __future__ import annotations

from functools import partial
from typing import Any

import trio

from minibroker.broker.config.profiles import profile_of
from tests.broker.conftest import MakeBroker
from tests.broker.sasl_broker import LISTENERS, add_scram_user, serve
from tests.conformance.sasl import ANSWER_SECONDS, CLOSED, END_SECONDS, SCRAM_USERS, SETTINGS, hold, recorded, scripts

THREADS = 60


def answered(message: str, **more: Any) -> list[Any]:
    """The outcome of a SaslAuthenticate that fails; one that does not fail with `more`."""
    row = {"api": "SaslAuthenticate", "version": 0, "error_code": 58, "error_message": message, "auth_bytes": ""}
    return [{**row, "session_lifetime_ms": 0, **more}]


INVALID = "Authentication failed due to invalid credentials with SASL mechanism "
FAILED = answered(INVALID + "SCRAM-SHA-256")
SALTED = answered("", error_code=0, error_message=None, auth_bytes="r=rOprNGfwEbeRWgbNEkqO...,s=...,i=4096")
INVALID_TOKEN = '{"status":"invalid_token"}'

# Where this broker answers otherwise on purpose (docs/differences.md), the last outcomes.
ON_PURPOSE: dict[str, list[Any]] = {
    "*extension *m=x": [FAILED, [CLOSED]],
    "*an unknown user": [SALTED, "open"],
    "*a PLAIN user": [SALTED, "open"],
    "*a token": [SALTED, "open"],
    "*a short proof": [SALTED, FAILED, CLOSED],
    "*another nonce": [SALTED, FAILED, CLOSED],
    "*another header": [SALTED, FAILED, CLOSED],
    "final message 'c=biws,r=abc,p='": [SALTED, FAILED, [CLOSED]],
    "oauthbearer, another scheme": [answered(INVALID + "OAUTHBEARER"), [CLOSED]],
    "a token: no algorithm": [
        answered("", error_code=0, error_message=None, auth_bytes=INVALID_TOKEN),
        *(answered(INVALID_TOKEN), [CLOSED]),
    ],
}


async def test_answers_are_those_of_apache_kafka(make_broker: MakeBroker, nursery: trio.Nursery) -> None:
    broker = make_broker(
        listeners=LISTENERS, connection_failed_authentication_delay_ms=1, profile=profile_of("2.0"), **SETTINGS
    )
    for user, password in SCRAM_USERS.items():
        add_scram_user(broker, user, password)
    port = (await serve(broker, nursery))["SASL_PLAINTEXT"]
    answers: dict[str, Any] = {}
    limit = trio.CapacityLimiter(THREADS)

    async def converse(name: str) -> None:
        # One that is to be closed has time.
        is_to_be_closed = ON_PURPOSE.get(name, kafka[name])[-1] == CLOSED
        end_seconds = ANSWER_SECONDS if is_to_be_closed else END_SECONDS
        holding = partial(hold, scripts()[name], port, end_seconds=end_seconds)
        answers[name] = await trio.to_thread.run_sync(holding, limiter=limit)

    kafka = recorded()
    assert kafka.keys() == scripts().keys()

    async with trio.open_nursery() as clients:
        for name in scripts():
            clients.start_soon(converse, name)

    differing = {name: (kafka[name], answers[name]) for name in kafka if answers[name] != kafka[name]}
    shown = "\n".join(f"{name}\n  kafka {theirs}\n  ours  {ours}" for name, (theirs, ours) in differing.items())
    assert differing.keys() == ON_PURPOSE.keys(), shown
    assert {name: answers[name][-len(outcomes) :] for name, outcomes in ON_PURPOSE.items()} == ON_PURPOSE
