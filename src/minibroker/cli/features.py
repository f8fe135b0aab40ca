"""`minibroker features ...`: the levels of a cluster's features, as kafka-features.sh shows and changes them.

This module reads arguments and prints; `feature_admin` asks the broker.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from minibroker.any_cluster import feature_admin
from minibroker.any_cluster.bootstrap import Cluster
from minibroker.any_cluster.cluster import connected
from minibroker.any_cluster.feature_admin import SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, UPGRADE
from minibroker.cli.options import noun
from minibroker.cli.parameters import changing_cluster, on_cluster
from minibroker.cli.shown import Shown, change, table
from minibroker.errors import BadValue

LevelsArgument = Annotated[
    list[str], typer.Argument(metavar="FEATURE=LEVEL...", help="Such as transaction.version=1.", show_default=False)
]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only check, and change nothing.")]

app = noun(help="Describe, upgrade and downgrade features, such as transaction.version.")


@app.command("describe", epilog="Example: minibroker features describe")
@on_cluster
def describe_features(cluster: Cluster) -> Shown:
    """Show the levels that the cluster supports, and the ones in force."""
    with connected(cluster) as client:
        found = feature_admin.features(client)
    rows = [(name, first, last, level or "off", epoch) for name, first, last, level, epoch in found]
    return table(found, ("<FEATURE", "FIRST", "LAST", "LEVEL", "EPOCH"), rows)


@app.command("upgrade", epilog="Example: minibroker features upgrade transaction.version=2")
@changing_cluster
def upgrade_features(levels: LevelsArgument, cluster: Cluster, dry_run: DryRunOption = False) -> Shown:
    """Raise features to these levels, all or none."""
    return changed(cluster, levels, UPGRADE, dry_run=dry_run)


@app.command("downgrade", epilog="Example: minibroker features downgrade transaction.version=1")
@changing_cluster
def downgrade_features(
    levels: LevelsArgument,
    cluster: Cluster,
    unsafe: Annotated[bool, typer.Option("--unsafe", help="Even if the cluster's state loses by it.")] = False,
    dry_run: DryRunOption = False,
) -> Shown:
    """Lower features to these levels, all or none; level 0 turns one off."""
    return changed(cluster, levels, UNSAFE_DOWNGRADE if unsafe else SAFE_DOWNGRADE, dry_run=dry_run)


def changed(cluster: Cluster, levels: Sequence[str], upgrade_type: int, *, dry_run: bool) -> Shown:
    wanted = dict(map(level_in, levels))
    with connected(cluster) as client:
        feature_admin.update(client, wanted, upgrade_type, only_checks=dry_run)
    lines = [f"{name}={level}" for name, level in wanted.items()]
    return change({}, "checked" if dry_run else "changed", lines, wanted)


def level_in(text: str) -> tuple[str, int]:
    """Raises BadValue."""
    name, _, level = text.partition("=")
    if not name or not level.isdecimal():
        raise BadValue(f"{text!r} is not FEATURE=LEVEL; write for example transaction.version=1")
    return name, int(level)
