"""The record formats of kafka-python, written by others: what both agree on is not a mistake of ours alone."""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    # The package reads its schemas by a function that Python deprecates.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import codec as codec
    from kafka.record.default_records import DefaultRecordBatch as DefaultRecordBatch
    from kafka.record.default_records import DefaultRecordBatchBuilder as DefaultRecordBatchBuilder
    from kafka.record.legacy_records import LegacyRecordBatchBuilder as LegacyRecordBatchBuilder
    from kafka.record.memory_records import MemoryRecords as MemoryRecords
