"""How a broker stops: what waits is answered, and what is known is written down."""

from __future__ import annotations

import signal
import struct
from pathlib import Path

import pytest
import trio

from minibroker.broker.apis.client import Client, CloseConnectionError
from minibroker.broker.app import BrokerApp
from minibroker.broker.config.kafka_config import KafkaConfig
from minibroker.broker.network.listen import listen
from minibroker.broker.upkeep.background import Background
from minibroker.broker.way.exchange import Exchange
from minibroker.broker.way.opening import Opening
from minibroker.conformance.requests import fetch_body, frame
from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.primitives import TopicPartition
from minibroker.storage.files.checkpoints import OffsetCheckpointFile
from minibroker.storage.files.file_names import HIGH_WATERMARK_CHECKPOINT
from tests.broker.asking import LONG_MS
from tests.broker.conftest import MakeBroker

ANSWER_SECONDS = 8


async def test_a_broker_that_stops_writes_its_high_watermarks_down(make_broker: MakeBroker, tmp_path: Path) -> None:
    broker = make_broker(tmp_path)
    await broker.create_topic("t")
    await broker.produce("t", [b"a", b"b"])

    broker.close()

    assert OffsetCheckpointFile(tmp_path / HIGH_WATERMARK_CHECKPOINT).read() == {TopicPartition("t", 0): 2}


async def test_a_broker_that_stops_answers_a_fetch_that_waits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("minibroker.broker.app.settle_memory", lambda: None)
    app = BrokerApp(KafkaConfig({"log.dirs": str(tmp_path)}))
    app.load()
    parts = app.build()
    monkeypatch.setattr(app, "build", lambda: parts)
    parts.topic_admin.create_missing_topics(["t"])
    fetch = API_TABLE[ApiKey.FETCH].request(**fetch_body(("t", 0, 0), max_wait_ms=LONG_MS))
    listener = listen("127.0.0.1", 0)
    port = listener.getsockname()[1]

    with trio.fail_after(ANSWER_SECONDS):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(app.run, [listener], lambda host, port: None)
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(encode_request(ApiKey.FETCH, 4, 7, None, fetch))
                while not parts.replica_manager.fetch_purgatory.delayed:
                    await trio.lowlevel.checkpoint()
                signal.raise_signal(signal.SIGTERM)
                answer = await stream.receive_some()

    assert struct.unpack_from(">i", answer, 4) == (7,)


async def test_a_broker_that_stops_before_it_knows_its_cluster_closes_waiting_connections(
    nursery: trio.Nursery,
) -> None:
    background = Background()
    nursery.start_soon(background.run)
    opening = Opening(background)
    waiting = opening.enter(Exchange(bytearray(frame(ApiKey.METADATA, 1, topics=None)[4:]), Client("c:1", "h", 1)))

    opening.give_up()

    with pytest.raises(CloseConnectionError):
        await waiting.wait()
    nursery.cancel_scope.cancel()
