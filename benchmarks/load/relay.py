"""The bound for a message, or a transaction: a relay, without a broker, from a Produce to the Fetch that waits.

`python -m benchmarks.load.relay PORT [--busy]`. It is the limit of a broker of one thread in Python: it looks at no
batch and keeps none, has one partition of whatever topic it is asked for, takes every transaction for committed, and
its answers are made but for offsets. With `--busy` it never sleeps. It prints `ready` and serves until it is killed.
"""

from __future__ import annotations

import argparse
import os
import select
import socket
from typing import Any

from benchmarks.load.raw_server import RECEIVE_BYTES, listen
from minibroker.protocol.api import API_TABLE, ApiKey, Request, decode_request, encode_response, joined

# The last versions of Apache Kafka 2.0.1.
OFFERED = {
    ApiKey.PRODUCE: 6,
    ApiKey.FETCH: 8,
    ApiKey.LIST_OFFSETS: 3,
    ApiKey.METADATA: 6,
    ApiKey.API_VERSIONS: 2,
    ApiKey.FIND_COORDINATOR: 2,
    ApiKey.INIT_PRODUCER_ID: 1,
    ApiKey.ADD_PARTITIONS_TO_TXN: 1,
    ApiKey.END_TXN: 1,
}
HOST = "127.0.0.1"
NODE = 0
FINE = {"partition": 0, "error_code": 0}
AN_OFFSET = 0x0123456789ABCDEF  # in an answer that is made, where one goes
AFTER_CORRELATION = 8  # in an answer with its size
PRODUCE = ApiKey.PRODUCE.to_bytes(2, "big")


class Client:
    """A connection, and what its Fetch waits with."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.arrived = bytearray()
        self.waiting: bytes | None = None  # the correlation id

    def send(self, correlation_id: bytes, answer: bytes) -> None:
        self.socket.sendall((4 + len(answer)).to_bytes(4, "big") + correlation_id + answer)


class Relay:
    """One partition whose log is its last batch."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._end_offset = 0
        self._last_batch = b""
        self._clients: dict[int, Client] = {}
        self._batch_at = 0  # in a Produce: those of one client are alike
        self._acknowledged = self._fetched = b""
        self._of_transactions: dict[bytes, bytes] = {}  # answers; the requests of each transaction are the same

    def add(self, connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._clients[connection.fileno()] = Client(connection)

    def receive(self, descriptor: int) -> None:
        """Serve the requests that end in what has arrived; forget a client that has gone."""
        client = self._clients[descriptor]
        try:
            arrived = client.socket.recv(RECEIVE_BYTES)
            client.arrived += arrived
            while len(client.arrived) >= 4:
                end = 4 + int.from_bytes(client.arrived[:4], "big")
                if len(client.arrived) < end:
                    break
                frame = bytes(client.arrived[4:end])
                del client.arrived[:end]
                self._serve(client, frame)
        except ConnectionError:
            arrived = b""
        if not arrived:
            self._clients.pop(descriptor).socket.close()  # which takes it out of the epoll

    def _serve(self, client: Client, frame: bytes) -> None:
        if frame.startswith(PRODUCE) and self._batch_at:
            self._relay(client, frame)
            return
        answer = self._of_transactions.get(frame[:4] + frame[8:])
        if answer is not None:
            client.send(frame[4:8], answer)
            return
        request = decode_request(frame)
        key, body = request.api_key, request.body
        if key == ApiKey.PRODUCE:
            self._learn(request, frame)
            self._relay(client, frame)
        elif key == ApiKey.FETCH:
            self._fetched = made(request, topics=one_row(request, high_watermark=AN_OFFSET))
            client.waiting = frame[4:8]
            if body.topics[0].partitions[0].fetch_offset < self._end_offset:
                self._pass_on(client)
        elif key == ApiKey.LIST_OFFSETS:
            client.send(frame[4:8], made(request, topics=one_row(request, offset=self._end_offset)))
        elif key == ApiKey.METADATA:
            client.send(frame[4:8], self._metadata(request))
        elif key in (ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN):
            row = {"topics": one_row(request)} if key == ApiKey.ADD_PARTITIONS_TO_TXN else {"error_code": 0}
            answer = self._of_transactions[frame[:4] + frame[8:]] = made(request, **row)
            client.send(frame[4:8], answer)
        elif key == ApiKey.INIT_PRODUCER_ID:
            client.send(frame[4:8], made(request, error_code=0, producer_id=0, producer_epoch=0))
        elif key == ApiKey.FIND_COORDINATOR:
            client.send(frame[4:8], made(request, error_code=0, node_id=NODE, host=HOST, port=self._port))
        else:
            offered = [(api, 0, last) for api, last in OFFERED.items()]
            client.send(frame[4:8], made(request, error_code=0, api_keys=offered))

    def _learn(self, request: Request, frame: bytes) -> None:
        """Look where the batch is in a Produce, and make its answer."""
        self._batch_at = len(frame) - len(bytes(request.body.topics[0].partitions[0].records))
        self._acknowledged = made(request, topics=one_row(request, base_offset=AN_OFFSET))

    def _relay(self, client: Client, frame: bytes) -> None:
        """Pass the batch on, then acknowledge it."""
        offset = self._end_offset.to_bytes(8, "big")
        self._last_batch = offset + frame[self._batch_at + 8 :]
        self._end_offset += 1
        for each in self._clients.values():
            if each.waiting is not None:
                self._pass_on(each)
        client.send(frame[4:8], self._acknowledged.replace(AN_OFFSET.to_bytes(8, "big"), offset))

    def _pass_on(self, client: Client) -> None:
        """Answer the client's Fetch with the last batch."""
        assert client.waiting is not None
        correlation_id, client.waiting = client.waiting, None
        answer = self._fetched.replace(AN_OFFSET.to_bytes(8, "big"), self._end_offset.to_bytes(8, "big"))
        # An answer without records ends with their size.
        client.send(correlation_id, answer[:-4] + len(self._last_batch).to_bytes(4, "big") + self._last_batch)

    def _metadata(self, request: Request) -> bytes:
        response = API_TABLE[ApiKey.METADATA].response
        partition = response.row("topics.partitions")(**FINE, leader_id=NODE, replica_nodes=[NODE], isr_nodes=[NODE])
        topic = response.row("topics")
        topics = [topic(error_code=0, name=each.name, partitions=[partition]) for each in request.body.topics or ()]
        broker = response.row("brokers")(node_id=NODE, host=HOST, port=self._port)
        return made(request, brokers=[broker], controller_id=NODE, topics=topics)


def one_row(request: Request, **fields: Any) -> list[Any]:
    """The topics of an answer: the partition of the request, with these fields."""
    response = API_TABLE[request.api_key].response
    partition = response.row("topics.partitions")(**FINE, **fields)
    return [response.row("topics")(request.body.topics[0][0], [partition])]


def made(request: Request, **body: Any) -> bytes:
    """The answer, after its correlation id."""
    return joined(encode_response(request, API_TABLE[request.api_key].response(**body)))[AFTER_CORRELATION:]


def main() -> None:
    """Serve as the command line asks."""
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--busy", action="store_true")
    options = parser.parse_args()
    listener = listen(options.port)
    relay = Relay(options.port)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    while True:
        while not (arrived := poller.poll(0 if options.busy else None)):
            os.sched_yield()
        for descriptor, _ in arrived:
            if descriptor == listener.fileno():
                connection, _ = listener.accept()
                relay.add(connection)
                poller.register(connection, select.EPOLLIN)
            else:
                relay.receive(descriptor)


if __name__ == "__main__":
    main()
