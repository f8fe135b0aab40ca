"""The addresses of a broker that is ready, as its log, its ready file and a person at a terminal get them."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path

from minibroker.broker.config.kafka_config import KafkaConfig

EVERY_INTERFACE = ("0.0.0.0", "::")


def named_addresses(config: KafkaConfig, listeners: Sequence[socket.socket]) -> list[str]:
    """The listeners as `NAME://host:port (PROTOCOL)`; none where a single one, in plaintext, needs no name."""
    if [endpoint.protocol for endpoint in config.endpoints] == ["PLAINTEXT"]:
        return []
    return [
        f"{endpoint.name}://{address_of(*sock.getsockname()[:2])}"
        + ("" if endpoint.name == endpoint.protocol else f" ({endpoint.protocol})")
        for endpoint, sock in zip(config.endpoints, listeners, strict=True)
    ]


def address_of(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def bootstrap_of(config: KafkaConfig, listeners: Sequence[socket.socket]) -> str:
    """The address to which a client on this machine connects, in plaintext where a listener has that."""
    pairs = zip(config.endpoints, listeners, strict=True)
    plain = [sock for endpoint, sock in pairs if endpoint.protocol == "PLAINTEXT"]
    host, port = (plain or listeners)[0].getsockname()[:2]
    return address_of("127.0.0.1" if host in EVERY_INTERFACE else host, port)


def banner(host: str, port: int, data_dir: Path, named: Sequence[str] = ()) -> str:
    """The lines that a person at a terminal wants to copy."""
    from minibroker.protocol.form import form

    name = "localhost" if host in EVERY_INTERFACE else f"[{host}]" if ":" in host else host
    bootstrap = f"{name}:{port}"
    listeners = "".join(
        f"\n    {title:<20}{each}" for title, each in zip(("listeners", *[""] * len(named)), named, strict=False)
    )
    return f"""
  minibroker is ready ({form()})
    bootstrap.servers   {bootstrap}{listeners}
    data                {data_dir}
    look at it          minibroker topics list --bootstrap-server {bootstrap}
    write to it         KafkaProducer(bootstrap_servers="{bootstrap}")
    stop it             Ctrl-C
"""
