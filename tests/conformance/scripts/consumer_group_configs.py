"""Configs of one group, as Apache Kafka 4.4.0 describes and alters them, and what its members see of them."""

from __future__ import annotations

from typing import Any

from minibroker.protocol.resources import ResourceType
from minibroker.protocol.rights import Operation
from tests.conformance.scripts.consumer_group_rights import MEMBER, _stage, by_member, rules
from tests.conformance.scripts.consumer_groups import (
    GROUP,
    GROUP_CONFIGS,
    SESSION_MS,
    SETTLING_MS,
    alone,
    beats,
    described,
    heartbeat,
    joins,
    leaves,
    topics,
    wait,
)
from tests.conformance.steps import Script, Step, call

SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, HEARTBEAT, ASSIGNMENT = (
    f"consumer.{each}.ms" for each in ("session.timeout", "heartbeat.interval", "assignment.interval")
)
OUT_OF_BOUNDS = {SESSION: ("99", "60001"), HEARTBEAT: ("99", "15001"), ASSIGNMENT: ("-1", "15001")}


def changed(*rows: tuple[Any, ...], group: str = GROUP, is_tried: bool = False) -> Step:
    """IncrementalAlterConfigs of rows of (name, operation, value)."""
    return call("IncrementalAlterConfigs", 1, resources=[(GROUP_CONFIGS, group, list(rows))], validate_only=is_tried)


def replaced(*rows: tuple[Any, ...], group: str = GROUP, is_tried: bool = False) -> Step:
    return call("AlterConfigs", 2, resources=[(GROUP_CONFIGS, group, list(rows))], validate_only=is_tried)


def shown(*groups: str, names: Any = (SESSION, HEARTBEAT, ASSIGNMENT), version: int = 4) -> Step:
    rows = [(GROUP_CONFIGS, group, list(names)) for group in groups or (GROUP,)]
    return call("DescribeConfigs", version, resources=rows, include_synonyms=True)


def configured(**values: int) -> Script:
    """Set configs by the first word of their names, and wait until the coordinator knows them."""
    names = {"session": SESSION, "heartbeat": HEARTBEAT, "assignment": ASSIGNMENT}
    return [changed(*((names[name], SET, str(value)) for name, value in values.items())), wait(SETTLING_MS)]


def configs_of_groups() -> Script:
    script = [*topics(("@t", 2)), shown(GROUP, "@other"), shown(version=3), shown(names=[HEARTBEAT, "none"]), shown("")]
    script += [*configured(session=7000, heartbeat=600), shown(GROUP, "@other"), changed((HEARTBEAT, DELETE, None))]
    script += [wait(SETTLING_MS), shown(), replaced((HEARTBEAT, "700")), wait(SETTLING_MS), shown(), replaced()]
    return [*script, wait(SETTLING_MS), shown(), changed((SESSION, SET, "5000"), is_tried=True), wait(100), shown()]


def refused_configs_of_groups() -> Script:
    script = [*topics(("@t", 2))]
    for name, (low, high) in OUT_OF_BOUNDS.items():
        script += [changed((name, SET, each)) for each in (low, high, "x", "-1", "0", "", "1.5", None)]
        script += [changed((name, SET, " 1000 "), is_tried=True), replaced((name, high)), replaced((name, None))]
    script += [changed((SESSION, SET, "4000"), (HEARTBEAT, SET, each)) for each in ("4000", "5000")]
    script += [changed(("none", SET, "1")), changed(("none", DELETE, None)), replaced(("none", "1"))]
    script += [changed((SESSION, APPEND, "1")), changed((SESSION, SUBTRACT, "1"))]
    script += [changed((SESSION, SET, "5000"), group=""), replaced((SESSION, "5000"), group="")]
    script += [changed((f"group.{SESSION}", SET, "5000")), changed(("none", APPEND, "1"))]
    return [*script, wait(SETTLING_MS), shown()]


def members_have_the_heartbeat_interval_of_their_group() -> Script:
    script = [
        *alone(),
        *configured(heartbeat=900),
        beats("one"),
        joins("two", "@t"),
        joins("a", "@t", group_id="@other"),
    ]
    script += [changed((HEARTBEAT, DELETE, None)), wait(SETTLING_MS), beats("one"), beats("two")]
    return [*script, leaves("a", group_id="@other")]


def members_have_the_session_timeout_of_their_group() -> Script:
    script = [*topics(("@t", 2)), *configured(session=900, heartbeat=200), joins("one", "@t")]
    script += [wait(1500), heartbeat("one", 1), *configured(session=6000), joins("two", "@t")]
    return [*script, wait(SESSION_MS + 1500), beats("two"), described()]


def a_group_is_assigned_at_its_interval() -> Script:
    script = [*alone(), *configured(assignment=15_000), joins("two", "@t"), described(), beats("two"), beats("one")]
    return [*script, *configured(assignment=0), beats("one"), beats("two"), beats("one"), beats("two"), described()]


def rights_to_the_configs_of_a_group() -> Script:
    of_group = (MEMBER, ResourceType.GROUP, GROUP)
    asked = [shown(), changed((HEARTBEAT, SET, "800"), is_tried=True), replaced((HEARTBEAT, "800"), is_tried=True)]
    script = [*_stage((*of_group, Operation.DESCRIBE)), *map(by_member, asked)]
    script += [*rules((*of_group, Operation.DESCRIBE_CONFIGS)), *map(by_member, asked)]
    return [*script, *rules((*of_group, Operation.ALTER_CONFIGS)), *map(by_member, asked)]
