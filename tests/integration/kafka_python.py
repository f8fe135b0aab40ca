"""kafka-python inside a test's own process, where its drivers (drivers/) would be in the way."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The package reads its schemas by a function that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer as KafkaConsumer
    from kafka import KafkaProducer as KafkaProducer
    from kafka import TopicPartition as TopicPartition
    from kafka.protocol.broker_version_data import BROKER_API_VERSIONS as BROKER_API_VERSIONS
    from kafka.structs import OffsetAndMetadata as OffsetAndMetadata
