"""Every metric: its name in Kafka, its name for Prometheus, its kind, its unit and its meaning.

Kafka's metrics get the names that the JMX exporter gives them by its rules for Kafka 2.0: in lower case, a rate as the
counter `_total`, a histogram as gauges with the label `quantile` and a counter `_count`. Metrics of a cluster have the
names of kafka_exporter. Where a row ends with `-> name`, that is the name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

COUNTER, GAUGE, HISTOGRAM = "counter", "gauge", "histogram"
RATE = "PerSec"
LABELS = {"client-id": "clientId"}  # for Prometheus, where they differ from Kafka's keys
RESOURCES = {f"kafka.server:type={name}": name for name in ("Produce", "Fetch", "Request")}  # what quotas are of


class Entry(NamedTuple):
    """`mbean` is the type and the name of Kafka's MBean, with the keys of its labels; empty for those of a cluster."""

    type: str
    name: str
    labels: tuple[str, ...]
    kind: str
    unit: str
    text: str
    prometheus: str


# MBean type (keys), then a row of each name: name, kind, unit, meaning.
BROKER = """\
kafka.server:type=BrokerTopicMetrics (topic)
  MessagesInPerSec              counter  records   appended; control records too
  BytesInPerSec                 counter  bytes     of the batches appended
  BytesOutPerSec                counter  bytes     of the batches that consumers got
  BytesRejectedPerSec           counter  bytes     of batches that were too large
  TotalProduceRequestsPerSec    counter  appends   to partitions, refused ones too
  TotalFetchRequestsPerSec      counter  reads     of partitions by fetches
  FailedProduceRequestsPerSec   counter  appends   refused for another reason than those that clients expect
  FailedFetchRequestsPerSec     counter  reads     refused likewise
  ProduceMessageConversionsPerSec counter records  converted to another message format when they were appended
  FetchMessageConversionsPerSec counter  reads     whose records were converted for an old client
kafka.server:type=BrokerTopicMetrics
  ReplicationBytesOutPerSec     counter  bytes     that followers got
kafka.server:type=ReplicaManager
  LeaderCount                   gauge    partitions  led by this broker
  PartitionCount                gauge    partitions  on this broker
  OfflineReplicaCount           gauge    partitions  whose disk has failed
  UnderReplicatedPartitions     gauge    partitions  with a replica that is out of sync
  UnderMinIsrPartitionCount     gauge    partitions  with fewer in-sync replicas than min.insync.replicas
  IsrExpandsPerSec              counter  changes   of in-sync replicas: one has joined
  IsrShrinksPerSec              counter  changes   of in-sync replicas: one has left
  FailedIsrUpdatesPerSec        counter  changes   that could not be written
kafka.server:type=KafkaServer
  BrokerState                   gauge    state     3: running as a broker
kafka.server:type=FetchSessionCache
  NumIncrementalFetchSessions   gauge    sessions  in the cache
  NumIncrementalFetchPartitionsCached gauge partitions in the sessions of the cache
  IncrementalFetchSessionEvictionsPerSec counter sessions that made room for others
kafka.server:type=DelayedOperationPurgatory (delayedOperation)
  PurgatorySize                 gauge    entries   under keys: an operation that waits for three partitions has three
  NumDelayedOperations          gauge    operations that wait
kafka.server:type=socket-server-metrics (listener, networkProcessor)
  connection-count              gauge    connections that are open
  connection-creation-total     counter  connections accepted
  connection-close-total        counter  connections closed
  incoming-byte-total           counter  bytes     that sockets have received; with TLS they are encrypted
  incoming-byte-rate            gauge    bytes/s   received in the last minute
  outgoing-byte-total           counter  bytes     that sockets have sent; with TLS they are encrypted
  outgoing-byte-rate            gauge    bytes/s   sent in the last minute
kafka.server:type=Produce (user, client-id)
  byte-rate                     gauge    bytes/s   that the clients of a quota produce -> kafka_server_quota_byte_rate
  throttle-time                 gauge    ms        for which they were throttled -> kafka_server_quota_throttle_time
kafka.server:type=Fetch (user, client-id)
  byte-rate                     gauge    bytes/s   that the clients of a quota fetch -> kafka_server_quota_byte_rate
  throttle-time                 gauge    ms        for which they were throttled -> kafka_server_quota_throttle_time
kafka.server:type=Request (user, client-id)
  request-time                  gauge    percent   of a core, for clients of a quota -> kafka_server_quota_request_time
  throttle-time                 gauge    ms        for which they were throttled -> kafka_server_quota_throttle_time
kafka.controller:type=KafkaController
  ActiveControllerCount         gauge    controllers 1: this broker is the controller, else 0
  OfflinePartitionsCount        gauge    partitions without a leader; 0 if not the controller
  PreferredReplicaImbalanceCount gauge   partitions not led by their first replica; 0 if not the controller
  GlobalTopicCount              gauge    topics    in the cluster; 0 if not the controller
  GlobalPartitionCount          gauge    partitions in the cluster; 0 if not the controller
kafka.controller:type=ControllerStats
  UncleanLeaderElectionsPerSec  counter  elections of a replica that was out of sync, by this controller
kafka.network:type=RequestMetrics (request, version)
  RequestsPerSec                counter  requests  by API and version
kafka.network:type=RequestMetrics (request, error)
  ErrorsPerSec                  counter  codes     in answers: one of each partition, also NONE
kafka.network:type=RequestMetrics (request)
  TotalTimeMs                   histogram ms       from the frame to the answer
  LocalTimeMs                   histogram ms       of the handler
  RemoteTimeMs                  histogram ms       parked: for records, replicas or members
  ThrottleTimeMs                histogram ms       for which quotas throttle the client
  RequestQueueTimeMs            histogram ms       0: no request is queued
  ResponseQueueTimeMs           histogram ms       0: no response is queued
  ResponseSendTimeMs            histogram ms       until the socket has taken the response
  RequestBytes                  histogram bytes    of the frame
kafka.network:type=RequestChannel
  RequestQueueSize              gauge    requests  0: no request is queued
  ResponseQueueSize             gauge    responses 0: no response is queued
kafka.log:type=Log (topic, partition)
  Size                          gauge    bytes     of all segments
  NumLogSegments                gauge    segments  of the log
  LogStartOffset                gauge    offset    of the first record
  LogEndOffset                  gauge    offset    of the next record
kafka.log:type=LogManager
  OfflineLogDirectoryCount      gauge    directories whose disk has failed
kafka.log:type=LogManager (logDirectory)
  LogDirectoryOffline           gauge    1 or 0    whether its disk has failed
kafka.log:type=LogFlushStats
  LogFlushRateAndTimeMs         histogram ms       of fsyncs of logs
kafka.log:type=LogCleaner
  cleaner-recopy-percent        gauge    percent   that the last compaction kept
  max-clean-time-secs           gauge    s         of the last compaction
kafka.log:type=LogCleanerManager
  max-dirty-percent             gauge    percent   of the dirtiest log that may be compacted
  time-since-last-run-ms        gauge    ms        since the cleaner looked for a log
kafka.cluster:type=Partition (topic, partition)
  ReplicasCount                 gauge    replicas  assigned
  InSyncReplicasCount           gauge    replicas  in sync
  UnderReplicated               gauge    1 or 0    whether a replica is out of sync
  UnderMinIsr                   gauge    1 or 0    whether there are fewer than min.insync.replicas
  AtMinIsr                      gauge    1 or 0    whether there are just as many
  LastStableOffsetLag           gauge    offsets   between the last stable offset and the high watermark
kafka.coordinator.group:type=GroupMetadataManager
  NumGroups                     gauge    groups    of all states
  NumGroupsPreparingRebalance   gauge    groups    that wait for their members
  NumGroupsCompletingRebalance  gauge    groups    that wait for the assignment
  NumGroupsStable               gauge    groups    whose members read
  NumGroupsDead                 gauge    groups    being removed
  NumGroupsEmpty                gauge    groups    without members
  NumOffsets                    gauge    offsets   committed
minibroker:type=Purgatory (delayedOperation, ending)
  Endings                       counter  operations whose wait has ended -> minibroker_delayed_operations_total
minibroker:type=Purgatory (delayedOperation)
  WaitedSeconds                 counter  s         that operations have waited -> minibroker_parked_seconds_total
minibroker:type=Purgatory (case)
  FetchWakeups                  counter  fetches   woken, by the case of DelayedFetch -> minibroker_fetch_wakeups_total
minibroker:type=Log
  FlushSeconds                  counter  s         of fsyncs of logs -> minibroker_fsync_seconds_total
minibroker:type=Compaction
  Compactions                   counter  compactions that were completed -> minibroker_compactions_total
  BytesRead                     counter  bytes     that compaction read -> minibroker_compaction_read_bytes_total
  BytesWritten                  counter  bytes     that compaction wrote -> minibroker_compaction_written_bytes_total
  UncleanablePartitions         gauge    partitions whose compaction failed -> minibroker_uncleanable_partitions
minibroker:type=Transactions (state)
  Count                         gauge    transactional ids in this state -> minibroker_transactions
minibroker:type=ConsumerGroups (state)
  Count                         gauge    groups    of the consumer protocol in this state -> minibroker_consumer_groups
minibroker:type=FetchingGroup (consumergroup, topic, partition)
  FetchedOffset gauge offset after what a group got that only fetches -> minibroker_consumergroup_fetched_offset
  Lag                           gauge    records   from there to the end -> minibroker_consumergroup_fetch_lag
minibroker:type=Sent
  SendfileBytes counter  bytes     of records sent without a copy -> minibroker_sendfile_bytes_total
  CopiedBytes                   counter  bytes     of records that were read and sent -> minibroker_copied_bytes_total
minibroker:type=Clock
  Timers                        gauge    timers    that are due some time -> minibroker_timers
  TurnedSeconds                 gauge    s   that tests have advanced the clock by -> minibroker_clock_turned_seconds
minibroker:type=Process
  ResidentBytes                 gauge    bytes     of memory in use -> process_resident_memory_bytes
  VirtualBytes                  gauge    bytes     of address space -> process_virtual_memory_bytes
  CpuSeconds                    counter  s         of processor time -> process_cpu_seconds_total
  LoopSeconds                   counter  s         that the serving thread has run -> minibroker_loop_cpu_seconds_total
  OpenFds                       gauge    descriptors that are open -> process_open_fds
  MaxFds                        gauge    descriptors that may be open -> process_max_fds
  StartTimeSeconds              gauge    s         since the epoch, when the process began -> process_start_time_seconds
"""

# Of any cluster: the names and labels of kafka_exporter; lag in seconds has the name that lag exporters give it.
CLUSTER = """
kafka_brokers () gauge brokers | in the cluster
kafka_broker_info (id, address) gauge 1 | for each broker
kafka_topic_partitions (topic) gauge partitions | of the topic
kafka_topic_partition_current_offset (topic, partition) gauge offset | of the next record that consumers read
kafka_topic_partition_oldest_offset (topic, partition) gauge offset | of the first record
kafka_topic_partition_in_sync_replica (topic, partition) gauge replicas | in sync
kafka_topic_partition_leader (topic, partition) gauge broker id | of the leader
kafka_topic_partition_leader_is_preferred (topic, partition) gauge 1 or 0 | whether the leader is the first replica
kafka_topic_partition_replicas (topic, partition) gauge replicas | assigned
kafka_topic_partition_under_replicated_partition (topic, partition) gauge 1 or 0 | whether a replica is out of sync
kafka_consumergroup_current_offset (consumergroup, topic, partition) gauge offset | committed by the group
kafka_consumergroup_current_offset_sum (consumergroup, topic) gauge offset | committed, the sum over the partitions
kafka_consumergroup_lag (consumergroup, topic, partition) gauge records | from the committed offset to the end
kafka_consumergroup_lag_sum (consumergroup, topic) gauge records | of lag, the sum over the partitions
kafka_consumergroup_members (consumergroup) gauge members | of the group
kafka_consumergroup_group_lag_seconds (group, topic, partition) gauge s | since the end was at the committed offset
"""


def entries_of_broker() -> list[Entry]:
    entries = []
    mbean_type = ""
    labels: tuple[str, ...] = ()
    for line in filter(None, BROKER.splitlines()):
        if not line.startswith(" "):
            mbean_type, _, keys = line.partition(" ")
            labels = labels_of(mbean_type, re.findall(r"[\w-]+", keys))
            continue
        name, kind, rest = line.split(None, 2)
        text, _, own = rest.partition(" -> ")
        unit, _, meaning = text.partition(" ") if not text.startswith("1 or 0") else ("1 or 0", "", text[6:])
        prometheus = own or name_for_prometheus(mbean_type, name, kind)
        entries.append(Entry(mbean_type, name, labels, kind, unit, meaning.strip(), prometheus))
    return entries


def labels_of(mbean_type: str, keys: Sequence[str]) -> tuple[str, ...]:
    """The labels of a type of MBean for Prometheus; those of quotas have the type among them."""
    labels = tuple(LABELS.get(key, key) for key in keys)
    return ("resource", *labels) if mbean_type in RESOURCES else labels


def entries_of_cluster() -> list[Entry]:
    entries = []
    for name, labels, kind, unit, text in re.findall(r"^(\w+) \((.*?)\) (\w+) (.+?) \| (.+)$", CLUSTER, re.MULTILINE):
        entries.append(Entry("", name, tuple(re.findall(r"\w+", labels)), kind, unit, text, name))
    return entries


def name_for_prometheus(mbean_type: str, name: str, kind: str) -> str:
    """The name that the JMX exporter's rules for Kafka 2.0 give an MBean."""
    domain, _, kept = mbean_type.partition(":type=")
    base = "_".join((domain, kept, name.removesuffix(RATE))).lower()
    base = re.sub(r"[^a-z0-9_]", "_", base)
    return f"{base}_total" if kind == COUNTER and not base.endswith("_total") else base


BY_MBEAN = {(entry.type, entry.name): entry for entry in entries_of_broker()}
BY_NAME = {entry.prometheus: entry for entry in (*entries_of_broker(), *entries_of_cluster())}
