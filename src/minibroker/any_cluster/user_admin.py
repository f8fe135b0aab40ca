"""The requests of the `users` commands, to a broker or to the data directory of one that is not running.

A password is hashed here, with a salt of its own for each mechanism, as KIP-554 has it: no broker gets it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from minibroker.admin.outcomes import Outcome, in_order
from minibroker.admin.users import User, one_of_each_user, outcome_of, upsertion_of
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.client.client import Client
from minibroker.client.errors import check, error_name
from minibroker.errors import CommandFailed
from minibroker.protocol.api import ApiKey
from minibroker.protocol.guesses import next_step
from minibroker.protocol.scram import BY_NAME, BY_NUMBER, Deletion, Upsertion


class Credentials(ABC):
    """The users of a cluster, by the credentials that are stored somewhere."""

    @abstractmethod
    def described(self) -> Mapping[str, Iterable[tuple[int, int]]]:
        """The mechanisms and iterations of each user."""

    @abstractmethod
    def altered(self, changes: Sequence[Upsertion | Deletion]) -> Mapping[str, str | None]:
        """The error of each user, None without one."""

    def users(self) -> list[User]:
        """All credentials by user and mechanism."""
        return sorted(
            User(user, BY_NUMBER[number].name if number in BY_NUMBER else f"mechanism {number}", iterations)
            for user, infos in self.described().items()
            for number, iterations in infos
        )

    def add(self, user: str, password: str, *, mechanisms: Sequence[str], iterations: int) -> list[Outcome]:
        """Add the user, or change its password for these mechanisms."""
        changes = [upsertion_of(user, password, BY_NAME[each], iterations) for each in mechanisms]
        return [outcome_of(*each, "added") for each in self.altered(changes).items()]

    def remove(self, users: Sequence[str], *, mechanisms: Sequence[str], may_be_absent: bool) -> list[Outcome]:
        """Remove the credentials that users have for these mechanisms."""
        numbers = [BY_NAME[mechanism].number for mechanism in mechanisms]
        described = self.described()
        outcomes, deletions = [], []
        for user in dict.fromkeys(users):
            found = [number for number, _ in described.get(user, ()) if number in numbers]
            deletions += [Deletion(user, number) for number in found]
            if not found:
                step = next_step(user, described, "`minibroker users list` shows all")
                missing = f"user {user} does not exist; {step}"
                outcomes.append(Outcome(user, "absent", None if may_be_absent else missing))
        removed = self.altered(deletions) if deletions else {}
        return outcomes + in_order(users, (outcome_of(*each, "removed") for each in removed.items()))


class BrokerCredentials(Credentials):
    """The credentials of a cluster, through a connected client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def described(self) -> Mapping[str, Iterable[tuple[int, int]]]:
        answer = self._client.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=None)
        check(answer.error_code, answer.error_message)
        return {
            row.user: [(each.mechanism, each.iterations) for each in row.credential_infos] for row in answer.results
        }

    def altered(self, changes: Sequence[Upsertion | Deletion]) -> Mapping[str, str | None]:
        errors: dict[str, str | None] = {}
        for round_of_changes in one_of_each_user(changes):
            allowed = [change for change in round_of_changes if errors.get(change.user) is None]
            if allowed:
                answer = self._client.at_controller(
                    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                    deletions=[each for each in allowed if isinstance(each, Deletion)],
                    upsertions=[each for each in allowed if isinstance(each, Upsertion)],
                )
                errors |= {
                    row.user: row.error_message or error_name(row.error_code) if row.error_code else None
                    for row in answer.results
                }
        return errors


class DirectoryCredentials(Credentials):
    """The credentials in the data directory of a broker that is not running. The broker's own code reads and writes
    them, in a process of its own."""

    def __init__(self, data_dir: Path) -> None:
        self._data_dir = data_dir

    def described(self) -> Mapping[str, Iterable[tuple[int, int]]]:
        """No users for a directory that does not exist yet: a new user makes it. Raises CommandFailed."""
        if not self._data_dir.exists():
            return {}
        found: dict[str, list[tuple[int, int]]] = self._asked({})["users"]
        return found

    def altered(self, changes: Sequence[Upsertion | Deletion]) -> Mapping[str, str | None]:
        rows = [[each.hex() if isinstance(each, bytes) else each for each in change] for change in changes]
        errors: dict[str, str | None] = self._asked({"changes": rows})["errors"]
        return errors

    def _asked(self, question: dict[str, Any]) -> dict[str, Any]:
        """Raises CommandFailed."""
        # -P: a module in the current directory, such as `json.py`, must not shadow ours.
        done = subprocess.run(
            [sys.executable, "-P", "-m", "minibroker.broker.wings.security.sasl.offline", str(self._data_dir)],
            input=json.dumps(question),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no answer"])[-1]
            raise CommandFailed(f"{reason}; to change users of a running broker, leave --data-dir out")
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer


@contextmanager
def credentials(cluster: Cluster, data_dir: Path | None) -> Iterator[Credentials]:
    """Connect to the first broker that answers, or use a data directory. Raises CommandFailed."""
    if data_dir is not None:
        yield DirectoryCredentials(data_dir)
        return
    with connected(cluster) as client:
        yield BrokerCredentials(client)
