"""The address at which a broker listens: as text, and as host and port."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

NAME = re.compile(r"[\w.%-]*[^\W\d][\w.%-]*")  # a number alone is a port


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str, *, default_port: int | None = None) -> Address:
    """Read HOST:PORT, or HOST where there is a default port; IPv6 may be in brackets. Raises ValueError."""
    whole = text.strip()
    host, _, port = whole.rpartition(":")
    if default_port is not None and is_host(whole) and not is_host(host):
        host, port = whole, str(default_port)
    if not is_host(host) or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is not HOST:PORT")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


def is_host(text: str) -> bool:
    """Whether it is a name, or an address of IPv4 or IPv6."""
    try:
        ipaddress.ip_address(text[1:-1] if text.startswith("[") and text.endswith("]") else text)
    except ValueError:
        return NAME.fullmatch(text) is not None
    return True
