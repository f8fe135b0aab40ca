"""Explains in a line why a topic takes no more records, and how many it has taken."""

from __future__ import annotations

from minibroker.admin.outcomes import DENIED
from minibroker.client.errors import error_name
from minibroker.protocol.errors import ErrorCode, KafkaError
from minibroker.protocol.text import counted

NOT_IDEMPOTENT = (
    "an idempotent producer needs IdempotentWrite on the cluster; set -X enable.idempotence=false, or ask for the right"
)
CORRUPT_MESSAGE, INVALID_RECORD = 2, 87  # a record without a key, to Apache Kafka 2.0 and to later releases
TOO_LARGE = "see max.message.bytes in `minibroker configs describe --help`"
KEYLESS = (CORRUPT_MESSAGE, INVALID_RECORD)
TOO_FEW_REPLICAS = "fewer replicas are in sync than min.insync.replicas; see `minibroker health`"
ADVICE = {  # by error code, where the broker logs nothing
    ErrorCode.MESSAGE_TOO_LARGE: TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: TOO_LARGE,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: NOT_IDEMPOTENT,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: DENIED,
    17: "choose a topic of your own: only the broker writes to it",
    19: TOO_FEW_REPLICAS,
    20: TOO_FEW_REPLICAS,
    32: "its time is too far from now; see message.timestamp.difference.max.ms in `minibroker configs describe`",
    43: "the topic's message.format.version has no headers; leave them out",
    INVALID_RECORD: "the topic does not take such a record; check its key, its time and its headers",
    76: "the broker does not know this --compression; choose another",
}
SOME_MAY_BE_WRITTEN = "some of the rest may be written"


def unanswered(topic: str, acked: int) -> str:
    return (
        f"topic {topic} acknowledges no more records; check its brokers with `minibroker health`, and their logs; "
        f"{counted(acked, 'record')} acknowledged, {SOME_MAY_BE_WRITTEN}"
    )


def acknowledged_before(acked: int, number: int | None = None) -> str:
    """How many records were acknowledged, where the one with that number, from 1, was not."""
    before = acked if number is None else min(acked, number - 1)
    behind = f", {acked - before} behind it" if acked > before else ""
    return f"{counted(before, 'record')} before it acknowledged{behind}"


def refusal(
    topic: str,
    error: BaseException,
    acked: int,
    number: int | None = None,
    *,
    what: str = "record",
    is_compacted: bool = False,
) -> str:
    """Why the topic takes no more, with the next step; `number` is that of the refused record, from 1, if known."""
    code = error.code if isinstance(error, KafkaError) else None
    if code == ErrorCode.REQUEST_TIMED_OUT:
        return unanswered(topic, acked)
    reason = str(error) if code is None else error_name(code)
    if is_compacted and code in KEYLESS:
        reason, advice = f"{topic} is compacted", "a record needs a key, see --key-separator and --key"
    else:
        advice = ADVICE.get(code or 0, "see the broker's log")
    which = f"a {what}" if number is None else f"{what} {number}"
    return f"topic {topic} refuses {which}: {reason}; {advice}; {acknowledged_before(acked, number)}"


def interrupted(acked: int, *, has_answers: bool) -> str:
    return f"interrupted; {counted(acked, 'record')} acknowledged" + ("" if has_answers else f", {SOME_MAY_BE_WRITTEN}")
