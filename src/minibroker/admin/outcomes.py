"""The outcome of each change that a command or a page makes, and failures of a client: a line with the next step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from minibroker.client.address import Address
from minibroker.client.errors import DENIALS, NOT_THERE_YET, NoAnswer, TooSlow, Unsupported, error_name
from minibroker.protocol.errors import ErrorCode, KafkaError

DENIED = "the cluster's ACLs deny this client; ask its administrator"
REQUEST_TIMEOUT = "request.timeout.ms"
CHOOSE_A_GROUP = "choose another group; `minibroker groups list` shows the type of each"


class Outcome(NamedTuple):
    """The outcome for one name: created, exists, deleted, absent, or failed with an error in one line."""

    name: str
    outcome: str
    error: str | None = None


def in_order(names: Sequence[str], outcomes: Iterable[Outcome]) -> list[Outcome]:
    """The outcomes in the order of their names there: Kafka without ZooKeeper answers in another."""
    return sorted(outcomes, key=lambda outcome: names.index(outcome.name))


def advice_for(error: Exception) -> str:
    slow = isinstance(error, TooSlow)
    return f"-X {REQUEST_TIMEOUT}=30000 waits for it" if slow else "`minibroker health` checks the cluster"


def explained(error: Exception, address: Address) -> str:
    """A client's exception in one line, with the next step."""
    message = " ".join(" ".join(map(str, error.args)).split()).rstrip(".")
    if isinstance(error, Unsupported):
        return (
            f"the broker at {address} does not support this request ({error.api}); use Apache Kafka {error.release} "
            "or later"
        )
    if isinstance(error, TooSlow):
        return f"{message}; {advice_for(error)}"
    if isinstance(error, NoAnswer):
        return f"{message}; check that it runs, and that this machine can reach its advertised.listeners"
    if isinstance(error, KafkaError):
        return refusal_of(error, address)
    return (
        f"cannot connect to a broker of the cluster at {address} ({message}); check that it runs, and that this "
        "machine can reach its advertised.listeners"
    )


def refusal_of(error: KafkaError, address: Address) -> str:
    name = error_name(error.code)
    if error.code == ErrorCode.REQUEST_TIMED_OUT:
        reason = "" if error.message in (None, name) else f" ({error.message})"
        return f"the cluster at {address} did not answer in time{reason}; see the broker's log"
    if error.code == ErrorCode.LEADER_NOT_AVAILABLE:
        return "the partition has no leader now; `minibroker health` names all that have none"
    if error.code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
        return f"the members of the group use another protocol, as Kafka Connect's do, or assignor; {CHOOSE_A_GROUP}"
    if error.code in NOT_THERE_YET:
        return f"the coordinator is not there yet ({name}); try again in a few seconds, and see `minibroker health`"
    if error.code == ErrorCode.NOT_CONTROLLER:
        return f"the cluster at {address} has no controller now; try again in a few seconds"
    return f"the broker at {address} refused the request: {name}; {DENIED if error.code in DENIALS else 'see its log'}"
