"""The metrics of a minibroker by the names of Kafka's MBeans, for tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from minibroker.metrics.facts import Family

Call = Callable[..., Any]  # of a control socket, by name and keyword arguments


def families_of(call: Call) -> list[Family]:
    """All families of a broker, piece by piece."""
    piece = call("inside.metrics")
    families: list[Family] = list(piece["families"])
    while piece["scan"] is not None:
        piece = call("inside.metrics", scan=piece["scan"])
        families += piece["families"]
    return families


def by_mbean(call: Call) -> dict[str, float | dict[str, float]]:
    """Each value by its MBean, such as `kafka.log:type=Log,name=Size,topic=orders,partition=0`."""
    found: dict[str, float | dict[str, float]] = {}
    for family in families_of(call):
        keys = family["keys"]
        for row in family["rows"]:
            labels = "".join(f",{key}={value}" for key, value in zip(keys, row, strict=False) if value != "")
            for name, value in zip(family["names"], row[len(keys) :], strict=True):
                found[f"{family['type']},name={name}{labels}"] = value
    return found
