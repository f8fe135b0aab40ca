"""Load by confluent-kafka, in a process of its own: produce, consume, or follow one message at a time.

Each prints one line of JSON. The consumer is tuned: with its default settings librdkafka sleeps a second
whenever 100,000 messages are queued, whatever the server does.
"""

from __future__ import annotations

import argparse
import json
import mmap
import sys
import time

from confluent_kafka import Consumer, Message, Producer, TopicPartition

TUNED_CONSUMER = {
    "queued.min.messages": 10_000_000,
    "queued.max.messages.kbytes": 1_000_000,
    "fetch.queue.backoff.ms": 0,
}
TUNED_PRODUCER = {
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
    "delivery.report.only.error": True,  # a call of Python for every message would measure Python
}
SECURITY: dict[str, str] = {}  # of every client; filled by `--ca`
POLL_EVERY_MESSAGES = 5_000
BATCH_MESSAGES = 10_000
ANSWER_SECONDS = 10.0
FLUSH_SECONDS = 120.0


class LoadError(RuntimeError):
    """The load could not be put on: a message was refused, or nothing came back."""


def produce(
    bootstrap: str, topic: str, *, count: int, size_bytes: int, partitions: int, backed_bytes: int = 0
) -> dict[str, float]:
    """Produce `count` messages as fast as the client can; wait for the last acknowledgement."""
    refused: list[str] = []

    def on_delivery(error: object, _message: Message) -> None:
        if error is not None:
            refused.append(str(error))

    producer = Producer({"bootstrap.servers": bootstrap, **TUNED_PRODUCER, **SECURITY, "on_delivery": on_delivery})
    wait_for_topic(producer, topic)
    value = incompressible(size_bytes)
    if backed_bytes:
        back_memory(backed_bytes)
    cpu_before, start = time.process_time(), time.perf_counter()
    for first in range(0, count, POLL_EVERY_MESSAGES):
        partition = first // POLL_EVERY_MESSAGES % partitions
        for _ in range(min(POLL_EVERY_MESSAGES, count - first)):
            while True:
                try:
                    producer.produce(topic, value, None, partition)
                    break
                except BufferError:
                    producer.poll(0.01)
        producer.poll(0)
    left = producer.flush(FLUSH_SECONDS)
    took_seconds = time.perf_counter() - start
    if left or refused:
        raise LoadError(f"{left} messages not acknowledged, {len(refused)} refused: {refused[:1]}")
    return result(count, count * size_bytes, took_seconds, time.process_time() - cpu_before)


def back_memory(size_bytes: int) -> None:
    """Touch this much memory and free it, for the page cache to use.

    A virtual machine's free memory need not be there: its host finds each page when it is first written, which costs
    3 s for a gigabyte, six times what a broker needs to write one, and takes it back seconds after it was freed. The
    first case would pay for all.
    """
    mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_POPULATE).close()


def wait_for_topic(producer: Producer, topic: str) -> None:
    """Connect and fetch metadata before the clock starts."""
    if not producer.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions:
        raise LoadError(f"{topic} has no partitions")


def consume(bootstrap: str, topic: str, *, count: int, size_bytes: int, partitions: int) -> dict[str, float]:
    """Consume `count` messages from the beginning. The clock starts with the first batch, which is not counted."""
    consumer = Consumer({**consumer_settings(bootstrap), **TUNED_CONSUMER})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    first_batch = len(next_batch(consumer, size_bytes))
    messages = first_batch
    cpu_before, start = time.process_time(), time.perf_counter()
    while messages < count:
        messages += len(next_batch(consumer, size_bytes))
    took_seconds = time.perf_counter() - start
    cpu_seconds = time.process_time() - cpu_before
    consumer.close()
    counted = messages - first_batch
    return result(counted, counted * size_bytes, took_seconds, cpu_seconds)


def next_batch(consumer: Consumer, size_bytes: int) -> list[Message]:
    """Consume and check every value. Raises LoadError for no records, an error, or another size."""
    batch: list[Message] = consumer.consume(BATCH_MESSAGES, timeout=ANSWER_SECONDS)
    if not batch:
        raise LoadError(f"nothing came for {ANSWER_SECONDS:.0f} s")
    # An error comes as a message with the reason as its value.
    sizes: list[int] = [len(message.value() or b"") for message in batch]
    if sum(sizes) != len(batch) * size_bytes:
        errors = [str(message.error()) for message in batch if message.error() is not None]
        raise LoadError(f"not every value has {size_bytes} bytes; errors: {errors[:1]}")
    return batch


def consumer_settings(bootstrap: str) -> dict[str, str | int | bool]:
    return {"bootstrap.servers": bootstrap, "group.id": "benchmark", "enable.auto.commit": False, **SECURITY}


def follow(bootstrap: str, topic: str, *, count: int, gap_seconds: float, back: str | None = None) -> dict[str, float]:
    """Send one message, wait until a consumer that long-polls has it, rest for the gap, and again.

    It comes back through the topic `back`, if something passes it on.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "acks": 1, "linger.ms": 0})
    wait_for_topic(producer, topic)
    consumer = Consumer({**consumer_settings(bootstrap), "auto.offset.reset": "latest"})
    read = TopicPartition(back or topic, 0)
    consumer.assign([TopicPartition(read.topic, 0, consumer.get_watermark_offsets(read)[1])])
    latencies: list[float] = []
    for number in range(count + count // 10):
        sent_at = time.perf_counter()
        producer.produce(topic, b"%d" % number, partition=0)
        message = consumer.poll(ANSWER_SECONDS)
        took_seconds = time.perf_counter() - sent_at
        if message is None or message.error() is not None or message.value() != b"%d" % number:
            raise LoadError(f"message {number} was not what came back")
        if number >= count // 10:
            latencies.append(took_seconds)
        producer.poll(0)
        time.sleep(gap_seconds)
    consumer.close()
    latencies.sort()
    return {
        "messages": len(latencies),
        "p50_us": latencies[len(latencies) // 2] * 1e6,
        "p99_us": latencies[len(latencies) * 99 // 100] * 1e6,
        "max_us": latencies[-1] * 1e6,
    }


def incompressible(size_bytes: int) -> bytes:
    """A value that no codec makes smaller, so that compression gains nothing."""
    with open("/dev/urandom", "rb") as random:
        return random.read(size_bytes)


def result(messages: int, size_bytes: int, took_seconds: float, cpu_seconds: float) -> dict[str, float]:
    return {
        "messages": messages,
        "bytes": size_bytes,
        "seconds": took_seconds,
        "client_cpu_seconds": cpu_seconds,
    }


def main() -> None:
    """Put on the load that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("load", choices=["produce", "consume", "follow"])
    parser.add_argument("bootstrap")
    parser.add_argument("topic")
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--size-bytes", type=int, default=1024)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--backed-bytes", type=int, default=0, help="of memory, touched before the clock starts")
    parser.add_argument("--gap-ms", type=float, default=2.0)
    parser.add_argument("--back", metavar="TOPIC", help="from which what is followed comes back")
    parser.add_argument("--ca", help="connect by TLS, and trust this certificate")
    options = parser.parse_args()
    if options.ca is not None:
        SECURITY.update({"security.protocol": "ssl", "ssl.ca.location": options.ca})
    where = (options.bootstrap, options.topic)
    size_bytes, partitions = options.size_bytes, options.partitions
    try:
        if options.load == "produce":
            measured = produce(
                *where,
                count=options.count,
                size_bytes=size_bytes,
                partitions=partitions,
                backed_bytes=options.backed_bytes,
            )
        elif options.load == "consume":
            measured = consume(*where, count=options.count, size_bytes=size_bytes, partitions=partitions)
        else:
            measured = follow(*where, count=options.count, gap_seconds=options.gap_ms / 1000, back=options.back)
    except LoadError as error:
        sys.exit(str(error))
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
