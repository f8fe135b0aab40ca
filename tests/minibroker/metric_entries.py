"""The catalogues of metrics: those of a broker and its wings, and that of any cluster."""

from __future__ import annotations

from minibroker.broker.metric import Family
from minibroker.broker.wings.consumer import wing as consumer
from minibroker.broker.wings.looking import families as looking
from minibroker.broker.wings.quotas import wing as quotas
from minibroker.broker.wings.share import wing as share
from minibroker.metrics.catalogue import entries_of, entries_of_cluster

FAMILIES: list[Family] = [each for part in (looking, quotas, consumer, share) for each in part.FAMILIES.values()]
ENTRIES = [entry for family in FAMILIES for entry in entries_of(family.head()) if entry.kind]
ENTRIES += entries_of_cluster()
BY_NAME = {entry.prometheus: entry for entry in ENTRIES}
