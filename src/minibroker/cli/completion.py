"""Tab completion beyond options and commands: a cluster's topics and groups, and configs, the options of `serve`.

The cluster is the one that the command line names so far, else the default. An unreachable cluster completes to
nothing, silently and within seconds.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

import typer
from typer.core import TyperCommand

from minibroker.any_cluster.bootstrap import Cluster, cluster_of
from minibroker.errors import BadValue, CommandFailed

ONE_LINE = 1000
DIVIDERS = {":", "="}
SUBJECTS = ("topic", "broker", "group")  # of configs
OPTION_IN_HELP = re.compile(r"^  (?:-\w, )?(?P<name>--[\w-]+)(?: \S+)?\n? {2,}(?P<help>.*)$", re.MULTILINE)


def api_names(incomplete: str) -> list[str]:
    """The APIs with this prefix."""
    from minibroker.protocol.api import API_TABLE

    return [api.name for api in API_TABLE.values() if api.name.lower().startswith(incomplete.lower())]


def of_cluster(names_of: Callable[[Any, typer.Context, str], Iterable[str]]) -> Callable[..., list[str]]:
    """Complete to names that a cluster has."""

    def offered(context: typer.Context, incomplete: str) -> list[str]:
        from minibroker.any_cluster.cluster import connected

        try:
            with connected(cluster_in(context)) as client:
                return [name for name in names_of(client, context, incomplete) if name.startswith(incomplete)]
        except (CommandFailed, BadValue):
            return []

    return offered


@of_cluster
def topic_names(client: Any, context: typer.Context, incomplete: str) -> Iterable[str]:
    """Kafka's internal topics only if there is a prefix."""
    from minibroker.any_cluster.topic_admin import topics

    return (topic.name for topic in topics(client) if incomplete or not topic.internal)


@of_cluster
def group_names(client: Any, context: typer.Context, incomplete: str) -> Iterable[str]:
    from minibroker.any_cluster.described_groups import group_ids

    return group_ids(client)


@of_cluster
def transactional_ids(client: Any, context: typer.Context, incomplete: str) -> Iterable[str]:
    from minibroker.any_cluster.transaction_admin import transactions

    return (row.transactional_id for row in transactions(client, ()))


@of_cluster
def config_names(client: Any, context: typer.Context, incomplete: str) -> Iterable[str]:
    """The configs of the topic, broker or group that the words name; of topics, for a new one."""
    from minibroker.admin.configs import Subject
    from minibroker.any_cluster.config_admin import describe

    subjects = [Subject(kind, str(name)) for kind in SUBJECTS if (name := context.params.get(kind)) is not None]
    return (config.name for subject in subjects for config in describe(client, subject))


def assignments(context: typer.Context, incomplete: str) -> list[str]:
    """As `config_names`, with the sign before the value."""
    return [f"{name}=" for name in config_names(context, incomplete)]


def cluster_in(context: typer.Context) -> Cluster:
    """The cluster that the words so far name. Raises BadValue."""
    given = context.params.get
    return cluster_of(given("bootstrap"), given("properties"), given("command_config"))


def rejoin_words(environment: MutableMapping[str, str]) -> None:
    """Undo how bash divides the words of a command line at `:` and `=`, as in HOST:PORT and KEY=VALUE."""
    words, number = environment.get("COMP_WORDS", ""), environment.get("COMP_CWORD", "")
    if not number.isdecimal():
        return
    separator = "\n" if "\n" in words else " "
    joined: list[str] = []
    current = before = ""
    for index, word in enumerate(words.split(separator)):
        if joined and (is_divider(word) or is_divider(before)):
            joined[-1] += word
        else:
            joined.append(word)
        before = word
        if index == int(number):
            current = str(len(joined) - 1)
    environment["COMP_WORDS"] = separator.join(joined)
    environment["COMP_CWORD"] = current or str(len(joined))


def is_divider(word: str) -> bool:
    return bool(word) and set(word) <= DIVIDERS


def options_of(program: str) -> Callable[[str], list[tuple[str, str]]]:
    return lambda incomplete: options_in_help(program, incomplete)


def options_in_help(command: str, incomplete: str) -> list[tuple[str, str]]:
    """The options in that command's help; any other word may be a file, which the shell completes."""
    if not incomplete.startswith("-"):
        return []
    shown = subprocess.run(
        [sys.executable, "-P", "-m", "minibroker", command, "--help"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(ONE_LINE)},
    )
    options = [(option["name"], option["help"].split(";")[0]) for option in OPTION_IN_HELP.finditer(shown.stdout)]
    return [(name, text) for name, text in options if name.startswith(incomplete)]


class OwnArguments(TyperCommand):
    """Completes the options of a program that parses its arguments: they are arguments here."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return self.params[0].shell_complete(ctx, incomplete)
