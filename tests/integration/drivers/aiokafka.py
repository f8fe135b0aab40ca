"""Driver of aiokafka: one event loop, stepped by one operation at a time."""

from __future__ import annotations

import asyncio
import ssl
import sys
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.integration.drivers.library import KafkaPythonLike, Settings
from tests.integration.drivers.line_protocol import serve_driver
from tests.integration.drivers.stepped import Stepped, new_loop


def encrypted(settings: Settings) -> Settings:
    """The settings; JSON has no `ssl_context`, so it is made of kafka-python's names."""
    chosen = dict(settings)
    certificate = chosen.pop("ssl_certfile", None)
    chosen.pop("ssl_keyfile", None)  # the same file
    if "ssl_cafile" in chosen:
        chosen["ssl_context"] = ssl.create_default_context(cafile=chosen.pop("ssl_cafile"))
        if certificate is not None:
            chosen["ssl_context"].load_cert_chain(certificate)
    return chosen


class AiokafkaDriver(KafkaPythonLike):
    _partition = TopicPartition
    # One connection carries fetches and questions about offsets: a question waits for the fetch before it.
    _offset_settings: Settings = {"fetch_max_wait_ms": 50}  # noqa: RUF012

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self._loop = new_loop()

    def _new_producer(self, codec: str, settings: Settings) -> Any:
        chosen = {"compression_type": None if codec == "none" else codec, "linger_ms": 5} | encrypted(settings)
        return Stepped(self._loop, AIOKafkaProducer, bootstrap_servers=self._bootstrap, **chosen)

    def _new_consumer(self, settings: Settings) -> Any:
        chosen = {"auto_offset_reset": "none", "group_id": None} | encrypted(settings)
        return Stepped(self._loop, AIOKafkaConsumer, bootstrap_servers=self._bootstrap, **chosen)

    def _acked(self, producer: Any, futures: list[Any]) -> list[Any]:
        async def all_of_them() -> list[Any]:
            async with asyncio.timeout(30):
                return await asyncio.gather(*futures)

        return self._loop.run_until_complete(all_of_them())

    def _batches(self, consumer: Any, **limits: int) -> dict[Any, list[Any]]:
        found: dict[Any, list[Any]] = consumer.getmany(**limits)
        return found


if __name__ == "__main__":
    serve_driver(AiokafkaDriver(sys.argv[1]))
