"""The entities that quotas are set for, which of their quotas holds for a client, and which clients share a window.

An entity names a user, a client id, or both; `DEFAULT` in place of a name stands for all names that have no quota of
their own. As kafka 2.0.1 DefaultQuotaCallback.
"""

from __future__ import annotations

from enum import Enum, IntFlag, auto
from typing import NamedTuple

NO_NAME = ""


class Default(Enum):
    """In place of a name: all names without a quota of their own."""

    DEFAULT = None

    def __repr__(self) -> str:
        return "DEFAULT"


DEFAULT = Default.DEFAULT
Name = str | Default | None  # None: the entity does not name one


class Entity(NamedTuple):
    """A user, a client id, or both."""

    user: Name = None
    client_id: Name = None

    def __str__(self) -> str:
        named = (("user", self.user), ("client id", self.client_id))
        return ", ".join(
            f"the default {noun}" if name is DEFAULT else f"{noun} {name!r}" for noun, name in named if name is not None
        )


class Sharing(IntFlag):
    """The combinations of names that have had quotas, by which clients share a window, also without a quota."""

    CLIENT_ID = auto()
    USER = auto()
    USER_AND_CLIENT_ID = auto()


class WindowKey(NamedTuple):
    """The clients of one window: those of a user, those with a client id, or those with both; "" names none."""

    user: str
    client_id: str | None  # None: of requests without one


class QuotaTable:
    """The limits of one kind of quota by entity; `everybody` is that of client ids without a quota, None for none."""

    def __init__(self, everybody: float | None) -> None:
        self._limits: dict[Entity, float] = {}
        self._everybody = everybody
        self._sharing = Sharing(0) if everybody is None else Sharing.CLIENT_ID

    @property
    def is_used(self) -> bool:
        """Return whether there is a quota, or has been one: from then on everything is counted, as in Kafka."""
        return bool(self._sharing)

    def set(self, entity: Entity, limit: float | None) -> None:
        """Set the limit of an entity; None removes it, and counts as a use, as in Kafka."""
        if limit is None:
            self._limits.pop(entity, None)
        else:
            self._limits[entity] = limit
        if entity.user is None:
            self._sharing |= Sharing.CLIENT_ID
        else:
            self._sharing |= Sharing.USER if entity.client_id is None else Sharing.USER_AND_CLIENT_ID

    def window_key(self, user: str, client_id: str | None) -> WindowKey:
        """The window of a client, by the first of its entities that has a quota."""
        sharing = self._sharing
        if sharing == Sharing.USER:
            return WindowKey(user, NO_NAME)
        if sharing == Sharing.USER_AND_CLIENT_ID:
            return WindowKey(user, client_id)
        if sharing & (Sharing.USER | Sharing.USER_AND_CLIENT_ID):
            limits = self._limits
            for owner in (user, DEFAULT):
                is_named = client_id is not None and Entity(owner, client_id) in limits
                if is_named or Entity(owner, DEFAULT) in limits:
                    return WindowKey(user, client_id)
                if Entity(owner) in limits:
                    return WindowKey(user, NO_NAME)
        return WindowKey(NO_NAME, client_id)

    def limit(self, key: WindowKey) -> float | None:
        """The limit of a window's clients; None without one. A null or empty client id has no limit by itself."""
        user, client_id = key
        if client_id is None:
            return None
        if user and client_id:
            entities = [Entity(owner, name) for owner in (user, DEFAULT) for name in (client_id, DEFAULT)]
        elif user:
            entities = [Entity(user), Entity(DEFAULT)]
        elif client_id:
            entities = [Entity(None, client_id), Entity(None, DEFAULT)]
        else:
            return None
        found = next((self._limits[entity] for entity in entities if entity in self._limits), None)
        return self._everybody if found is None and not user else found
