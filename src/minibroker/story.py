"""The story of an explained request: its steps with their times, and sentences about it and those it had to do with.

The broker returns facts, in the JSON of the control calls `inside.explain` and `inside.exchange`. The command line, the
console and tests make their text of them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from minibroker.protocol.text import counted

NEVER = -1
# What ends the wait of a member in time.
GROUP_WAITS = {"JoinGroup": "all members have joined", "SyncGroup": "the leader's assignment has come"}
ROWS_TOLD = 3
READ_INSTEAD_KIB = 8

Explained = Mapping[str, Any]


class Step(NamedTuple):
    """A step: microseconds since the request arrived, None if it was not measured; what happened, and how."""

    us: int | None
    kind: str
    title: str
    detail: list[str]


def number(value: int) -> str:
    return f"{value:,}"


def many(count: int, noun: str) -> str:
    """`1,420 bytes`, `1 byte`."""
    return counted(count, noun).replace(str(count), number(count), 1)


def short(row: Mapping[str, Any]) -> str:
    return f"{row['topic']}-{row['partition']}"


def name_of(explained: Explained) -> str:
    """`Fetch 4711`, as a sentence names a request."""
    return f"{explained['api']} {explained['correlation_id']}"


def client_of(explained: Explained) -> str:
    """`#7 billing-1`; only the number without a client id."""
    client_id = explained["client_id"]
    return f"#{explained['connection']}" + (f" {client_id}" if client_id else "")


# -- steps ----------------------------------------------------------------------------------------------------


def steps_of(explained: Explained) -> list[Step]:
    """The steps of a request in their order."""
    return list(walk_steps(explained))


def walk_steps(explained: Explained) -> Iterator[Step]:
    us, wait, fetch, outcome = explained["us"], explained["wait"], explained["fetch"], explained["outcome"]
    yield Step(0, "read", f"Read: one frame, {many(explained['bytes_in'], 'byte')}", [])
    if fetch is not None:
        yield session_step(fetch["session"])
        if wait is None:
            yield Step(us["handled"], "found", found_title(fetch, fetch["bytes"]), walks(fetch))
        else:
            yield Step(None, "found", found_title(fetch, max(0, fetch["bytes_found_first"])), [])
    if explained["produce"] is not None:
        yield from append_steps(explained["produce"], us["handled"])
    if explained["group"] is not None:
        yield group_step(explained["group"], None if wait is not None else us["handled"])
    if explained["login"] is not None:
        yield login_step(explained["login"], us["handled"])
    if wait is not None:
        yield parked_step(explained, wait)
        if us["woken"] != NEVER:
            yield woken_step(explained, wait)
            if fetch is not None:
                title = f"Read again: {many(fetch['bytes'], 'byte')}"
                yield Step(us["answered"], "read again", title, walks(fetch))
    if outcome == "closed":
        yield Step(last_us(us), "closed", "Closed the connection", [explained["error"]])
        return
    if outcome == "gone":
        yield Step(None, "gone", "Its client has left", [])
        return
    if explained["error"]:
        yield Step(us["answered"], "failed", f"Failed: {explained['error']}", failures(explained))
    if us["answered"] != NEVER:
        yield answered_step(explained)
    if explained["sent"] is not None:
        yield sent_step(explained["sent"], us["sent"])


def last_us(us: Mapping[str, int]) -> int:
    return max(us.values())


def session_step(session: Mapping[str, Any]) -> Step:
    decision, epoch, partitions = session["decision"], session["asked_epoch"], session["partitions"]
    detail = [session["text"]]
    if decision == "incremental":
        title = f"Session {session['asked_id']}, epoch {epoch}: incremental"
        forgotten = f", drops {session['forgotten']}" if session["forgotten"] else ""
        named = f"names {session['named']} of its {many(partitions, 'partition')}{forgotten}"
        detail = [f"{named}; next epoch {session['next_epoch']}"]
    elif decision == "new":
        title = f"Session {session['answered_id']}: new" if session["answered_id"] else "A new session"
        detail = [f"{many(partitions, 'partition')}; next epoch 1"]
    elif decision in ("unknown id", "wrong epoch"):
        title = f"Session {session['asked_id']}, epoch {epoch}: {decision}"
    elif decision == "ended":
        title = f"Session {session['asked_id']}: ended"
    else:
        title = "No session"
    return Step(None, "session", title, detail)


def found_title(fetch: Mapping[str, Any], found_bytes: int) -> str:
    wanted = f"{number(found_bytes)} of {many(fetch['min_bytes'], 'byte')} wanted"
    return f"{many(fetch['asked'], 'partition')} read: {wanted}"


def walks(fetch: Mapping[str, Any]) -> list[str]:
    """How the first partitions with records were found, and which ones were at their end."""
    detail = []
    with_bytes = [row for row in fetch["partitions"] if row["bytes"] > 0]
    for row in with_bytes[:ROWS_TOLD]:
        index = row["index"]
        text = f"{short(row)} from {number(row['asked_offset'])}: {many(row['bytes'], 'byte')}"
        if index is None:
            if row["index_error"]:
                text += f"; no walk through its index: {row['index_error']}"
        else:
            headers = many(index["headers_looked_at"], "header")
            if index["entry"] >= 0:
                entry = f"index entry {index['entry']} is at {number(index['position'])}"
                text += f"; {entry}, {headers} looked at from there"
            else:
                text += f"; no index entry is before it, {headers} looked at from the start"
        detail.append(text)
    if len(with_bytes) > ROWS_TOLD:
        detail.append(f"and {many(len(with_bytes) - ROWS_TOLD, 'more partition')}")
    if not with_bytes:
        detail += [empty_reason(row) for row in fetch["partitions"][:ROWS_TOLD] if not row["error"]]
    return detail


def empty_reason(row: Mapping[str, Any]) -> str:
    """Why a partition had nothing to read."""
    place, offset, high_watermark = short(row), row["asked_offset"], row["high_watermark"]
    end, stable = row["log_end_offset"], row["last_stable_offset"]
    if offset >= end >= 0:
        return f"{place} was asked for at its log end offset, {number(offset)}"
    if offset >= high_watermark >= 0:
        ends = f"its high watermark is {number(high_watermark)}, its log end offset {number(end)}"
        return f"{place} was asked for at {number(offset)}: {ends}"
    if offset >= stable >= 0:
        return f"{place} was asked for at its last stable offset, {number(stable)}: a transaction is open"
    return f"{place} was asked for at {number(offset)}"


def append_steps(produce: Mapping[str, Any], us: int) -> Iterator[Step]:
    rows = produce["partitions"]
    for row in rows[:ROWS_TOLD]:
        batch = f"{many(row['records'], 'record')}, {many(row['bytes'], 'byte')}"
        if row["error"]:
            reasons = [row["message"]] if row["message"] else []
            yield Step(us, "append", f"{short(row)} refuses {batch}: {row['error']}", reasons)
            continue
        if row["is_duplicate"]:
            detail = [f"it has them from {number(row['base_offset'])} on: the producer has sent them twice"]
            yield Step(us, "append", f"{short(row)} has {batch} already", detail)
            continue
        before, after = row["high_watermark"]
        moved = f"from {number(before)} to {number(after)}" if before != after else f"stays at {number(after)}"
        detail = [row["validation"], f"its high watermark {'went ' if before != after else ''}{moved}"]
        if row["rolled"]:
            detail.append(f"a new segment was rolled, {number(row['segment'])}")
        yield Step(us, "append", f"{short(row)} takes {batch} at offset {number(row['base_offset'])}", detail)
    if len(rows) > ROWS_TOLD:
        yield Step(us, "append", f"and {many(produce['asked'] - ROWS_TOLD, 'more partition')}", [])


def named_partitions(partitions: Sequence[Sequence[Any]]) -> str:
    """A list of partitions, the first few by name."""
    named = ", ".join(f"{topic}-{partition}" for topic, partition in partitions[:ROWS_TOLD])
    more = len(partitions) - ROWS_TOLD
    return named if more <= 0 else f"{named} and {many(more, 'more partition')}"


def group_step(group: Mapping[str, Any], us: int | None) -> Step:
    state = f"{group['state']}, generation {group['generation']}, {many(group['members'], 'member')}"
    if not group["state"]:
        state = "another broker coordinates it"
    detail = []
    if group["why"]:
        detail.append(f"its last rebalance began because {group['why']}")
    if group["missed"]:
        detail.append(f"it went on without {', '.join(group['missed'][:ROWS_TOLD])}")
    if group["revokes"]:
        detail.append(f"the member gives up {named_partitions(group['revokes'])} first, and gets nothing until then")
    holders: dict[str, list[Sequence[Any]]] = {}
    for topic, partition, holder in group["lacks"]:
        holders.setdefault(holder, []).append((topic, partition))
    for holder, partitions in holders.items():
        detail.append(f"the member waits for {named_partitions(partitions)}, which {holder} has yet to give up")
    detail += [in_flight(*row) for row in group["records"][:ROWS_TOLD]]
    if len(group["records"]) > ROWS_TOLD:
        detail.append("and more records in flight; `minibroker groups describe` with --control lists them all")
    for topic, partition, offset, lag in group["offsets"][:ROWS_TOLD]:
        behind = f", its lag {number(lag)}" if lag >= 0 else ""
        detail.append(f"{topic}-{partition} is committed at {number(offset)}{behind}")
    return Step(us, "group", f"Group {group['group_id']}: {state}", detail)


def in_flight(
    topic: str,
    partition: int,
    first: int,
    last: int,
    state: str,
    deliveries: int,
    member: str,
    held_ms: int,
    left_ms: int,
) -> str:
    """`orders-0: 3 to 5 are acquired by m1 for 1,200 ms, and 2,800 ms more; delivery 2`."""
    records = f"{number(first)} is" if first == last else f"{number(first)} to {number(last)} are"
    holder = f" by {member} for {number(held_ms)} ms, and {number(left_ms)} ms more" if member else ""
    times = f"; delivery {number(deliveries)}" if deliveries else ""
    return f"{topic}-{partition}: {records} {state}{holder}{times}"


def login_step(login: Mapping[str, Any], us: int) -> Step:
    if login["mechanism"]:
        return Step(us, "login", f"A login by {login['mechanism']}", [f"enabled here: {', '.join(login['enabled'])}"])
    return Step(us, "login", "A token of a login", [login["message"]] if login["message"] else [])


def parked_step(explained: Explained, wait: Mapping[str, Any]) -> Step:
    us = explained["us"]["handled"]
    if wait["ended_by"] == "fault" and not wait["kind"]:
        return Step(us, "parked", "Held back by a fault", [])
    if wait["ended_by"] == "delay":
        return Step(us, "parked", "Held back: a login failed", [])
    limit = f", for {number(wait['max_wait_ms'])} ms at most" if wait["max_wait_ms"] >= 0 else ""
    detail = []
    if wait["watched"]:
        place = f"; wheel level {wait['level']}, slot {wait['slot']}" if wait["level"] >= 0 else ""
        detail.append(f"on {many(wait['watched'], 'partition')}{place}")
    elif explained["group"] is not None:
        detail.append("until the members of its group have come")
    return Step(us, "parked", f"Parked{limit}", detail)


def woken_step(explained: Explained, wait: Mapping[str, Any]) -> Step:
    us = explained["us"]["woken"]
    if explained["api"] in GROUP_WAITS:
        reason = "its time was over" if wait["ended_by"] == "time" else GROUP_WAITS[explained["api"]]
        kind = "expired" if wait["ended_by"] == "time" else "woken"
        return Step(us, kind, f"The rebalance goes on: {reason}", [cause_text(wait)] if cause_text(wait) else [])
    if wait["ended_by"] == "time":
        lacked = "" if explained["fetch"] is None else "there were not enough bytes until then"
        return Step(us, "expired", "Its time was over", [lacked] if lacked else [])
    title = f"Case {wait['case']}: {wait['case_text']}" if wait["case"] else "Its wait ended"
    return Step(us, "woken", title, [cause_text(wait)] if cause_text(wait) else [])


def cause_text(wait: Mapping[str, Any]) -> str:
    """Name in a sentence the event that ended a wait."""
    cause = wait["cause"]
    if cause is None:
        return {
            "flush": "the records are on disk",
            "fault": "the fault let it go",
            "delay": "connection.failed.authentication.delay.ms is over",
            "request": "a request that is no longer kept",
        }.get(wait["ended_by"], "")
    text = f"{name_of(cause)} of {client_of(cause)}"
    if cause["replica_id"] >= 0:
        return f"{text}, of the follower {cause['replica_id']}, moved its high watermark"
    row = next((each for each in cause["partitions"] if short(each) == wait["partition"]), None)
    if row is None or row["error"]:
        return text
    before, after = row["high_watermark"]
    moved = f"; its high watermark went from {number(before)} to {number(after)}" if before != after else ""
    return f"{text} appended {many(row['records'], 'record')} to {short(row)}{moved}"


def failures(explained: Explained) -> list[str]:
    rows = (explained["fetch"] or {}).get("partitions", ())
    return [f"{short(row)}: {row['error']}" for row in rows if row["error"]][:ROWS_TOLD]


def answered_step(explained: Explained) -> Step:
    us, fetch = explained["us"]["answered"], explained["fetch"]
    if explained["outcome"] == "silent":
        return Step(us, "answered", "No response: acks=0", [])
    size = many(explained["bytes_out"], "byte") if explained["bytes_out"] >= 0 else ""
    if fetch is None:
        title, detail = f"Answered: {size}", []
    else:
        title = f"Answered: {fetch['answered']} of {many(fetch['asked'], 'partition')}, {size}"
        left_out = fetch["left_out"]
        detail = [f"{many(left_out, 'partition')} without a change left out"] if left_out else []
    if explained["throttled_ms"]:
        detail.append(f"throttled for {number(explained['throttled_ms'])} ms: its quota is exceeded")
    return Step(us, "answered", title, detail)


def sent_step(sent: Mapping[str, Any], us: int) -> Step:
    how, size = sent["how"], many(sent["slice_bytes"], "byte")
    detail = []
    if how == "copied":
        if sent["slices"]:
            detail.append(f"records are copied: up to {READ_INSTEAD_KIB} KiB that is cheaper than sendfile")
    elif how == "encrypted":
        detail.append("TLS encrypts every byte: records are read, not sent by sendfile")
    elif how == "converted":
        detail.append("records are converted for an older client while they are sent")
    else:
        detail.append(f"{size} of records by sendfile, without a copy")
    calls = "" if sent["in_the_call"] else " by its connection's task"
    if sent["calls"] is not None:
        calls = f" in {many(sent['calls'], 'call')}"
    return Step(us, "sent", f"Sent{calls}", detail)


# -- sentences ------------------------------------------------------------------------------------------------


def happened(explained: Explained, others: Iterable[Explained] = ()) -> list[tuple[int, str]]:
    """The events of a request, of its cause, and of the requests that it woke, in microseconds."""
    events = [each for one in (explained, *others) for each in sentences(one)]
    return sorted(events, key=lambda each: each[0])


def sentences(explained: Explained) -> Iterator[tuple[int, str]]:
    arrived_us, us, wait = explained["arrived_us"], explained["us"], explained["wait"]
    fetch, produce, group = explained["fetch"], explained["produce"], explained["group"]
    name, client = name_of(explained), client_of(explained)
    who = f"{name} of {client}"
    handled_us = arrived_us + max(0, us["handled"])
    if produce is not None:
        for row in produce["partitions"][:ROWS_TOLD]:
            if row["error"] or row["is_duplicate"]:
                continue
            batch = f"{many(row['records'], 'record')}, {many(row['bytes'], 'byte')}"
            yield arrived_us, f"{who} appended {batch}, at {number(row['base_offset'])} of {short(row)}"
            before, after = row["high_watermark"]
            if before != after:
                yield (
                    arrived_us,
                    f"The high watermark of {short(row)} went from {number(before)} to {number(after)}"
                    + (f"; {many(len(explained['woke']), 'waiting request')} ended" if explained["woke"] else ""),
                )
    if wait is not None:
        found = f"found {number(max(0, fetch['bytes_found_first']))} bytes and " if fetch is not None else ""
        watched = f"; {many(wait['watched'], 'partition')} watched for it" if wait["watched"] else ""
        yield handled_us, f"{who} {found}is parked{watched}"
        if us["woken"] != NEVER:
            why = cause_text(wait) or ("its time was over" if wait["ended_by"] == "time" else "its wait ended")
            yield arrived_us + us["woken"], f"{name} goes on: {why}"
    if explained["outcome"] == "closed":
        yield arrived_us + last_us(us), f"{who}: the connection was closed: {explained['error']}"
    elif us["answered"] != NEVER:
        failed = f", with {explained['error']}" if explained["error"] else ""
        what = ""
        if fetch is not None:
            what = f" with {many(fetch['bytes'], 'byte')} of records"
        elif group is not None and group["offsets"]:
            topic, partition, offset, lag = group["offsets"][0]
            what = f": group {group['group_id']} is at {number(offset)} of {topic}-{partition}, its lag {number(lag)}"
        elif group is not None:
            what = f": group {group['group_id']} is {group['state']}, generation {group['generation']}"
        yield arrived_us + us["answered"], f"{who} was answered{what}{failed}"


def with_story(explained: Explained) -> dict[str, Any]:
    """The answer of `inside.exchange` with `steps` and `happened` in place of the facts about other requests."""
    others = explained["others"]
    return {name: value for name, value in explained.items() if name != "others"} | {
        "steps": [step._asdict() for step in steps_of(explained)],
        "happened": happened(explained, others),
    }


def story(explained: Explained) -> str:
    """The whole story as lines for people."""
    head = f"{explained['api']} v{explained['version']}, correlation {explained['correlation_id']}"
    lines = [f"{head}, {client_of(explained)}"]
    for step in steps_of(explained):
        at = "" if step.us is None else f"{step.us / 1000:.3f}"
        lines.append(f"{at:>10}  {step.title}")
        lines += [f"{'':>10}    {text}" for text in step.detail]
    return "\n".join(lines)


def brief_line(explained: Explained) -> str:
    """One line: the client, the request, its time, and what it waited for."""
    took_ms = max(explained["us"].values()) / 1000
    size = f"{number(explained['bytes_out'])} B" if explained["bytes_out"] >= 0 else "-"
    topics = ",".join(explained["topics"]) or "-"
    head = f"{client_of(explained)}  {explained['api']} v{explained['version']} {explained['correlation_id']}"
    text = f"{head}  {topics}  {took_ms:.3f} ms  {size}  {explained['error'] or explained['outcome']}"
    wait = explained["wait"]
    if wait is None:
        return text
    case = f" case {wait['case']}" if wait["case"] else ""
    cause = cause_text(wait)
    return text + case + (f": {cause}" if cause else "")
