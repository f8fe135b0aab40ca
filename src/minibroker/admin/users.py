"""Users that log in by SCRAM, and changes of their passwords."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from minibroker.admin.outcomes import Outcome
from minibroker.errors import BadValue
from minibroker.protocol.scram import BY_NAME, Deletion, ScramMechanism, Upsertion, new_salt, salted_password


class User(NamedTuple):
    """A user's credential for one mechanism."""

    user: str
    mechanism: str
    iterations: int


def upsertion_of(user: str, password: str, mechanism: ScramMechanism, iterations: int) -> Upsertion:
    """Hash the password with a salt of its own."""
    salt = new_salt()
    return Upsertion(user, mechanism.number, iterations, salt, salted_password(mechanism, password, salt, iterations))


def outcome_of(user: str, error: str | None, done: str) -> Outcome:
    return Outcome(user, done if error is None else "failed", None if error is None else f"user {user}: {error}")


def one_of_each_user(changes: Sequence[Upsertion | Deletion]) -> list[list[Upsertion | Deletion]]:
    """Split changes into requests: Apache Kafka without ZooKeeper refuses two changes of one user in a request."""
    rounds: list[list[Upsertion | Deletion]] = []
    for change in changes:
        for each in rounds:
            if all(other.user != change.user for other in each):
                each.append(change)
                break
        else:
            rounds.append([change])
    return rounds


def chosen_mechanisms(names: list[str] | None) -> list[str]:
    """Raises BadValue."""
    for name in names or ():
        if name not in BY_NAME:
            raise BadValue(f"mechanism {name} is not {' or '.join(BY_NAME)}")
    return list(dict.fromkeys(names or BY_NAME))
