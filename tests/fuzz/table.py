"""All targets by name."""

from __future__ import annotations

from tests.fuzz.node_changes import Nodes
from tests.fuzz.stored import StoredRecords
from tests.fuzz.targets import Batches, ControlCalls, Files, Frames, Properties, Schemas, Target
from tests.fuzz.texts import Texts

TARGETS: dict[str, type[Target]] = {
    each.name: each for each in (Frames, Batches, ControlCalls, StoredRecords, Files, Schemas, Properties, Texts, Nodes)
}
