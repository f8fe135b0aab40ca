"""The principal of a connection: its authenticated name, by which ACLs and quotas know it (kafka's KafkaPrincipal)."""

from __future__ import annotations

from typing import NamedTuple

USER = "User"


class Principal(NamedTuple):
    """`name` is exact: case counts, and so do spaces. The type is `User` for every login."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


def parse_principal(text: str) -> Principal:
    """Raises ValueError, with Kafka's message."""
    type_, colon, name = text.partition(":")
    if not colon:
        raise ValueError(f"expected a string in format principalType:principalName but got {text}")
    return Principal(type_, name)


ANONYMOUS = Principal(USER, "ANONYMOUS")  # of connections that do not authenticate
