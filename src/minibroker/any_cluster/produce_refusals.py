"""Explains in a line why a topic takes no more records, and how many it has taken."""

from __future__ import annotations

from minibroker.protocol.text import counted

NOT_IDEMPOTENT = (
    "an idempotent producer needs IdempotentWrite on the cluster; set -X enable.idempotence=false, or ask for the right"
)
SOME_MAY_BE_WRITTEN = "some of the rest may be written"


def unanswered(topic: str, acked: int) -> str:
    return (
        f"topic {topic} acknowledges no more records; check its brokers with `minibroker health`, and their logs; "
        f"{counted(acked, 'record')} acknowledged, {SOME_MAY_BE_WRITTEN}"
    )


def acknowledged_before(acked: int) -> str:
    return f"{counted(acked, 'record')} before it acknowledged"


def refusal(topic: str, error: BaseException, acked: int) -> str:
    from minibroker.any_cluster.cluster import DENIED, error_name, errors

    if isinstance(error, errors.KafkaTimeoutError):
        return unanswered(topic, acked)
    code = getattr(error, "errno", None)
    if errors.ClusterAuthorizationFailedError.__name__ in str(error):  # kafka-python has the error in a text
        error, code = errors.ClusterAuthorizationFailedError(), errors.ClusterAuthorizationFailedError.errno
    reason = error_name(code) if isinstance(error, errors.BrokerResponseError) and code else str(error)
    advice = {
        errors.MessageSizeTooLargeError.errno: "see max.message.bytes in `minibroker configs describe --help`",
        errors.RecordListTooLargeError.errno: "see max.message.bytes in `minibroker configs describe --help`",
        errors.ClusterAuthorizationFailedError.errno: NOT_IDEMPOTENT,
        errors.TopicAuthorizationFailedError.errno: DENIED,
    }.get(code, "see the broker's log")
    return f"topic {topic} refuses a record: {reason}; {advice}; {acknowledged_before(acked)}"


def interrupted(acked: int, *, has_answers: bool) -> str:
    return f"interrupted; {counted(acked, 'record')} acknowledged" + ("" if has_answers else f", {SOME_MAY_BE_WRITTEN}")
