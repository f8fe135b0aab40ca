"""The versions of the requests between brokers, by inter.broker.protocol.version.

Brokers do not ask each other for their versions. In the middle of an upgrade all of them speak the protocol of the
older release. As kafka 2.0.1 ControllerChannelManager and ReplicaFetcherThread.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from minibroker.protocol.api_table import ApiKey

# The protocols that differ, and the last version of each request in them.
PROTOCOLS = ("0.11.0-IV2", "1.0-IV0", "1.1-IV0", "2.0-IV0", "2.0-IV1")
NEWEST_PROTOCOL = PROTOCOLS[-1]
VERSIONS = {
    ApiKey.LEADER_AND_ISR: (0, 1, 1, 1, 1),
    ApiKey.UPDATE_METADATA: (3, 4, 4, 4, 4),
    ApiKey.FETCH: (5, 5, 7, 7, 8),
    ApiKey.LIST_OFFSETS: (2, 2, 2, 2, 3),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (0, 0, 0, 1, 1),
}


def numbers_of(protocol_version: str) -> tuple[float, ...]:
    """The numbers of a release and of its protocol: of `2.0-IV0`, or of the last one of `2.0` and `2.0.1`."""
    names = protocol_version.split(".")
    *majors, last = names[: 3 if names[0] == "0" else 2]
    minor, _, number = last.partition("-IV")
    return (*map(int, majors), int(minor), int(number) if number else math.inf)


def is_joinable(protocol_version: str) -> bool:
    """Whether this broker speaks a protocol: from 0.11.0 on, whose followers ask for the ends of epochs."""
    return numbers_of(protocol_version) >= numbers_of(PROTOCOLS[0])


def inter_broker_versions(protocol_version: str) -> Mapping[ApiKey, int]:
    """The version of each request that differs between protocols; the lowest for one that is not joinable."""
    wanted = numbers_of(protocol_version)
    position = max((at for at, each in enumerate(PROTOCOLS) if numbers_of(each) <= wanted), default=0)
    return {api_key: versions[position] for api_key, versions in VERSIONS.items()}
