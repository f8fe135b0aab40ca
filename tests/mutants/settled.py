"""A pytest plugin for runs with a mutant: property tests try the same examples each time, and shrink none."""

from __future__ import annotations

from hypothesis import Phase, settings

PROFILE = "mutants"


def pytest_configure() -> None:
    settings.register_profile(
        PROFILE, derandomize=True, database=None, deadline=None, phases=(Phase.explicit, Phase.generate)
    )
    settings.load_profile(PROFILE)
