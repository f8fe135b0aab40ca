"""The options of a console: the cluster to show, where to listen, what the page may change."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from minibroker.any_cluster.bootstrap import Cluster
from minibroker.client.local_names import LOCAL_NAMES, is_loopback
from minibroker.registry_client import SchemaRegistry


@dataclass(frozen=True)
class ConsoleOptions:
    """`token` is None only where nothing asks for it: on a loopback address, without changes."""

    cluster: Cluster
    host: str
    port: int
    controls: Sequence[Path] = ()
    allow_changes: bool = False
    token: str | None = None
    host_names: Collection[str] = ()
    schema_registry: SchemaRegistry | None = None

    @property
    def is_local(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def allowed_hosts(self) -> frozenset[str]:
        """The names that a browser may have for this console; with any other one, a page elsewhere rebound its name."""
        return LOCAL_NAMES | {name.lower() for name in self.host_names} | own_address(self.host)


def own_address(host: str) -> set[str]:
    """The address itself, unless it stands for every interface: a rebound name is never a number."""
    try:
        return set() if ipaddress.ip_address(host).is_unspecified else {host.lower()}
    except ValueError:
        return {host.lower()}
