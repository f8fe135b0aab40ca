"""The offered versions look like a release of Kafka: clients take the broker for one, or are pinned to one, and speak
the versions of that release, whatever the broker offers.

kafka-python has a table of all releases with the versions of each API. That of franz-go 1.22.2 (kversion) is the same
(compared on 2026-11-28); those of sarama, librdkafka and the Java client name some versions of it.
"""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from minibroker.protocol.api_table import API_TABLE, RELEASES, versions_of
from tests.protocol.kafka_python import BROKER_API_VERSIONS, infer_broker_version_from_api_versions

GENERATOR = Path(__file__).parent.parent.parent / "docs" / "reference" / "generate.py"
# From an answer of kafka 4.4.0 to ApiVersions.
LAST_OF_4_4 = """
    0:13 1:18 2:11 3:13 8:10 9:10 10:6 11:9 12:4 13:5 14:5 15:6 16:5 17:1 18:5 19:7 20:6 21:2 22:5 23:4 24:5 25:4 26:5
    27:2 28:6 29:3 30:3 31:3 32:4 33:2 34:2 35:5 36:2 37:3 38:3 39:2 40:2 41:3 42:3 43:2 44:1 45:1 46:0 47:0 48:1 49:1
    50:0 51:0 55:2 57:2 60:2 61:0 64:0 65:0 66:2 68:1 69:1 74:1 75:0 76:1 77:1 78:2 79:2 80:1 81:0 83:0 84:0 85:1 86:0
    87:1 88:1 89:1 90:1 91:0 92:0 93:0 94:0
"""
# The releases of kafka-python's table that `--act-as` names.
ACTED = {"0.10": (0, 10, 2), "0.11": (0, 11), "1.1": (1, 1), "2.0": (2, 0)}
ACTED |= {"2.8": (2, 8), "3.9": (3, 9), "4.0": (4, 0), "4.4": (4, 4)}


Release = tuple[int, ...]
LAST_VERSIONS: dict[Release, dict[int, int]] = {
    release: {key: last for key, (_, last) in versions.items()} for release, versions in BROKER_API_VERSIONS.items()
}
LAST_VERSIONS[4, 4] = {int(key): int(last) for key, _, last in (each.partition(":") for each in LAST_OF_4_4.split())}
OFFERED = {int(key): api.versions for key, api in API_TABLE.items() if not api.is_unlisted}
NOT_OFFERED = {
    first + place
    for ranges in runpy.run_path(str(GENERATOR))["NOT_OFFERED"].values()
    for first, names in ranges
    for place in range(len(names.split()))
}


@pytest.mark.parametrize("release", LAST_VERSIONS, ids=lambda release: ".".join(map(str, release)))
def test_each_api_has_the_versions_of_a_release(release: Release) -> None:
    lacking = {
        key: last
        for key, last in LAST_VERSIONS[release].items()
        if key not in NOT_OFFERED and not OFFERED.get(key, (0, -1))[1] >= last
    }

    assert lacking == {}
    assert {key for key, (first, _) in OFFERED.items() if first} == {76, 77, 78, 79}  # whose v0 was for early access


def test_the_newest_release_has_each_api() -> None:
    assert OFFERED.keys() == LAST_VERSIONS[4, 4].keys() - NOT_OFFERED


@pytest.mark.parametrize("name", RELEASES)
def test_a_broker_that_acts_as_a_release_offers_its_versions(name: str) -> None:
    release = LAST_VERSIONS[ACTED[name]]
    ours = {int(key): last for key, (_, last) in versions_of(name).items()}

    assert ours.items() >= {key: last for key, last in release.items() if key not in NOT_OFFERED}.items()
    # The table of kafka-python lacks some that 3.9.1 answered.
    assert ours.keys() - release.keys() <= ({69, 74, 75} if name == "3.9" else set())


def test_clients_take_it_for_a_release_of_the_table() -> None:
    assert infer_broker_version_from_api_versions(OFFERED) == (4, 3)
    for name, release in ACTED.items():
        offered = {int(key): each for key, each in versions_of(name).items()}
        assert infer_broker_version_from_api_versions(offered) == min(release, (4, 3))
