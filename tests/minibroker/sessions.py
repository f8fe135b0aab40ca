"""Sessions of pytest as users run them. Who imports `session` names `pytester` in its pytest_plugins."""

from __future__ import annotations

import pytest

ASK = """
from minibroker.administration import connected
from minibroker.protocol.api import ApiKey

def topics(broker):
    with connected(broker.bootstrap_servers) as connection:
        return {row.name for row in connection.ask(ApiKey.METADATA, topics=None).topics}
"""


@pytest.fixture
def session(pytester: pytest.Pytester) -> pytest.Pytester:
    """A folder for tests, and in it what they ask a broker."""
    pytester.makepyfile(topics_of=ASK)
    return pytester


def run(session: pytest.Pytester, *arguments: str, xdist: bool = False) -> pytest.RunResult:
    plugin = ["-p", "minibroker.pytest_plugin"] if not has_entry_point() else []
    workers = [] if xdist else ["-p", "no:xdist"]
    return session.runpytest_subprocess(*plugin, *workers, "-p", "no:cacheprovider", *arguments)


def has_entry_point() -> bool:
    """Whether pytest finds the plugin by itself: not in an installation that is older than it."""
    from importlib.metadata import entry_points

    return any(each.value == "minibroker.pytest_plugin" for each in entry_points(group="pytest11"))
