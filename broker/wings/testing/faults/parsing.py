"""Parses the arguments of a control call to a fault; an error is one line.

A fault that could never strike is refused here: one with an unknown name, of a topic for an API without topics, or with
an error code that the release of `--act-as` does not have.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from minibroker.broker.config.profiles import Profile
from minibroker.broker.wings.testing.faults.fault import Fault, Kind, Match, When
from minibroker.broker.wings.testing.faults.rows import ROWS
from minibroker.protocol.api import Api, ApiKey
from minibroker.protocol.errors import ErrorCode

# Names that later releases of Kafka gave to older codes.
LATER_NAMES = {"NOT_LEADER_OR_FOLLOWER": ErrorCode.NOT_LEADER_FOR_PARTITION}
KINDS_WITH_WHEN = (Kind.ERROR, Kind.DELAY, Kind.DISCONNECT)
PARTITION_MAX = 2**31 - 1
COUNT_MAX = 2**31 - 1
SECONDS_MAX = 86_400.0
NAMES_FOR_MATCH = ("api", "connection", "client_id", "topic", "partition")


class FaultParser:
    """Parses faults for a broker that offers `apis` and has the error codes of `profile`."""

    def __init__(self, apis: Mapping[int, Api], profile: Profile) -> None:
        self._apis = apis
        self._profile = profile
        self._by_name = {folded(api.name): ApiKey(key) for key, api in apis.items()}

    def fault(self, fault_id: int, kind: str, arguments: dict[str, Any]) -> Fault:
        """Make a fault of these arguments. Raises ValueError."""
        which = Kind(one_of("kind", kind, [each.value for each in Kind]))
        given = {name: value for name, value in arguments.items() if value is not None}
        match = self._match(which, {name: given.pop(name) for name in NAMES_FOR_MATCH if name in given})
        options: dict[str, Any] = {}
        if "times" in given:
            options["times"] = integer("times", given.pop("times"), 1, COUNT_MAX)
        if "skip" in given:
            options["skip"] = integer("skip", given.pop("skip"), 0, COUNT_MAX)
        if "for_seconds" in given:
            options["for_seconds"] = duration("for_seconds", given.pop("for_seconds"))
        if "when" in given and which in KINDS_WITH_WHEN:
            options["when"] = When(one_of("when", given.pop("when"), [each.value for each in When]))
        if which is Kind.ERROR:
            options["code"] = self._code(given.pop("error", None))
        elif which is Kind.DELAY:
            options["seconds"] = duration("seconds", given.pop("seconds", None))
        elif which is Kind.SLOW:
            options["bytes_per_second"] = integer("bytes_per_second", given.pop("bytes_per_second", None), 1, COUNT_MAX)
        if given:
            raise ValueError(f"{which} takes no {', '.join(sorted(given))}")
        return Fault(fault_id, which, match, **options)

    def _match(self, kind: Kind, given: dict[str, Any]) -> Match:
        apis = self._keys(given.get("api"))
        if kind is Kind.WRONG_CRC:
            if apis - {ApiKey.FETCH}:
                raise ValueError("wrong_crc is for the answers of Fetch only; leave api out")
            apis = frozenset({ApiKey.FETCH})
        if kind is Kind.ERROR and not apis:
            raise ValueError(f"error needs an api, such as api='produce'; this broker offers {self._api_names()}")
        match = Match(
            apis,
            connection_named(given.get("connection")),
            text("client_id", given.get("client_id")),
            text("topic", given.get("topic")),
            None if "partition" not in given else integer("partition", given["partition"], 0, PARTITION_MAX),
        )
        check_places(match)
        return match

    def _keys(self, api: object) -> frozenset[ApiKey]:
        if api is None:
            return frozenset()
        names = [api] if isinstance(api, str) else api
        if not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
            raise ValueError(f"api is a name or a list of names, not {api!r}; this broker offers {self._api_names()}")
        for name in names:
            if folded(name) not in self._by_name:
                raise ValueError(f"this broker offers no API {name!r}; it offers {self._api_names()}")
        return frozenset(self._by_name[folded(name)] for name in names)

    def _api_names(self) -> str:
        return ", ".join(sorted(key.name.lower() for key in self._by_name.values()))

    def _code(self, error: object) -> ErrorCode:
        known = {**ErrorCode.__members__, **LATER_NAMES}
        known.pop("NONE")
        code = known.get(error.upper()) if isinstance(error, str) else None
        if code is None:
            raise ValueError(f"unknown error {error!r}{suggestion(str(error).upper(), known)}")
        if self._profile.error_code_for(code) != code:
            raise ValueError(f"Apache Kafka {self._profile.release}, which this broker acts as, has no {code.name}")
        return code


def check_places(match: Match) -> None:
    """Check that the APIs of a topic's fault name topics. Raises ValueError."""
    if match.partition is not None and match.topic is None:
        raise ValueError("partition needs a topic")
    if match.topic is None:
        return
    for key in match.apis:
        has_partitions = key in ROWS and ROWS[key].has_partitions
        if key not in ROWS or (match.partition is not None and not has_partitions):
            what = "topic" if key not in ROWS else "partition"
            able = [ApiKey(each).name.lower() for each, rows in ROWS.items() if what == "topic" or rows.has_partitions]
            raise ValueError(
                f"a fault of {key.name.lower()} cannot be for one {what}; it can for {', '.join(sorted(able))}"
            )


def folded(name: str) -> str:
    """Fold spellings: list_offsets, LIST_OFFSETS and ListOffsets are the same."""
    return name.replace("_", "").lower()


def suggestion(name: str, known: Iterable[str]) -> str:
    """Suggest the known names that are close to `name`, else list all."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"; did you mean {' or '.join(close)}?" if close else f"; known: {', '.join(names)}"


def one_of(name: str, value: object, choices: list[str]) -> str:
    if not isinstance(value, str) or value.lower() not in choices:
        raise ValueError(f"{name} is one of {', '.join(choices)}, not {value!r}")
    return value.lower()


def text(name: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is a string, not {value!r}")
    return value


def integer(name: str, value: object, first: int, last: int) -> int:
    if type(value) is not int or not first <= value <= last:
        raise ValueError(f"{name} is a whole number of at least {first}, not {value!r}")
    return value


def duration(name: str, value: object) -> float:
    if type(value) not in (int, float) or not 0 < value <= SECONDS_MAX:  # type: ignore[operator]
        raise ValueError(f"{name} is a number above 0 and at most {SECONDS_MAX:.0f}, not {value!r}")
    return float(value)  # type: ignore[arg-type]


def connection_named(value: object) -> int | str | None:
    """Check a connection's number, or its client's address."""
    if value is None or (type(value) is int and value >= 1):
        return value
    if isinstance(value, str) and value.rpartition(":")[2].isdecimal():
        return value
    raise ValueError(f"connection is its number, from 1, or the client's host:port, not {value!r}")
