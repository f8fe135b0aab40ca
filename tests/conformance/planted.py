"""Brokers with a mistake, judged as `minibroker conform` does: a mutant of tests/mutants, or a wrong field.

`python -m tests.conformance.planted NAME ARGUMENT...` is `minibroker ARGUMENT...` with that mistake.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.processes import ROOT
from minibroker.conformance.holding import SETTINGS
from minibroker.conformance.judge import Judge
from minibroker.conformance.recordings import Recording
from minibroker.conformance.steps import KEYS
from minibroker.protocol.api import API_TABLE
from minibroker.protocol.errors import ErrorCode
from minibroker.protocol.schema import Field
from minibroker.simulation.planting import Planter
from tests.integration.brokers import Minibroker
from tests.mutants.table import mutants

END_SECONDS = 10.0  # for a broker that takes no more connections
# What the source does otherwise, of tests/mutants.
MUTANTS = (
    "In versions 0 to 2 the byte limit is hard",
    "OffsetFetch of version 0 has an error for a partition without an offset",
    "Each rebalance begins a new generation",
    "A group with members cannot be deleted",
    "A member that leaves no longer counts for the protocols of the group",
    "A member that leaves is removed, and the others rebalance",
)


class Wrong(NamedTuple):
    """A field of an API's answers, or of its requests, that is changed on the way."""

    api: str
    path: str
    change: Callable[[Any], Any]
    is_asked: bool = False


def hidden(*errors: ErrorCode, shown: ErrorCode = ErrorCode.NONE) -> Callable[[int], int]:
    """Another error in the place of these."""
    return lambda code: int(shown) if code in errors else code


def more(value: int) -> int:
    return value + 1


def less(value: int) -> int:
    return value - 1


def always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def turned(rows: Sequence[Any]) -> Sequence[Any]:
    return rows[::-1]


E = ErrorCode
WRONG = {
    "base offset of an append": Wrong("Produce", "topics.partitions.base_offset", more),
    "no log start offset": Wrong("Produce", "topics.partitions.log_start_offset", always(-1)),
    "too large is corrupt": Wrong(
        "Produce", "topics.partitions.error_code", hidden(E.MESSAGE_TOO_LARGE, shown=E.CORRUPT_MESSAGE)
    ),
    "throttle time": Wrong("Produce", "throttle_time_ms", more),
    "high watermark": Wrong("Fetch", "topics.partitions.high_watermark", more),
    "no last stable offset": Wrong("Fetch", "topics.partitions.last_stable_offset", always(-1)),
    "out of range is nothing": Wrong("Fetch", "topics.partitions.error_code", hidden(E.OFFSET_OUT_OF_RANGE)),
    "aborted transactions": Wrong("Fetch", "topics.partitions.aborted_transactions", always([])),
    "isolation level of a fetch": Wrong("Fetch", "isolation_level", always(0), is_asked=True),
    "order of topics": Wrong("Fetch", "topics", turned),
    "byte limit": Wrong("Fetch", "max_bytes", always(1 << 30), is_asked=True),
    "last offset": Wrong("ListOffsets", "topics.partitions.offset", less),
    "time of an offset": Wrong("ListOffsets", "topics.partitions.timestamp", always(-1)),
    "isolation level of offsets": Wrong("ListOffsets", "isolation_level", always(0), is_asked=True),
    "topic that is there": Wrong("CreateTopics", "topics.error_code", hidden(E.TOPIC_ALREADY_EXISTS)),
    "low watermark": Wrong("DeleteRecords", "topics.partitions.low_watermark", more),
    "commit of an unknown member": Wrong("OffsetCommit", "topics.partitions.error_code", hidden(E.UNKNOWN_MEMBER_ID)),
    "metadata of an offset": Wrong("OffsetFetch", "topics.partitions.metadata", always("")),
    "each member leads": Wrong("JoinGroup", "", lambda body: body._replace(leader=body.member_id)),
    "protocol of a group": Wrong("JoinGroup", "protocol_name", always("")),
    "no assignment": Wrong("SyncGroup", "assignment", always(b"")),
    "unseen rebalance": Wrong("Heartbeat", "error_code", hidden(E.REBALANCE_IN_PROGRESS)),
    "unknown member leaves": Wrong("LeaveGroup", "error_code", hidden(E.UNKNOWN_MEMBER_ID)),
    "state of a group": Wrong("DescribeGroups", "groups.group_state", always("Stable")),
    "groups without a type": Wrong("ListGroups", "groups.protocol_type", always("")),
    "epoch of a producer": Wrong("InitProducerId", "producer_epoch", more),
    "unknown producer adds": Wrong("AddPartitionsToTxn", "topics.partitions.error_code", always(0)),
    "offsets of no transaction": Wrong("AddOffsetsToTxn", "error_code", always(0)),
    "each end is well": Wrong("EndTxn", "error_code", always(0)),
    "each offset is well": Wrong("TxnOffsetCommit", "topics.partitions.error_code", always(0)),
    "source of a config": Wrong("DescribeConfigs", "results.configs.config_source", more),
    "wrong configs are well": Wrong("AlterConfigs", "responses.error_code", always(0)),
    "end of an epoch": Wrong("OffsetForLeaderEpoch", "topics.partitions.end_offset", more),
}


def changed(row: Any, fields: Sequence[Field], version: int, path: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """A body, or a row of one, with another value at a path; rows need not have the names of their fields."""
    if not path:
        return change(row)
    place = next(number for number, field in enumerate(fields) if field.name == path[0])
    if not fields[place].is_in(version):
        return row
    kind, value = fields[place].kind_in(version), row[place]
    if path[1:]:
        found: Any = [changed(each, kind.fields, version, path[1:], change) for each in value or ()]
    else:
        found = change(value)
    return row._replace(**{path[0]: found}) if hasattr(row, "_replace") else (*row[:place], found, *row[place + 1 :])


def make_wrong(wrong: Wrong) -> None:
    """Have the broker of this process change the field."""
    codec: Any = import_module("minibroker.broker.way.codec")
    key, path = KEYS[wrong.api], wrong.path.split(".") if wrong.path else []
    decode, encode = codec.decode_request, codec.encode_response

    def decode_request(*given: Any) -> Any:
        request = decode(*given)
        if request.api_key == key:
            fields = API_TABLE[key].request.fields
            request.body = changed(request.body, fields, request.api_version, path, wrong.change)
        return request

    def encode_response(request: Any, body: Any) -> Any:
        if request.api_key == key:
            body = changed(body, API_TABLE[key].response.fields, request.api_version, path, wrong.change)
        return encode(request, body)

    if wrong.is_asked:
        codec.decode_request = decode_request
    else:
        codec.encode_response = encode_response


class Planted(Minibroker):
    """A minibroker that acts as 2.0.1, and has a mistake."""

    def __init__(self, directory: Path, name: str) -> None:
        self._name = name
        super().__init__(directory, "--act-as", "2.0", "--set", "broker.id=0", settings=SETTINGS)

    def command_of(self, command: list[str]) -> list[str]:
        at = command.index("minibroker")
        return [*command[:at], "tests.conformance.planted", self._name, *command[at + 1 :]]


def found(name: str, directory: Path, recording: Recording, most: int, only: Collection[str] = ()) -> tuple[int, str]:
    """After how many conversations the first difference is found, and its kind; 0 if none is."""
    broker = Planted(directory, name)
    try:
        broker.wait_until_ready()
        with Judge(broker.host, broker.port, recording, only=only) as judge:
            for _ in judge.judge_all(islice(judge.names(), most)):
                if judge.findings:
                    return judge.held, str(next(iter(judge.findings)))
    except OSError as error:
        try:
            broker.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            raise error from None
        return most, f"it has ended: {error}"
    finally:
        broker.kill()
    return 0, ""


def main() -> int:
    name, *arguments = sys.argv[1:]
    if name in WRONG:
        make_wrong(WRONG[name])
    else:
        (mutant,) = (each for each in mutants() if each.behaviour == name)
        sys.meta_path.insert(0, Planter({ROOT / mutant.file: mutant.planted()}))
    sys.argv = ["minibroker", *arguments]
    from minibroker.__main__ import main as minibroker_main

    return minibroker_main()


if __name__ == "__main__":
    sys.exit(main())
