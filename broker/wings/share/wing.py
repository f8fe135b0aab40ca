"""Share groups (KIP-932): a kind of group, its APIs, and the state of the partitions that groups share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial

import trio

from minibroker.broker.apis.groups import KEY_SHARE
from minibroker.broker.apis.routes import Routes
from minibroker.broker.cluster.metadata_cache import SHARE_STATE_TOPIC
from minibroker.broker.cluster.sections import GROUP_CONFIGS
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.group.group_configs import GroupConfigs
from minibroker.broker.group.group_topics import GroupTopics
from minibroker.broker.metric import Found, families
from minibroker.broker.parts import BrokerParts
from minibroker.broker.replica.coordinator_log import CoordinatorLog
from minibroker.broker.replica.leading import ACKS_ALL
from minibroker.broker.serve_options import ServeOptions
from minibroker.broker.wing import Wing
from minibroker.broker.wings.share.asking import Asking
from minibroker.broker.wings.share.dead_letters import DeadLetters
from minibroker.broker.wings.share.group import ShareGroup, ShareGroupState
from minibroker.broker.wings.share.groups import ShareGroups
from minibroker.broker.wings.share.partition import State
from minibroker.broker.wings.share.sessions import Sessions
from minibroker.broker.wings.share.share_apis import ShareApis
from minibroker.broker.wings.share.shared import SharedPartitions
from minibroker.broker.wings.share.states import ShareStates
from minibroker.protocol.compression import Codec

FAMILIES = families("""\
groups = minibroker:type=ShareGroups (state)
  Count | self | gauge groups | of members that share partitions, in this state | minibroker_share_groups
""")
FEATURE = "share.version"
STATE_TIMEOUT_MS = 5000


class ShareWing(Wing):
    """The leader of a partition shares its records among members; the leader of a partition of `__share_group_state`
    keeps what has become of them; the coordinator of a group, its members."""

    def __init__(self, parts: BrokerParts) -> None:
        config, clock, timer = parts.config, parts.timers.clock, parts.timers.timer
        state = parts.state
        self._parts = parts
        configs = GroupConfigs(config, lambda: state.get(GROUP_CONFIGS))
        log = CoordinatorLog(
            SHARE_STATE_TOPIC,
            replica_manager=parts.replica_manager,
            partition_count=partial(parts.metadata_cache.partition_count, SHARE_STATE_TOPIC),
            clock=clock,
            codec=Codec.NONE,
            required_acks=ACKS_ALL,
            timeout_ms=STATE_TIMEOUT_MS,
        )
        self._states = ShareStates(
            log,
            parts.metadata_cache,
            clock,
            updates_per_snapshot=config.share_coordinator_snapshot_update_records_per_snapshot,
            run_steps=parts.background.run_steps,
        )
        self._asking = Asking(
            parts.others.to,
            broker_id=config.broker_id,
            states=self._states,
            replicas=parts.replica_manager,
            topics=parts.metadata_cache,
            clock=clock,
            timer=timer,
        )
        dead_letters = DeadLetters(parts, self._asking, configs)
        self._partitions = SharedPartitions(
            parts.replica_manager, self._asking, dead_letters, configs=configs, clock=clock, timer=timer
        )
        self._sessions = Sessions(config.group_share_max_share_sessions)
        self._groups = ShareGroups(
            parts.groups,
            GroupTopics(parts.metadata_cache),
            config=config,
            configs=configs,
            clock=clock,
            timer=timer,
            prepare=self._prepare,
            on_fenced=lambda group_id, member_id: self._apis.end_session(group_id, member_id),
            asking=self._asking,
            records_of=self.shared_records,
        )
        self._apis = ShareApis(
            self._groups,
            self._sessions,
            self._partitions,
            self._states,
            self._asking,
            configs,
            parts.metadata_cache,
            is_in_cluster=state.is_shared,
        )
        parts.groups.cache.add_kind(self._groups)
        parts.own.when_leading(self._states.on_leadership)
        parts.own.when_leading(self._partitions.on_leadership)
        parts.features.add(FEATURE, 0, 1)
        if state.is_shared:
            parts.coordinated[KEY_SHARE] = SHARE_STATE_TOPIC
        parts.probes.when_closed(self._apis.on_closed)

    @classmethod
    def is_asked_for(cls, config: KafkaConfig, options: ServeOptions) -> bool:
        return options.zookeeper is None and config.profile.has_setting("share.")

    def _prepare(self) -> None:
        """Have the topic of the state, before a group needs it."""
        if self._parts.metadata_cache.partition_count(SHARE_STATE_TOPIC) is None:
            self._parts.topic_admin.ensure_internal_topic(SHARE_STATE_TOPIC)

    def tasks(self) -> Sequence[Callable[[], Awaitable[object]]]:
        return (self._ask_others,) if self._parts.state.is_shared else ()

    async def _ask_others(self) -> None:
        async with trio.open_nursery() as nursery:
            self._asking.start(nursery)
            await trio.sleep_forever()

    def stop(self) -> None:
        self._asking.stop()

    def routes(self) -> Routes:
        return self._apis.routes()

    def metrics(self) -> Iterator[Found]:
        states = Counter(group.state for group in self._parts.groups.all() if isinstance(group, ShareGroup))
        for state in ShareGroupState:
            yield FAMILIES["groups"].row((state.value,), states[state])

    def calls(self) -> Mapping[str, Callable[..., object]]:
        return {"shared_records": self.shared_records}

    def shared_records(self, group_id: str) -> list[tuple[str, int, int, int, str, int, str, int, int]]:
        """The runs of records in flight of a group, in order: topic, partition, first and last offset, state,
        deliveries; and while a member has them, its id, since when and for how long still, in ms."""
        now_ms = self._parts.timers.clock.monotonic_ms()
        found = []
        for shared in self._partitions.shared_by(group_id):
            for run in shared.partition.runs:
                is_held = run.state is State.ACQUIRED
                held = (run.member_id, now_ms - run.since_ms, run.until_ms - now_ms) if is_held else ("", 0, 0)
                found.append((*shared.name, run.first, run.last, run.state.name.lower(), run.delivery_count, *held))
        return found
