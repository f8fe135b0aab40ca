"""The scripted conversations, by name: every function of these modules that takes nothing and returns a Script.

Recordings are kept by name, in this order. A function whose name begins with an underscore is a part of several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from tests.conformance.scripts import (
    administering,
    changing,
    followers,
    groups,
    leader_epochs,
    odd_requests,
    old_clients,
    producing,
    reading,
    reconfiguring,
    sessions,
    transactions,
)
from tests.conformance.steps import Script

Conversations = Mapping[str, Callable[[], Script]]


def conversations_of(module: ModuleType) -> Conversations:
    return {
        name: each
        for name, each in vars(module).items()
        if getattr(each, "__annotations__", None) == {"return": "Script"}
        and each.__module__ == module.__name__
        and not name.startswith("_")
    }


ALL: Conversations = {
    **producing.PRODUCING,
    **conversations_of(reading),
    **conversations_of(old_clients),
    **conversations_of(administering),
    **conversations_of(changing),
    **conversations_of(reconfiguring),
    **conversations_of(followers),
    **conversations_of(groups),
    **conversations_of(transactions),
    **conversations_of(leader_epochs),
    **conversations_of(sessions),
    **conversations_of(odd_requests),
}
