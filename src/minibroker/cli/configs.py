"""`minibroker configs ...`: describe, set, unset, of topics, brokers and groups, on any Kafka broker.

This module reads arguments and prints; `config_admin` asks the broker.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import typer

from minibroker.admin.configs import Config, Subject, no_config
from minibroker.any_cluster import config_admin
from minibroker.any_cluster.bootstrap import Cluster, Setting, parse_setting
from minibroker.any_cluster.cluster import connected
from minibroker.cli.completion import assignments, config_names, group_names, topic_names
from minibroker.cli.options import noun
from minibroker.cli.parameters import changing_cluster, on_cluster
from minibroker.cli.shown import Shown, change
from minibroker.cli.terminal import print_line, print_table
from minibroker.errors import BadValue, CommandFailed


class Owner(NamedTuple):
    """The options that name whose configs they are."""

    topic: Annotated[
        str | None,
        typer.Option("--topic", "-t", metavar="NAME", autocompletion=topic_names, help="Configs of this topic."),
    ] = None
    broker: Annotated[
        int | None, typer.Option("--broker", "-i", metavar="ID", min=0, help="Configs of the broker with this id.")
    ] = None
    group: Annotated[
        str | None,
        typer.Option("--group", "-g", metavar="NAME", autocompletion=group_names, help="Configs of this group."),
    ] = None

    def subject(self) -> Subject:
        """Raises BadValue unless one of them was given."""
        named = [Subject(kind, str(name)) for kind, name in self._asdict().items() if name is not None]
        if len(named) != 1:
            raise BadValue("name one of --topic NAME, --broker ID and --group NAME")
        return named[0]


app = noun(help="Describe, set and unset configs of topics, brokers and groups.")


@app.command("describe", epilog="Example: minibroker configs describe --topic flights --all")
@on_cluster
def describe_configs(
    cluster: Cluster,
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME]...", show_default=False, autocompletion=config_names)
    ] = None,
    *,
    owner: Owner,
    everything: Annotated[bool, typer.Option("--all", "--all-configs", "-a", help="Show defaults too.")] = False,
) -> Shown:
    """Show the configs that are set, the named ones, or all."""
    subject = owner.subject()
    with connected(cluster) as client:
        configs = config_admin.describe(client, subject)
    known = {config.name for config in configs}
    if missing := set(names or ()) - known:
        raise CommandFailed(no_config(subject, min(missing), known))
    chosen = [config for config in configs if (config.name in names if names else everything or not config.is_default)]
    documents = [config._asdict() for config in chosen]
    return Shown(documents, lambda: print_configs(chosen, more=len(configs) - len(chosen)))


def print_configs(configs: list[Config], *, more: int) -> None:
    if configs:
        rows = [(config.name, value_of(config), config.source.lower()) for config in configs]
        print_table(("NAME", "VALUE", "SOURCE"), rows, left=("NAME", "VALUE", "SOURCE"))
    else:
        print("no configs of its own")
    if more:
        print_line(f"{more} more; --all shows them", "dim")


def value_of(config: Config) -> str:
    if config.value is not None:
        return config.value
    return "(hidden)" if config.sensitive else "(none)"


@app.command("set", epilog="Example: minibroker configs set --topic flights retention.ms=60000 segment.bytes=1000000")
@changing_cluster
def set_configs(
    settings: Annotated[
        list[Setting],
        typer.Argument(metavar="KEY=VALUE...", parser=parse_setting, show_default=False, autocompletion=assignments),
    ],
    cluster: Cluster,
    owner: Owner,
) -> Shown:
    """Set configs; those not named stay as they are."""
    subject = owner.subject()
    values = dict(settings)
    with connected(cluster) as client:
        config_admin.set_values(client, subject, values)
    lines = [f"{name}={value}" for name, value in values.items()]
    return change(subject._asdict(), "set", lines, values)


@app.command("unset", epilog="Example: minibroker configs unset --topic flights retention.ms")
@changing_cluster
def unset_configs(
    names: Annotated[list[str], typer.Argument(metavar="NAME...", show_default=False, autocompletion=config_names)],
    cluster: Cluster,
    owner: Owner,
) -> Shown:
    """Reset configs to their defaults."""
    subject = owner.subject()
    with connected(cluster) as client:
        config_admin.unset(client, subject, names)
    return change(subject._asdict(), "unset", names, names)
