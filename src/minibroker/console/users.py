"""The users that log in by SCRAM: a list, a password to set, a user to remove."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute

from minibroker.admin.users import User, chosen_mechanisms
from minibroker.any_cluster.user_admin import BrokerCredentials
from minibroker.console.answers import NAME_MAX, Refused, change, get, in_path, outcome_of
from minibroker.console.console import Console
from minibroker.console.kafka_clients import needing
from minibroker.console.pages import page_of, wanted_page
from minibroker.console.topics import names_in, number_in, text_of
from minibroker.protocol.scram import DEFAULT_ITERATIONS, MAX_ITERATIONS, MIN_ITERATIONS

NEEDS = "the cluster does not list its users, which takes Kafka 2.7 or later"


def routes(console: Console) -> list[BaseRoute]:
    async def listed(request: Request) -> Any:
        """`mechanisms` has the iterations of each that the user can log in by."""
        wanted = wanted_page(request, default="user", columns=("user",))
        users = [
            (user, {each.mechanism: each.iterations for each in credentials})
            for user, credentials in groupby(await console.kafka.ask(users_of), key=lambda each: each.user)
        ]
        return page_of(
            users,
            wanted,
            text=lambda row: row[0],
            key=lambda row: row[0],
            shown=lambda row: {"user": row[0], "mechanisms": row[1]},
        )

    async def add(request: Request, body: dict[str, Any]) -> Any:
        """A new user, or a new password; for both mechanisms unless one is named."""
        user, password = text_of(body, "user", most=NAME_MAX), text_of(body, "password")
        mechanisms = chosen_mechanisms(names_in(body, "mechanisms"))
        iterations = number_in(body, "iterations", DEFAULT_ITERATIONS, most=MAX_ITERATIONS)
        if iterations < MIN_ITERATIONS:
            raise Refused(400, f"iterations is less than {MIN_ITERATIONS:,}; correct it")
        return outcome_of(
            await console.kafka.act(
                lambda client: BrokerCredentials(client).add(
                    user, password, mechanisms=mechanisms, iterations=iterations
                )
            )
        )

    async def remove(request: Request, body: dict[str, Any]) -> Any:
        user, mechanisms = in_path(request, "user"), chosen_mechanisms(names_in(body, "mechanisms"))
        return outcome_of(
            await console.kafka.act(
                lambda client: BrokerCredentials(client).remove([user], mechanisms=mechanisms, may_be_absent=False)
            )
        )

    return [
        get("/api/users", listed),
        change("POST", "/api/users", add),
        change("DELETE", "/api/users/{user}", remove),
    ]


def users_of(client: Any) -> list[User]:
    """The credentials of all users, in order. Raises Refused for a cluster that cannot list them."""
    with needing(NEEDS):
        return BrokerCredentials(client).users()
