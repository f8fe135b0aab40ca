"""The version of an MSK cluster becomes a release that a broker acts as."""

from __future__ import annotations

import pytest

from minibroker.aws.clusters import ACTS_AS, profile_for
from minibroker.broker.config.profiles import RELEASES


@pytest.mark.parametrize(
    ("version", "profile"),
    [("0.10.2.1", "0.10"), ("2.2.1", "2.0"), ("3.6.0", "2.8"), ("3.9.x.kraft", "3.9"), ("4.1.x", "4.0"), ("9.0", None)],
)
def test_a_version_is_the_newest_release_before_it(version: str, profile: str | None) -> None:
    assert profile_for(version) == profile
    assert tuple(RELEASES) == ACTS_AS
