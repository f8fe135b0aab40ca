"""Commits the progress of streaming queries to consumer groups, whose lag every tool for Kafka shows.

Spark's Kafka source commits nothing: a query's position is in its checkpoint. This listener commits the end offsets of
each micro-batch that is done to a group under the query's name, from the driver. A query never reads these offsets.

    with commit_progress(spark, bootstrap_servers="localhost:9092"):
        query = orders.writeStream.queryName("invoices") ... .start()
        query.awaitTermination()

    $ minibroker groups describe invoices

It works with any PySpark program from 3.4 on, and any Kafka. A commit that fails is logged, tried again with the next
progress, and never fails the query.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from kafka import KafkaAdminClient
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata, TopicPartition
from pyspark.sql import SparkSession
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

CLIENT_ID = "spark-progress-commits"
KAFKA_SOURCE = "Kafka"  # a source describes itself as KafkaV2[Subscribe[orders]]
CLOSE_SECONDS = 10.0

Offsets = dict[TopicPartition, int]

logger = logging.getLogger(__name__)


class ProgressCommits(StreamingQueryListener):
    """Commits the newest offsets of each group, in a thread of its own: a slow broker holds up no other listener.

    The end of a `with`, or `close`, waits for the last commits of queries that have ended.
    """

    def __init__(
        self,
        spark: SparkSession,
        bootstrap_servers: str,
        group: str | None,
        query: str | None,
        settings: dict[str, Any],
    ) -> None:
        self._spark = spark
        self._group = group
        self._query = query
        self._settings = {"client_id": CLIENT_ID, "bootstrap_servers": bootstrap_servers, **settings}
        self._client: Any = None
        self._turn = threading.Condition()
        self._groups: dict[str, str] = {}  # of the runs that have not ended
        self._newest: dict[str, Offsets] = {}
        self._due: set[str] = set()  # groups
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="progress-commits", daemon=True)
        self._thread.start()

    # -- events, each in Spark's thread ---------------------------------------------------------------------------

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        self._note(event.name, event.id, event.runId)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        offsets = {}
        for source in progress.sources:
            if source.description.startswith(KAFKA_SOURCE):
                offsets.update(offsets_in(source.endOffset))
        self._note(progress.name, progress.id, progress.runId, offsets)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Commit again what is committed: else the broker would forget it after its retention time."""
        with self._turn:
            group = self._groups.get(str(event.runId))
            if group in self._newest:
                self._due.add(group)
                self._turn.notify_all()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._turn:
            self._groups.pop(str(event.runId), None)
            self._turn.notify_all()

    def _note(
        self, name: str | None, query_id: object, run_id: object, offsets: Mapping[TopicPartition, int] = {}
    ) -> None:
        if self._query not in (None, name):
            return
        group = self._group or name or str(query_id)
        with self._turn:
            self._groups[str(run_id)] = group
            if offsets:
                self._newest.setdefault(group, {}).update(offsets)
                self._due.add(group)
                self._turn.notify_all()

    # -- commits --------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._turn:
                self._turn.wait_for(lambda: self._due or self._is_closed)
                if not self._due:
                    break
                group = self._due.pop()
                offsets = dict(self._newest[group])
            self._commit(group, offsets)
        self._disconnect()

    def _commit(self, group: str, offsets: Offsets) -> None:
        try:
            if self._client is None:
                self._client = KafkaAdminClient(**self._settings)
            entries = {at: OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
            refused = {
                at: error for at, error in self._client.alter_group_offsets(group, entries).items() if error.errno
            }
        except (KafkaError, OSError, AssertionError, ValueError) as error:
            logger.warning("the progress of a query is not committed to group %s: %s", group, error)
            self._disconnect()
            return
        for at, refusal in refused.items():
            logger.warning("offset %d of %s-%d is not committed to group %s: %s", offsets[at], *at, group, refusal)

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    # -- the end --------------------------------------------------------------------------------------------------

    def close(self, timeout_seconds: float = CLOSE_SECONDS) -> None:
        """Commit what queries that have ended have done, and listen no more; log what is not committed in time."""
        deadline = time.monotonic() + timeout_seconds
        active = {str(each.runId) for each in self._spark.streams.active}
        with self._turn:
            self._turn.wait_for(lambda: not self._groups.keys() - active, timeout_seconds)
        self._spark.streams.removeListener(self)
        with self._turn:
            self._is_closed = True
            self._turn.notify_all()
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            logger.warning("the progress of queries is not committed within %.0f s", timeout_seconds)

    def __enter__(self) -> ProgressCommits:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def commit_progress(
    spark: SparkSession,
    *,
    bootstrap_servers: str,
    group: str | None = None,
    query: str | None = None,
    **settings: Any,
) -> ProgressCommits:
    """Commit the progress of the session's streaming queries from now on; return the listener, to be closed.

    The group is `group`, else the name of the query, else its id. `query` chooses the query of one name. `settings` are
    those of kafka-python's clients, such as `security_protocol` and `ssl_cafile`.
    """
    commits = ProgressCommits(spark, bootstrap_servers, group, query, settings)
    spark.streams.addListener(commits)
    return commits


def offsets_in(end_offset: str | None) -> Offsets:
    """Return the offsets of a Kafka source's end, `{"orders": {"0": 12}}`; none before its first batch."""
    topics: dict[str, dict[str, int]] = json.loads(end_offset or "{}") or {}
    return {
        TopicPartition(topic, int(number)): at for topic, offsets in topics.items() for number, at in offsets.items()
    }
