"""The brokers of a round: minibrokers alone, in a `Cluster`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from minibroker import Cluster
from minibroker.errors import BrokerError
from minibroker.faults import Faults
from minibroker.protocol.api import ApiKey
from tests.nemesis.plan import SENT, Fault, Plan, place_of

TEXT_BYTES = 30_000  # of a setting
TOPIC, SET = 2, 0  # of IncrementalAlterConfigs: the type of a resource, and what becomes of its setting
VERB_SECONDS = 0.5  # a verb may be impossible while other faults last


class Ours(Cluster):
    """A `Cluster` with what else a round asks for."""

    def __init__(self, plan: Plan, directory: Path) -> None:
        super().__init__(
            plan.brokers, data_dir=directory / "data", settings=plan.settings, log_prefix=directory / "broker"
        )

    def launch(self, broker_id: int) -> None:
        self.broker(broker_id).launch()

    def await_ready(self, broker_id: int) -> None:
        self.broker(broker_id).await_ready()

    def is_running(self, broker_id: int) -> bool:
        return self.broker(broker_id).is_running

    def faults_of(self, broker_id: int) -> Faults:
        return self.broker(broker_id).faults

    def ask_controller(self, api_key: ApiKey, **body: Any) -> Any:
        controller = self.controller
        if controller not in self._controls():
            raise BrokerError(f"the controller, broker {controller}, cannot be asked")
        with self.broker(controller)._administered() as client:
            return client.at_controller(api_key, **body)

    def lengthen_journal(self, journal_bytes: int) -> None:
        journal = self._data_dir / "cluster" / "state"
        while (size := journal.stat().st_size) < journal_bytes:
            # A setting of text that has no effect without a throttle. Some of its texts are longer than half a journal.
            replicas = ",".join(f"{size}:{number}" for number in range(1 + min(TEXT_BYTES, journal_bytes - size) // 12))
            setting = ("follower.replication.throttled.replicas", SET, replicas)
            self.ask_controller(
                ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[(TOPIC, SENT, [setting])], validate_only=False
            )

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> Any:
        rows = [(topic, [(partition, list(replicas) or None)])]
        return self.ask_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, timeout_ms=0, topics=rows)

    def elect(self) -> Any:
        return self.ask_controller(ApiKey.ELECT_LEADERS, topic_partitions=None, timeout_ms=0)

    def stand_back(self) -> None:
        self.move_controller(timeout=VERB_SECONDS)

    def strike(self, fault: Fault, broker_id: int) -> Callable[[], None] | None:
        match fault.kind:
            case "move_leader":
                self.move_leader(*place_of(fault.target), fault.other, timeout=VERB_SECONDS)
            case "isolate":
                self.isolate(broker_id, fault.other, fault.direction)
                return self.heal
            case "hold":
                self.hold_follower(broker_id)
                return lambda: self.release_follower(broker_id)
        return None

    def wrong(self) -> list[str]:
        return unsettled(views_of(self)) or self._moving() or undeleted(self) or unequal_logs(self)

    def _moving(self) -> list[str]:
        """Return the reassignments that go on."""
        moving = self.ask_controller(ApiKey.LIST_PARTITION_REASSIGNMENTS, timeout_ms=0, topics=None).topics
        return [f"{topic.name} still moves: {topic.partitions}" for topic in moving]

    def logs(self) -> list[Path]:
        return [each.log_file for each in self.brokers]


def views_of(cluster: Ours) -> dict[int, list[dict[str, Any]]]:
    """All partitions as each broker sees them. Raises BrokerError."""
    return {
        broker_id: control.call("cluster.partitions")["partitions"]
        for broker_id, control in cluster._controls().items()
    }


def unsettled(views: Mapping[int, list[dict[str, Any]]]) -> list[str]:
    """Return what has not settled: replicas out of sync, of other epochs, or not committed to their ends."""
    wrong = []
    for broker_id, rows in views.items():
        for row in rows:
            name, replica = f"{row['topic']}-{row['partition']}", row["replica"]
            if sorted(row["in_sync_replicas"]) != sorted(row["replicas"]):
                wrong.append(f"{name}: ISR {row['in_sync_replicas']} of {row['replicas']}, says {broker_id}")
            if row["leader_seen"] != row["leader"]:
                wrong.append(f"{name}: broker {broker_id} shows the leader {row['leader_seen']}, not {row['leader']}")
            if (replica is not None) != (broker_id in row["replicas"]):
                wrong.append(f"{name}: broker {broker_id} has {replica}, assigned to {row['replicas']}")
            if replica is None:
                continue
            if replica["leader_epoch"] != row["leader_epoch"] or replica["leader"] != row["leader"]:
                wrong.append(f"{name}: broker {broker_id} is {replica}, and should be {row}")
            if replica["high_watermark"] != replica["log_end_offset"]:
                wrong.append(f"{name}: broker {broker_id} has committed up to {replica['high_watermark']} of {replica}")
    if len({tuple(sorted((row["topic"], row["partition"]) for row in rows)) for rows in views.values()}) > 1:
        wrong.append("the brokers do not know the same partitions")
    return wrong


def undeleted(cluster: Ours) -> list[str]:
    """Return the topics that are still being deleted, and the logs that no partition has."""
    wrong = []
    for broker_id, control in cluster._controls().items():
        being_deleted = control.call("cluster.status")["being_deleted"]
        rows = control.call("cluster.partitions")["partitions"]
        known = {f"{row['topic']}-{row['partition']}" for row in rows if row["replica"] is not None}
        if being_deleted:
            wrong.append(f"broker {broker_id} still deletes {being_deleted}")
        for each in Path(cluster.broker(broker_id).data_dir).iterdir():
            if each.is_dir() and not each.name.endswith("-delete") and each.name not in known:
                wrong.append(f"broker {broker_id} has the log {each.name}, and no such replica")
    return wrong


def unequal_logs(cluster: Ours) -> list[str]:
    """Return the partitions whose replicas have different bytes."""
    logs: dict[str, dict[int, bytes]] = {}
    for broker_id, broker in zip(cluster.broker_ids, cluster.brokers, strict=True):
        for row in views_of(cluster)[broker_id]:
            if row["replica"] is not None:
                name = f"{row['topic']}-{row['partition']}"
                segments = sorted((Path(broker.data_dir) / name).glob("*.log"))
                logs.setdefault(name, {})[broker_id] = b"".join(each.read_bytes() for each in segments)
    return [
        f"{name}: the logs differ: { ({broker_id: len(log) for broker_id, log in replicas.items()}) } bytes"
        for name, replicas in logs.items()
        if len(set(replicas.values())) > 1
    ]
