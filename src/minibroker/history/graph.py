"""Cycles of a directed graph."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TypeVar

Node = TypeVar("Node", bound=Hashable)
Label = TypeVar("Label")
Graph = dict[Node, dict[Node, Label]]


def components(graph: Graph[Node, Label]) -> list[list[Node]]:
    """The sets of nodes, of two and more, that reach each other (Tarjan's algorithm, without recursion)."""
    index: dict[Node, int] = {}
    low: dict[Node, int] = {}
    stack: list[Node] = []
    on_stack: set[Node] = set()
    groups = []
    for root in list(graph):
        if root in index:
            continue
        work = [(root, iter(graph.get(root, ())))]
        index[root] = low[root] = len(index)
        stack.append(root)
        on_stack.add(root)
        while work:
            node, rest = work[-1]
            for after in rest:
                if after not in index:
                    index[after] = low[after] = len(index)
                    stack.append(after)
                    on_stack.add(after)
                    work.append((after, iter(graph.get(after, ()))))
                    break
                if after in on_stack:
                    low[node] = min(low[node], index[after])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    group: list[Node] = []
                    while not group or group[-1] is not node:
                        group.append(stack.pop())
                    on_stack.difference_update(group)
                    if len(group) > 1:
                        groups.append(group)
    return groups


def shortest_cycle(graph: Graph[Node, Label], nodes: list[Node]) -> list[Node]:
    """A cycle through the first of these nodes, which reach each other, with the fewest others."""
    start, inside = nodes[0], set(nodes)
    came_from: dict[Node, Node] = {}
    queue = deque([start])
    while queue:
        node = queue.popleft()
        for after in graph.get(node, ()):
            if after == start:
                ring = [node]
                while ring[-1] != start:
                    ring.append(came_from[ring[-1]])
                return ring[::-1]
            if after in inside and after not in came_from:
                came_from[after] = node
                queue.append(after)
    raise ValueError("these nodes do not reach each other")
