"""Quotas of users and client ids as a cluster answers, and each refusal in one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from minibroker.admin.outcomes import DENIED
from minibroker.client.errors import DENIALS, error_name
from minibroker.protocol.guesses import next_step

RATES = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")


class Entity(NamedTuple):
    """A user, a client id, or both: names by type; None is the default."""

    names: Mapping[str, str | None]

    def __str__(self) -> str:
        return ", ".join(
            f"the default {kind}" if name is None else f"{kind} {name}" for kind, name in self.names.items()
        )


class EntityQuotas(NamedTuple):
    entity: Entity
    quotas: Mapping[str, float]


def refusal(answer: Any) -> str:
    """A broker's refusal in one line, with the next step."""
    reason = (answer.error_message or error_name(answer.error_code)).rstrip(".")
    is_denied = answer.error_code in DENIALS
    step = next_step(reason.rpartition(" ")[2], RATES, "`minibroker quotas set --help` has the quotas and their units")
    return f"{reason}; {DENIED if is_denied else step}"
