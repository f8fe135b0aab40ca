"""What Tab offers beside options and commands: a cluster's topics and groups, and what `serve` takes.

The cluster is the one that the command line names so far, else the usual one. One that does not answer offers nothing:
a person who types is never told of it, nor kept waiting for long.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import typer
from typer.core import TyperCommand

from minibroker.cli.failures import CommandFailed
from minibroker.cli.options import BOOTSTRAP_VARIABLE, DEFAULT_BOOTSTRAP, Bootstrap, parse_bootstrap

ONE_LINE = 1000
OPTION_TOLD = re.compile(r"^  (?:-\w, )?(?P<name>--[\w-]+)(?: \S+)?\n? {2,}(?P<help>.*)$", re.MULTILINE)


def topic_names(context: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin so; Kafka's own only where they are asked for by their underscores."""

    def of(bootstrap: Bootstrap) -> list[str]:
        from minibroker.cli.topic_admin import topic_admin

        with topic_admin(bootstrap.addresses) as admin:
            return [topic.name for topic in admin.topics() if incomplete or not topic.internal]

    return offered(of, context, incomplete)


def group_names(context: typer.Context, incomplete: str) -> list[str]:
    def of(bootstrap: Bootstrap) -> list[str]:
        from minibroker.cli.group_admin import group_admin

        with group_admin(bootstrap.addresses) as admin:
            return [group.group for group in admin.groups()]

    return offered(of, context, incomplete)


def offered(names_of: Callable[[Bootstrap], Iterable[str]], context: typer.Context, incomplete: str) -> list[str]:
    try:
        return [name for name in names_of(bootstrap_of(context)) if name.startswith(incomplete)]
    except (CommandFailed, typer.BadParameter):
        return []


def bootstrap_of(context: typer.Context) -> Bootstrap:
    """Raises typer.BadParameter."""
    given = context.params.get("bootstrap")
    return parse_bootstrap(given or os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_BOOTSTRAP)


def serve_options(incomplete: str) -> list[tuple[str, str]]:
    """The broker's own, as its help tells them; anything else may be a file, which the shell completes."""
    if not incomplete.startswith("-"):
        return []
    told = subprocess.run(
        [sys.executable, "-P", "-m", "minibroker", "serve", "--help"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": str(ONE_LINE)},
    )
    options = [(option["name"], option["help"].split(";")[0]) for option in OPTION_TOLD.finditer(told.stdout)]
    return [(name, text) for name, text in options if name.startswith(incomplete)]


class ServeCommand(TyperCommand):
    """`serve` reads its own arguments, so that its options are arguments here; this is where Tab looks for options."""

    def shell_complete(self, ctx: Any, incomplete: str) -> list[Any]:
        return self.params[0].shell_complete(ctx, incomplete)
