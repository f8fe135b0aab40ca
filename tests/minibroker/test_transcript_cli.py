"""`minibroker transcript`: what is chosen, how it is told to programs, and what is said of files that are none."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from minibroker.cli.app import main
from minibroker.protocol.api import ApiKey
from minibroker.protocol.messages.groups import HeartbeatRequest, HeartbeatResponse
from minibroker.protocol.messages.produce import ProduceRequest
from minibroker.transcript.file import Kind
from tests.minibroker.conversations import Conversation, Screen, records

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3)


def test_brief_is_a_line_for_each_exchange(conversation: Conversation, screen: Screen) -> None:
    request = ProduceRequest(acks=1, topics=[(f"topic-{index}", [(0, records(1))]) for index in range(5)])
    conversation.ask(ApiKey.PRODUCE, 7, request)
    conversation.tell(Kind.NO_RESPONSE)
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse(error_code=27))

    lines = screen.exchanges(conversation, "--brief").splitlines()

    assert [" ".join(line.split()) for line in lines] == [
        "0.002 s #1 tower Produce v7 582 -> - bytes 1.0 ms topic-0 topic-1 topic-2 ... 2 more 450 bytes of records "
        "takes no response",
        "0.004 s #1 tower Heartbeat v3 26 -> 10 bytes 1.0 ms g REBALANCE_IN_PROGRESS",
    ]


@pytest.mark.parametrize(
    ("arguments", "correlation_ids"),
    [
        (["--api", "heartbeat"], [2, 3, 4]),
        (["--api", "PRODUCE", "--api", "12"], [1, 2, 3, 4]),
        (["--client-id", "other"], [3]),
        (["--connection", "2"], [3]),
        (["--topic", "flights"], [1]),
        (["--errors"], [2, 4]),
        (["-n", "2"], [1, 2]),
    ],
)
def test_only_exchanges_that_match_are_shown(
    conversation: Conversation, screen: Screen, arguments: list[str], correlation_ids: list[int]
) -> None:
    conversation.ask(ApiKey.PRODUCE, 7, ProduceRequest(acks=0, topics=[("flights", [(0, records(1))])]))
    conversation.tell(Kind.NO_RESPONSE)
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse(error_code=27))
    conversation.tell(Kind.OPENED, "127.0.0.1:50001", connection=2)
    beat = conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT, connection=2, client_id="other")
    conversation.answer(beat, HeartbeatResponse(), connection=2)
    conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT)
    conversation.tell(Kind.REFUSED, "a reason")

    rows = screen.rows(conversation, *arguments)

    assert [row["correlation_id"] for row in rows if "api" in row] == correlation_ids


def names_in(value: Any) -> Iterator[str]:
    """The names of all fields in a JSON value."""
    if isinstance(value, dict):
        yield from value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from names_in(each)


def test_json_is_an_object_for_each_exchange_and_event(conversation: Conversation, screen: Screen) -> None:
    conversation.ask(ApiKey.PRODUCE, 7, ProduceRequest(acks=0, topics=[("flights", [(0, records(4))])]))
    conversation.tell(Kind.NO_RESPONSE)
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse(error_code=27))

    started, opened, produce, beat = screen.rows(conversation)

    assert {name for row in (started, opened, produce, beat) for name in names_in(row) if name != name.lower()} == set()
    assert (started["event"], opened["event"], opened["address"]) == ("started", "opened", "127.0.0.1:50000")
    assert produce["outcome"] == "no response" and produce["response"] is None
    (batch,) = produce["request"]["topics"][0]["partitions"][0]["records"]["batches"]
    assert (batch["count"], batch["is_valid"], len(batch["records"]), batch["records_left_out"]) == (4, True, 3, 1)
    assert batch["records"][0]["value"] == "value 0"
    assert beat["request"] == {"group_id": "g", "generation_id": 3, "member_id": "", "group_instance_id": None}
    assert beat["response"] == {"throttle_time_ms": 0, "error_code": 27, "error_name": "REBALANCE_IN_PROGRESS"}
    assert beat["latency_ms"] == 1.0


@pytest.mark.parametrize(
    ("tail", "status", "said"),
    [
        pytest.param(b"\0\0\0\x20torn", 0, "ends in a torn entry of 8 bytes", id="torn, which is no mistake"),
        pytest.param(b"\xff" * 40, 1, "is damaged at ", id="damage"),
    ],
)
def test_damage_is_an_error_behind_the_readable_exchanges(
    conversation: Conversation, screen: Screen, tail: bytes, status: int, said: str
) -> None:
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse())
    with conversation.path.open("ab") as file:
        file.write(tail)

    assert "generation_id: 3" in screen.text(conversation, status=status)
    assert said in screen.err and screen.err.count("\n") == 1


def test_an_unknown_api_is_a_usage_error(conversation: Conversation, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["transcript", str(conversation.path), "--api", "fech"]) == 2
    assert "'fech' is not a known API" in capsys.readouterr().err
