"""Records and commits by kafka-python itself, for tests of the command line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

from minibroker.cli.cluster import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition

# kafka-python 3.0 forgets a rebalance that ends between two calls of poll, and joins again, perhaps for ever.
POLL_MS = 2000


class Records:
    """Writes, reads and commits, on one broker."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def write(self, topic: str, values: Sequence[str], *, partition: int = 0, timestamp_ms: int | None = None) -> None:
        """Each with the key k0, k1 and so on; `timestamp_ms` is of the first, a second lies between two."""
        if not values:
            return
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap)) as producer:
            for number, value in enumerate(values):
                at = None if timestamp_ms is None else timestamp_ms + 1000 * number
                producer.send(topic, value.encode(), f"k{number}".encode(), None, partition, at)
            producer.flush(20)

    def transaction(self, topic: str, values: Sequence[str], *, commit: bool) -> None:
        """Those values in one transaction."""
        with closing(KafkaProducer(bootstrap_servers=self._bootstrap, transactional_id=f"of-{topic}")) as producer:
            producer.init_transactions()
            producer.begin_transaction()
            for value in values:
                producer.send(topic, value.encode())
            producer.flush(20)  # or an abort throws away what was not sent yet
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()

    def read(self, topic: str, count: int, *, partition: int = 0) -> list[Any]:
        """The first records, as kafka-python has them."""
        with closing(self._consumer()) as consumer:
            consumer.assign([TopicPartition(topic, partition)])
            consumer.seek_to_beginning()
            return [next(consumer) for _ in range(count)]

    def commit(self, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
        with closing(self._consumer(group)) as consumer:
            at = TopicPartition(topic, partition)
            consumer.assign([at])
            consumer.commit({at: OffsetAndMetadata(offset, "", -1)})

    @contextmanager
    def member(self, group: str, topic: str) -> Iterator[None]:
        """A member of the group that reads the topic, as long as this lasts."""
        with closing(self._consumer(group)) as consumer:
            consumer.subscribe([topic])
            while not consumer.assignment():
                consumer.poll(POLL_MS)
            yield

    def _consumer(self, group: str | None = None) -> Any:
        return KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            client_id="by-hand",
            group_id=group,
            enable_auto_commit=False,
            consumer_timeout_ms=20_000,
        )
