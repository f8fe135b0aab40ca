"""Groups: members that join, sync, heartbeat, leave and are gone; offsets committed and fetched; administration."""

from __future__ import annotations

from typing import Any

from tests.conformance.asking import create, fetch, parked
from tests.conformance.steps import Script, Step, Told, call, drop, look, take

GROUP = "@group"
RANGE = (("range", b"data"),)
JOIN_VERSIONS = range(4)
THREE_VERSIONS = range(3)  # of SyncGroup, Heartbeat, LeaveGroup, DescribeGroups, ListGroups


def find(version: int = 0, key: str = GROUP, **options: Any) -> Step:
    return call("FindCoordinator", version, key=key, **options)


def join(name: str = "", member: Any = "", version: int = 3, **options: Any) -> Step:
    """`name` is the step's and, for the member ids are told apart by it, the client id's."""
    body = {
        "group_id": GROUP,
        "session_timeout_ms": 30_000,
        "member_id": member,
        "protocol_type": "consumer",
        "protocols": RANGE,
        **({"rebalance_timeout_ms": 30_000} if version else {}),
    } | options
    return call("JoinGroup", version, name=name, **({"client_id": name} if name else {}), **body)


def sync(of: str, *assignments: tuple[Any, bytes], version: int = 2, **options: Any) -> Step:
    return call("SyncGroup", version, **member(of), assignments=list(assignments), **options)


def member(of: str) -> dict[str, Any]:
    return {"group_id": GROUP, "generation_id": Told(of, "generation_id"), "member_id": Told(of)}


def changed(step: Step, **body: Any) -> Step:
    """The same request with other fields."""
    return Step(step.api, step.version, {**step.body, **body}, step.name, step.connection, step.kind, step.client_id)


def heartbeat(of: str, version: int = 2) -> Step:
    return call("Heartbeat", version, **member(of))


def leave(of: str, version: int = 2) -> Step:
    return call("LeaveGroup", version, group_id=GROUP, member_id=Told(of))


def commit(*rows: tuple[Any, ...], of: str = "", version: int = 3, **options: Any) -> Step:
    """Rows of (topic, partition, offset, metadata)."""
    identity = member(of) if of else {"group_id": GROUP}
    topics = [(topic, [(partition, offset, -1, -1, metadata)]) for topic, partition, offset, metadata in rows]
    return call("OffsetCommit", version, topics=topics, **identity | options)


def committed(*topics: tuple[str, list[int]], version: int = 3, **options: Any) -> Step:
    return call("OffsetFetch", version, **{"group_id": GROUP, "topics": list(topics) or None} | options)


def describe(*groups: str, version: int = 2) -> Step:
    return call("DescribeGroups", version, groups=groups or [GROUP])


def wait(milliseconds: int) -> Step:
    """A fetch of nothing."""
    return fetch(("@empty", 0, 0), max_wait_ms=milliseconds)


def _a_second_joins() -> Script:
    """While "one" is the only member, and assigned."""
    return [find(), join("one"), sync("one", (Told("one"), b"all")), join("two", **parked("two"))]


def _two_members() -> Script:
    """Both in generation 2, assigned; the leader is "one"."""
    script = [*_a_second_joins(), heartbeat("one"), join("one", Told("one")), take("two"), sync("two", **parked("two"))]
    return [*script, sync("one", (Told("one"), b"first"), (Told("two"), b"second")), take("two")]


def found_coordinators() -> Script:
    script: Script = []
    for version in range(3):
        script += [find(version), find(version, ""), find(version, "@" + "x" * 300)]
    script += [find(1, key_type=2), find(1, key_type=-1)]
    return script


def life_of_a_group() -> Script:
    """One member in every version: join, sync, heartbeat, describe, list, leave."""
    script: Script = [find(), describe(), leave("nobody"), heartbeat("nobody"), sync("nobody")]
    for version in JOIN_VERSIONS:
        other = min(version, 2)
        name = f"v{version}"
        shown = [describe(version=other), call("ListGroups", other)]
        script += [join(name, version=version), describe(version=other), heartbeat(name, other)]
        script += [sync(name, (Told(name), b"all"), version=other), sync(name, version=other)]
        script += [heartbeat(name, other), *shown]
        script += [leave(name, other), leave(name, other), heartbeat(name, other), *shown]
    return script


def refused_joins() -> Script:
    script: Script = [find()]
    for version in JOIN_VERSIONS:
        script += [
            join(version=version, group_id=""),
            *(join(version=version, session_timeout_ms=timeout_ms) for timeout_ms in (99, 300_001, -1)),
            join(member="nobody", version=version),
            join(version=version, group_id=f"@fresh{version}", protocols=[]),
            join(version=version, group_id=f"@fresh{version}", protocol_type=""),
            join(version=version, group_id=f"@fresh{version}", member="nobody"),
            describe(f"@fresh{version}"),
        ]
    script += [join("one"), join(protocol_type="connect"), join(protocols=[("roundrobin", b"")]), join(protocols=[])]
    return [*script, join(member="nobody"), join(member="nobody", protocol_type="connect")]


def refused_syncs_and_heartbeats() -> Script:
    script: Script = [find(), join("one")]
    for version in THREE_VERSIONS:
        for step in (sync("one", version=version), heartbeat("one", version)):
            script += [changed(step, group_id=group) for group in ("", "@other")]
            script += [changed(step, member_id=member_id) for member_id in ("nobody", "")]
            script += [changed(step, generation_id=generation) for generation in (2, -1, 0)]
    script += [sync("one", (Told("one"), b"all"), ("nobody", b"none"))]
    for version in THREE_VERSIONS:
        step = heartbeat("one", version)
        script += [step, changed(step, generation_id=2), changed(step, member_id="nobody")]
        script += [changed(leave("one", version), group_id=""), changed(leave("one", version), member_id="nobody")]
    return script


def a_second_member() -> Script:
    fresh = [("range", b"new")]
    script = [*_two_members(), describe(), heartbeat("one"), heartbeat("two")]
    script += [join("two", Told("two")), heartbeat("two")]
    script += [join("two", Told("two"), protocols=fresh, **parked("two")), heartbeat("one"), sync("one"), look("two")]
    script += [join("one", Told("one")), take("two"), heartbeat("one")]
    script += [join("one", Told("one")), join("two", Told("two"), protocols=fresh)]
    return [*script, sync("one"), sync("two"), heartbeat("two"), describe()]


def members_that_leave() -> Script:
    script = [*_two_members(), leave("one"), heartbeat("two"), heartbeat("one")]
    script += [join("two", Told("two")), sync("two", (Told("two"), b"all")), describe()]
    return [*script, leave("two"), describe(), join("three")]


def a_rebalance_while_syncing() -> Script:
    script = [*_a_second_joins(), join("one", Told("one")), take("two"), sync("two", **parked("two"))]
    script += [join("three", **parked("three")), take("two"), sync("one"), heartbeat("one")]
    script += [join("two", Told("two"), **parked("two")), look("three"), join("one", Told("one"))]
    return [*script, take("two"), take("three"), describe()]


def chosen_protocols() -> Script:
    a, b, c = ("a", b"A"), ("b", b"B"), ("c", b"C")
    script: Script = [find(), join("one", protocols=[a, b, c]), sync("one")]
    script += [join("two", protocols=[b, a], **parked("two"))]
    script += [join("three", protocols=[("d", b""), b], **parked("three"))]
    script += [join("four", protocols=[a, c]), join("one", Told("one"), protocols=[a, b, c])]
    return [*script, take("two"), take("three"), describe()]


def members_that_fall_silent() -> Script:
    """A session that ends, a rebalance that does not wait for ever, a client that hangs up while it waits."""
    short = {"session_timeout_ms": 500}
    script: Script = [find(), create("@empty"), join("one", **short), sync("one", (Told("one"), b"all"))]
    script += [heartbeat("one"), wait(1500), heartbeat("one"), describe()]
    hasty = {"rebalance_timeout_ms": 700}
    script += [join("two", **hasty), sync("two", (Told("two"), b"all")), join("three", **hasty), heartbeat("two")]
    script += [sync("three", (Told("three"), b"all")), join("four", **parked("four"), **short, **hasty), drop("four")]
    again = join("three", Told("three"), **hasty)  # with its first timeouts, which 2.0.1 keeps
    script += [again, describe(), sync("three", (Told("three"), b"all"))]
    return [*script, wait(1500), heartbeat("three"), again]


def commits_without_members() -> Script:
    script: Script = [find(), create("@a", 3)]
    for version in range(1, 5):
        script += [
            commit(("@a", 0, 10 + version, "why"), ("@a", 1, 7, None), ("@nope", 0, 1, ""), version=version),
            commit(("@a", 3, 1, ""), version=version),
            commit(version=version),
            commit(("@a", 0, 5, "x" * 4097), ("@a", 2, version, "x" * 4096), version=version),
            commit(("@a", 0, 5, ""), version=version, generation_id=3),
            commit(("@a", 0, 5, ""), version=version, generation_id=3, member_id="nobody"),
            commit(("@a", 0, -5, ""), version=version, group_id=""),
            commit(("@a", 0, 5, ""), version=version, group_id=f"@v{version}", generation_id=0),
            committed(("@a", [0, 1, 2, 3]), ("@nope", [0]), version=version),
            committed(("@a", [0]), version=version, group_id="@nobody"),
            committed(("@a", [0]), version=version, group_id=""),
        ]
        if version >= 2:
            script += [committed(version=version), committed(version=version, topics=[])]
    script += [committed(version=1, topics=None), describe(), call("ListGroups", 0)]
    script.append(call("DeleteGroups", 0, group_names=[""]))  # it has no prefix: the next script shall not see it
    return script


def commits_of_version_0() -> Script:
    return [
        find(),
        create("@a", 2),
        commit(("@a", 0, 5, "why"), version=0),
        commit(("@a", 2, 5, ""), ("@nope", 0, 5, ""), version=0),
        commit(("@a", 1, 6, "x" * 4097), version=0),
        committed(("@a", [0, 1, 2]), ("@nope", [0]), version=0),
        committed(("@a", [0]), version=0, group_id="@nobody"),
    ]


def offsets_of_version_0() -> Script:
    """Apache Kafka keeps them in ZooKeeper, for any client, and whatever becomes of the group and of the topic."""

    def both(offset: int, group: str = GROUP, topic: str = "@a") -> list[Step]:
        return [commit((topic, 0, offset, "m"), version=0, group_id=group), *fetched(group, topic)]

    def fetched(group: str = GROUP, topic: str = "@a") -> list[Step]:
        return [committed((topic, [0]), version=version, group_id=group) for version in (0, 1)]

    script: Script = [find(), create("@a", 2), create("@b"), *both(5), describe(), call("ListGroups", 0)]
    script += [
        commit(("@a", 0, 7, ""), version=2),
        *fetched(),
        join("one"),
        *both(8),
        sync("one", (Told("one"), b"all")),
    ]
    script += [*both(9), committed(("@a", [0, 0, 1, 7]), ("@nope", [0]), version=0), leave("one")]
    script += [call("DeleteGroups", 0, group_names=[GROUP]), *fetched(), *both(2**63 - 1), *both(-1), *both(-5)]
    for group in ("", ".", "..", "@a/b", "a//b", "/", "\0", "\ue000", "\U0001f600", "@" + "x" * 3000):
        script += [
            commit(("@b", 0, 3, ""), version=0, group_id=group),
            committed(("@b", [0]), version=0, group_id=group),
        ]
    script += [commit(("@a", 0, 3, "m" * 4097), ("@nope", 0, 1, ""), ("@b", 0, 4, None), version=0)]
    script += [
        *fetched(topic="@b"),
        call("DeleteTopics", 1, topic_names=["@b"], timeout_ms=20_000),
        *fetched(topic="@b"),
    ]
    return [*script, *both(6, topic="@b")]


def commits_of_members() -> Script:
    script: Script = [find(), create("@a", 3), join("one")]
    for version in range(1, 5):
        script += [commit(("@a", 0, version, ""), of=name, version=version) for name in ("one", "")]
    script.append(sync("one", (Told("one"), b"all")))
    for version in range(1, 5):
        good = commit(("@a", 0, version, "of a member"), of="one", version=version)
        script += [good, changed(good, generation_id=2), changed(good, generation_id=-1)]
        script += [changed(good, generation_id=-1, member_id=""), changed(good, member_id="nobody")]
        script += [changed(good, group_id="@other"), changed(good, group_id="")]
        script.append(committed(("@a", [0]), version=version))
    script += [join("two", **parked("two")), commit(("@a", 1, 9, ""), of="one"), join("one", Told("one")), take("two")]
    script += [commit(("@a", 1, 10, ""), of="two"), leave("one"), leave("two"), commit(("@a", 1, 11, ""), of="one")]
    script += [commit(("@a", 1, 12, "")), committed()]
    return [*script, call("DeleteTopics", 1, topic_names=["@a"], timeout_ms=20_000)]


def deleted_groups() -> Script:
    def delete(*names: str) -> Step:
        return call("DeleteGroups", version, group_names=list(names))

    script: Script = [find(), create("@a")]
    for version in range(2):
        name = f"d{version}"
        script += [delete(GROUP, "@nobody"), join(name), delete(GROUP, "@nobody", GROUP)]
        script += [sync(name), commit(("@a", 0, 5, ""), of=name), delete(GROUP), leave(name), delete(GROUP), delete()]
        script += [describe(GROUP, "@nobody", ""), committed(), call("ListGroups", version)]
    return script
