"""The leader of a partition that a client asked another broker for, and its address (KIP-951): in Fetch and Produce."""

from __future__ import annotations

from minibroker.protocol.primitives import Int32sb, NullableString, String
from minibroker.protocol.schema import array, default, row

CurrentLeader = row(
    "leader_id" / Int32sb @ default(-1),
    "leader_epoch" / Int32sb @ default(-1),
)

NodeEndpoints = array(
    "node_id" / Int32sb,
    "host" / String,
    "port" / Int32sb,
    "rack" / NullableString,
)
