"""A cluster of brokers on this machine, each a process of its own, which replicate to each other.

with Cluster(brokers=3) as cluster:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, acks="all")
    cluster.kill(cluster.leader_of("orders", 0))
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shutil
import signal
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from minibroker.administered import Administered
from minibroker.cluster_clock import ClusterClock
from minibroker.cluster_verbs import ClusterVerbs
from minibroker.errors import BrokerError
from minibroker.process import START_TIMEOUT_SECONDS, Broker, is_paused, secured
from minibroker.storage.cluster_settings import replicas_of, settings_of_cluster

if TYPE_CHECKING:
    from minibroker.acl import Acl
    from minibroker.control import Control
    from minibroker.faults import FaultsOfCluster


class Cluster(Administered, ClusterVerbs):
    """Brokers with the ids 1, 2, ...; `start` and `close` them, or use it in a `with`.

    `brokers`: how many.
    `data_dir`: the directory of all their data, which is kept; None for a temporary one, which `close` removes.
    `settings`: Kafka's broker settings by name, of all brokers. Without values for them, new topics have a replica on
    up to three brokers (`default.replication.factor`), and so have those of the coordinators.
    `racks`: the rack of each broker, in the order of their ids.
    `log_prefix`: where the brokers log, `PREFIX-1.log` and so on; kept if it is given.
    `security`, `users`, `mechanisms` and `acls` are those of `Broker`, the same for all.
    Other arguments are those of `Broker`, for each of them. All have `clock` and `faults`.

    A Cluster is not thread-safe.
    """

    def __init__(
        self,
        brokers: int = 3,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        settings: Mapping[str, object] | None = None,
        racks: Sequence[str] | None = None,
        log_prefix: str | os.PathLike[str] | None = None,
        security: str | None = None,
        users: Mapping[str, str] | Iterable[str] = (),
        mechanisms: Sequence[str] | None = None,
        acls: Iterable[Acl] | None = None,
        **of_each: Any,
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has a broker at least, not {brokers}")
        if racks is not None and len(racks) != brokers:
            raise ValueError(f"{len(racks)} racks for {brokers} brokers; each broker has one")
        self._work_dir = Path(tempfile.mkdtemp(prefix="minibroker-cluster-"))
        self._data_dir = self._work_dir if data_dir is None else Path(data_dir)
        common: dict[str, object] = {**settings_of_cluster(brokers, of_each.get("act_as")), **(settings or {})}
        try:
            self._security = secured(
                security, self._work_dir / "certificates", users=users, mechanisms=mechanisms, acls=acls
            )
        except BaseException:
            shutil.rmtree(self._work_dir)
            raise
        self._brokers = {
            broker_id: Broker(
                data_dir=self._data_dir / str(broker_id),
                cluster_dir=self._data_dir / "cluster",
                settings={
                    **common,
                    "broker.id": broker_id,
                    **({} if racks is None else {"broker.rack": racks[broker_id - 1]}),
                },
                control=True,
                log_file=None if log_prefix is None else f"{os.fspath(log_prefix)}-{broker_id}.log",
                security=self._security,
                **of_each,
            )
            for broker_id in range(1, brokers + 1)
        }
        self._clock = ClusterClock(self._controls)
        self._default_replicas = replicas_of(brokers)
        atexit.register(self.close)

    def start(self, broker_id: int | None = None, *, timeout_seconds: float = START_TIMEOUT_SECONDS) -> Cluster:
        """Start all brokers that do not run, together, or one, with its port and files; wait until they are ready.

        Raises BrokerError.
        """
        starting = [self.broker(broker_id)] if broker_id is not None else self._not_running()
        for broker in starting:
            broker.launch()
        for broker in starting:
            broker.await_ready(timeout_seconds=timeout_seconds)
            self._clock.catch_up(self._id_of(broker), has_started=True)
        return self

    def stop(self, broker_id: int | None = None) -> None:
        """Stop all brokers in order, or one: others lead its partitions before it ends. Raises BrokerError."""
        for broker in [self.broker(broker_id)] if broker_id is not None else self._brokers.values():
            broker.stop()

    def kill(self, broker_id: int) -> None:
        """Kill a broker without warning (SIGKILL), as a crash would."""
        self.broker(broker_id).kill()

    def pause(self, broker_id: int) -> None:
        """Stop the process of a broker (SIGSTOP): its port accepts connections, and nothing is answered."""
        pid = self.broker(broker_id).pid
        os.kill(pid, signal.SIGSTOP)
        self.wait_for(lambda: is_paused(pid))

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on."""
        os.kill(self.broker(broker_id).pid, signal.SIGCONT)
        self._clock.catch_up(broker_id, has_started=False)

    def close(self) -> None:
        """Stop all brokers, and remove temporary files."""
        atexit.unregister(self.close)
        with contextlib.ExitStack() as closing:
            closing.callback(shutil.rmtree, self._work_dir, ignore_errors=True)
            for broker in self._brokers.values():
                closing.callback(broker.close)
                if broker.is_running:
                    closing.callback(os.kill, broker.pid, signal.SIGCONT)

    def broker(self, broker_id: int) -> Broker:
        """The broker of that id. Raises BrokerError if there is none."""
        if broker_id not in self._brokers:
            raise BrokerError(f"there is no broker {broker_id}; the ids are {', '.join(map(str, self._brokers))}")
        return self._brokers[broker_id]

    def restore(self) -> None:
        """Have all brokers run again.

        Let paused ones go on, lift their faults, release followers and heal the network. Then start the brokers that
        have ended, which the controller has to reach.
        """
        for broker_id, broker in self._brokers.items():
            if broker.is_running:
                if is_paused(broker.pid):
                    self.resume(broker_id)
                broker.faults.lift_all()
        self.release_follower()
        self.heal()
        self.start()

    def reset(self) -> None:
        """Restore the cluster, and delete all topics and groups."""
        from minibroker.administration import empty

        self.restore()
        with self._administered() as client:
            empty(client)
        self.wait_for(
            lambda: not any(each.call("cluster.status")["being_deleted"] for each in self._controls().values())
        )

    @property
    def clock(self) -> ClusterClock:
        """The clock of all brokers."""
        return self._clock

    @property
    def faults(self) -> FaultsOfCluster:
        """Makes faults in all brokers."""
        from minibroker.faults import FaultsOfCluster

        return FaultsOfCluster(self._controls)

    # -- topics and records -----------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        *,
        partitions: int = 1,
        replication_factor: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic, by default with a replica on up to three brokers; return when all brokers show its leaders.

        Raises BrokerError.
        """
        from minibroker.administration import create_topic

        with self._administered() as client:
            create_topic(
                client,
                name,
                partitions=partitions,
                num_partitions=partitions,
                replication_factor=self._default_replicas if replication_factor is None else replication_factor,
                configs=configs or {},
            )
        for number in range(partitions):
            self.until_leader(name, number)

    def _administration_addresses(self) -> str:
        live = self._controls()
        if not live:
            raise BrokerError("no broker of the cluster runs; start one")
        return ",".join(self._brokers[each]._administration for each in live)

    def _check_alive(self) -> None:
        """Wait on: brokers of a cluster end as tests want it."""

    def _scene(self) -> str:
        return ""

    def _controls(self) -> dict[int, Control]:
        return {
            broker_id: broker._control
            for broker_id, broker in self._brokers.items()
            if broker.is_running and not is_paused(broker.pid)
        }

    def _id_of(self, broker: Broker) -> int:
        return next(broker_id for broker_id, each in self._brokers.items() if each is broker)

    @property
    def brokers(self) -> list[Broker]:
        """All brokers, in the order of their ids."""
        return list(self._brokers.values())

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers, whether or not they run."""
        return list(self._brokers)

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,host:port,...` of all brokers, for clients. Raises BrokerError before `start`."""
        return ",".join(broker.bootstrap_servers for broker in self._brokers.values())

    @property
    def schema_registry_url(self) -> str:
        """The addresses of the schema registries of all brokers, one beside each, which all answer alike; separated by
        commas, as serializers take them. Raises BrokerError unless made with `schema_registry=True`."""
        return ",".join(broker.schema_registry_url for broker in self._brokers.values())

    def __enter__(self) -> Cluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _not_running(self) -> list[Broker]:
        return [broker for broker in self._brokers.values() if not broker.is_running]
