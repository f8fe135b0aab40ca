"""The internal topics of the coordinators: their partition counts and configs.

As kafka 2.0.1 GroupMetadataManager.offsetsTopicConfigs and TransactionStateManager.transactionTopicConfigs.
"""

from __future__ import annotations

from typing import NamedTuple

from minibroker.broker.cluster.metadata_cache import TRANSACTION_STATE_TOPIC
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.protocol.group_records import GROUP_METADATA_TOPIC


class InternalTopic(NamedTuple):
    partition_count: int
    configs: dict[str, str]


def internal_topics(config: KafkaConfig) -> dict[str, InternalTopic]:
    """By name."""
    return {
        GROUP_METADATA_TOPIC: InternalTopic(
            config.offsets_topic_num_partitions,
            {
                "cleanup.policy": "compact",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
                "compression.type": "producer",
            },
        ),
        TRANSACTION_STATE_TOPIC: InternalTopic(
            config.transaction_state_log_num_partitions,
            {
                "unclean.leader.election.enable": "false",
                "compression.type": "uncompressed",
                "cleanup.policy": "compact",
                "min.insync.replicas": "1",
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
            },
        ),
    }
