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


ANONYMOUS = Principal(USER, "ANONYMOUS")  # of connections that do not authenticate
