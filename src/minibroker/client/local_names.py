"""Addresses of this machine alone, and the name in a Host header: a page elsewhere may rebind its name to them."""

from __future__ import annotations

import ipaddress
import re

LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HOST = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+)\]|(?P<name>[^\s:,/@\[\]]+))(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """Return whether only this machine can connect to it."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def host_name(host: str) -> str:
    """The name of a Host header without the port, `::1` without its brackets; empty for anything but a host."""
    parts = HOST.fullmatch(host)
    return "" if parts is None else (parts["v6"] or parts["name"]).lower()
