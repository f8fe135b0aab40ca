"""The record formats of kafka-python, and its table of releases. Others wrote them: what both agree on is not a mistake
of ours alone."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The package reads its schemas by a function that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as codec
    from kafka.protocol.broker_version_data import BROKER_API_VERSIONS as BROKER_API_VERSIONS
    from kafka.protocol.broker_version_data import (
        infer_broker_version_from_api_versions as infer_broker_version_from_api_versions,
    )
    from kafka.record.default_records import DefaultRecordBatch as DefaultRecordBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords as MemoryRecords
