"""Did records reach only later operations?

A poll that returns only committed records follows the send, or the commit, of each of them. If every one of these
edges goes forward in the time of the file, no cycle is possible: so the graph is built only when one goes back, or for
cycles of writes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

from minibroker.history.findings import (
    EARLY_READ,
    OWN_UNCOMMITTED_READ,
    READ_CYCLE,
    WRITE_CYCLE,
    Actor,
    Finding,
    found,
    shown,
)
from minibroker.history.graph import Graph, components, shortest_cycle
from minibroker.history.logs import Judged
from minibroker.history.model import Outcome, Partition, Poll, Process, Send, Transaction


class Edge(NamedTuple):
    """Why one operation comes before another: by a record that was polled or overwritten; None within a process."""

    partition: Partition | None
    offset: int
    is_write: bool = False


class EarlyRead(NamedTuple):
    """A poll that returned a record before it could be seen."""

    partition: Partition
    offset: int
    send: Send
    poll: Poll


IN_ORDER = Edge(None, 0)


def check_information(judged: Judged, *, write_cycles: bool) -> Iterator[Finding]:
    early = early_reads(judged)
    if not early and not write_cycles:
        return
    graph = dependencies(judged, write_cycles=write_cycles)
    groups = components(graph)
    number_of = {node: number for number, nodes in enumerate(groups) for node in nodes}
    for nodes in groups:
        yield cycle(judged, graph, nodes)
    reported = set()
    for each in early:
        reader, writer = node_of(each.poll), node_of(each.send)
        if reader is not writer and reader in number_of and number_of[reader] == number_of.get(writer):
            continue  # the cycle has it
        if reader is writer or judged.outcome(each.send) is not Outcome.FAILED:  # else it is an aborted read
            if (each.partition, each.offset) not in reported:
                yield too_early(judged, each)
            reported.add((each.partition, each.offset))


def node_of(operation: Send | Poll) -> Actor:
    return operation if operation.transaction is None else operation.transaction


def committed_reads(judged: Judged) -> Iterator[tuple[Partition, int, Send, Poll]]:
    """Every record of known origin that a poll returned as committed."""
    for process in judged.history.processes.values():
        for poll in process.reading:
            if not isinstance(poll, Poll) or not poll.committed_only:
                continue
            for partition, first, last in poll.runs:
                writers = judged.logs[partition].writers
                for offset in range(first, last + 1):
                    send = writers.get(offset)
                    if send is not None:
                        yield partition, offset, send, poll


def early_reads(judged: Judged) -> list[EarlyRead]:
    skew = judged.history.skew
    if not any(
        sight.committed is not None
        and offset in log.writers
        and sight.committed.ended + skew < log.writers[offset].may_be_seen_from
        for log in judged.logs.values()
        for offset, sight in log.partition.seen.items()
    ):
        return []
    return [EarlyRead(*each) for each in committed_reads(judged) if each[3].ended + skew < each[2].may_be_seen_from]


def dependencies(judged: Judged, *, write_cycles: bool) -> Graph[Actor, Edge]:
    graph: Graph[Actor, Edge] = defaultdict(dict)
    for partition, offset, send, poll in committed_reads(judged):
        writer, reader = node_of(send), node_of(poll)
        if writer is not reader and judged.outcome(send) is not Outcome.FAILED:
            graph[writer].setdefault(reader, Edge(partition, offset))
    for process in judged.history.processes.values():
        follow_each_other(graph, process)
    for log in judged.logs.values() if write_cycles else ():
        offsets = sorted({*log.writers, *log.acknowledged})
        writers = [(offset, log.writers.get(offset) or log.acknowledged[offset]) for offset in offsets]
        seen = [(offset, node_of(send)) for offset, send in writers if judged.outcome(send) is not Outcome.FAILED]
        for (_, before), (offset, after) in pairwise(seen):
            if before is not after:
                graph[before].setdefault(after, Edge(log.partition, offset, is_write=True))
    return graph


def follow_each_other(graph: Graph[Actor, Edge], process: Process) -> None:
    """Add an edge to each operation of a process from the last one that had ended before it began."""
    polls = [each for each in process.reading if isinstance(each, Poll)]
    operations: list[Send | Poll] = [*process.sends, *polls]
    nodes = list(dict.fromkeys(map(node_of, operations)))
    ended = sorted((node for node in nodes if not is_unknown(node)), key=lambda each: each.ended)
    position = 0
    for node in sorted(nodes, key=lambda each: each.began):
        while position < len(ended) and ended[position].ended < node.began:
            position += 1
        if position:
            graph[ended[position - 1]].setdefault(node, IN_ORDER)


def is_unknown(node: Actor) -> bool:
    """Whether it may have its effect later than it ended."""
    return not isinstance(node, Poll) and node.outcome is Outcome.UNKNOWN


def cycle(judged: Judged, graph: Graph[Actor, Edge], nodes: list[Actor]) -> Finding:
    ring = shortest_cycle(graph, nodes)
    names = [f"{'the transaction of ' * isinstance(node, Transaction)}{judged.named(node)}" for node in ring]
    edges = [graph[node][after] for node, after in zip(ring, [*ring[1:], ring[0]], strict=True)]
    steps = [f"{how(edge)} {after}" for edge, after in zip(edges, [*names[1:], "the first"], strict=True)]
    records = [(edge.partition, edge.offset) for edge in edges if edge.partition is not None]
    is_read = any(not edge.is_write for edge in edges if edge.partition is not None)
    text = f"{names[0]} {', which '.join(steps)}"
    kind = READ_CYCLE if is_read else WRITE_CYCLE
    return found(kind, records[0][0], [offset for _, offset in records], (), ring, text)


def how(edge: Edge) -> str:
    if edge.partition is None:
        return "came before"
    if edge.is_write:
        return f"wrote {edge.partition} before offset {edge.offset} of"
    return f"wrote {edge.partition} offset {edge.offset}, polled by"


def too_early(judged: Judged, each: EarlyRead) -> Finding:
    transaction = each.send.transaction
    record = f"{each.partition} offset {each.offset} {shown(each.send.value)}"
    reader = judged.named(each.poll)
    if transaction is not None and each.poll.transaction is transaction:
        kind, text = OWN_UNCOMMITTED_READ, f"{record} was polled by {reader} in the transaction that sent it"
    else:
        what = "the send" if transaction is None else "the commit"
        begin = judged.history.place(each.send.may_be_seen_from)
        text = f"{record} was polled by {reader} before {what} of {each.send.process.name} began ({begin})"
        kind = EARLY_READ
    return found(kind, each.partition, [each.offset], [each.send.value], [each.send, each.poll], text)
