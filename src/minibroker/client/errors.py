"""Errors of a client. A broker's refusal is a KafkaError with its code, that of a login a LoginError."""

from __future__ import annotations

from minibroker.client.address import Address
from minibroker.protocol.errors import ErrorCode, KafkaError, known_error

DENIALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
NOT_THERE_YET = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
    }
)
ELSEWHERE = frozenset({ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_LEADER_FOR_PARTITION})  # nothing was written


class ClientError(Exception):
    """A question has no answer."""


class Unreachable(ClientError):
    """No broker answers at an address; the cause is what happened there."""

    def __init__(self, address: Address, cause: Exception) -> None:
        super().__init__(f"no answer from {address} ({cause})")
        self.address = address
        self.__cause__ = cause


class NoAnswer(ClientError):
    """A broker of the cluster does not answer; a silent one has accepted a connection.

    Unless it `may_be_done`, the request was not sent.
    """

    def __init__(self, broker: str, reason: str = "", *, is_silent: bool, may_be_done: bool) -> None:
        super().__init__(f"{broker} does not answer" + (f" ({reason})" if reason else ""))
        self.is_silent = is_silent
        self.may_be_done = may_be_done


class TooSlow(NoAnswer):
    """The time of a question is over, and its broker has not answered, though it may live."""

    def __init__(self, broker: int | None) -> None:
        named = "the broker" if broker is None else f"broker {broker}"
        super().__init__(named, is_silent=True, may_be_done=True)
        self.args = (f"{named} has not answered in time",)


class Unsupported(ClientError):
    """The broker lacks an API, or the versions of it that are needed; `release` brought them."""

    def __init__(self, api: str, release: str) -> None:
        super().__init__(f"the broker does not support {api}, which came with Apache Kafka {release}")
        self.api = api
        self.release = release


def error_name(code: int) -> str:
    """UNKNOWN_TOPIC_OR_PARTITION, or `error 123` for a code that is not known here."""
    return ErrorCode(code).name if code in ErrorCode.__members__.values() else f"error {code}"


def check(code: int, message: str | None = None) -> None:
    """Raises KafkaError unless the code is that of success."""
    if code != ErrorCode.NONE:
        raise KafkaError(known_error(code), message or error_name(code))


class CannotReadOn(Exception):
    """A client library fails at a batch, perhaps without its partition; its own error is the cause."""
