"""How an exchange is printed: its fields under Kafka's names, its records, and whatever is wrong with it."""

from __future__ import annotations

import struct
from textwrap import dedent, indent
from typing import Any

from minibroker.protocol.api import API_TABLE, ApiKey, encode_request
from minibroker.protocol.compression import Codec
from minibroker.protocol.messages.configs import DescribeConfigsRequest
from minibroker.protocol.messages.fetch import FetchRequest, FetchResponse
from minibroker.protocol.messages.groups import (
    FindCoordinatorRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
)
from minibroker.protocol.messages.metadata import MetadataRequest, MetadataResponse
from minibroker.protocol.messages.produce import ProduceRequest, ProduceResponse
from minibroker.protocol.messages.topics import CreatePartitionsRequest
from minibroker.protocol.messages.transactions import DescribeTransactionsRequest
from minibroker.protocol.record import Record
from minibroker.protocol.record_batch import build_batch
from minibroker.transcript.file import Frame, Gap, Kind
from tests.minibroker.conversations import Conversation, Screen, records

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=3)


def page(text: str) -> str:
    """The printed page, as it stands in a test: a little further to the right."""
    return indent(dedent(text).removeprefix("\n"), "  ")


def test_a_produce_is_printed_with_its_batches(conversation: Conversation, screen: Screen) -> None:
    batch = records(5, producer_id=7, producer_epoch=1, base_sequence=10, codec=Codec.GZIP, is_transactional=True)
    request = ProduceRequest(transactional_id="t", acks=-1, timeout_ms=30000, topics=[("flights", [(0, batch)])])
    asked = conversation.ask(ApiKey.PRODUCE, 7, request)
    row = ProduceResponse.row("topics.partitions")(partition=0, error_code=47, base_offset=-1)
    conversation.answer(asked, ProduceResponse(topics=[("flights", [row])]))

    assert screen.exchanges(conversation) == page(
        f"""
            0.002 s  #1 127.0.0.1:50000  Produce v7  "tower"  correlation 1  {49 + len(batch)} -> 55 bytes  1.0 ms
          request
            transactional_id: "t"
            acks: -1
            timeout_ms: 30000
            topics:
              - topic: "flights"
                partitions:
                  - partition: 0
                    records: {len(batch)} bytes
                      batch 0-4  5 records  {len(batch)} bytes  codec gzip  CRC ok
                        magic 2  create time to 2013-01-01T06:00:00.004Z  producer 7 epoch 1 \
sequence 10-14  transactional
                        0  2013-01-01T06:00:00.000Z  key "UA"  value "value 0"  headers source="tower"
                        1  2013-01-01T06:00:00.001Z  key "UA"  value "value 1"  headers source="tower"
                        2  2013-01-01T06:00:00.002Z  key "UA"  value "value 2"  headers source="tower"
                        ... 2 more
          response
            topics:
              - topic: "flights"
                partitions:
                  - partition: 0  error_code: 47 INVALID_PRODUCER_EPOCH  base_offset: -1  log_append_time_ms: -1
                    log_start_offset: -1
            throttle_time_ms: 0

        """
    )


def test_a_fetch_is_printed_with_its_records(conversation: Conversation, screen: Screen) -> None:
    asking = FetchRequest.row("topics.partitions")(partition=0, fetch_offset=5, max_bytes=1024)
    asked = conversation.ask(
        ApiKey.FETCH, 4, FetchRequest(replica_id=-1, isolation_level=1, topics=[("flights", [asking])])
    )
    partition = FetchResponse.row("topics.partitions")(
        partition=0,
        error_code=0,
        high_watermark=8,
        last_stable_offset=8,
        aborted_transactions=[(7, 5)],
        records=records(2, base_offset=0) + records(1)[:30],
    )
    conversation.answer(asked, FetchResponse(topics=[("flights", [partition])]))

    printed = screen.exchanges(conversation)

    assert printed[printed.index("  response") :] == page(
        """
          response
            throttle_time_ms: 0
            topics:
              - topic: "flights"
                partitions:
                  - partition: 0  error_code: 0 NONE  high_watermark: 8  last_stable_offset: 8
                    aborted_transactions:
                      - producer_id: 7  first_offset: 5
                    records: 149 bytes
                      batch 0-1  2 records  119 bytes  codec none  CRC ok
                        magic 2  create time to 2013-01-01T06:00:00.001Z
                        0  2013-01-01T06:00:00.000Z  key "UA"  value "value 0"  headers source="tower"
                        1  2013-01-01T06:00:00.001Z  key "UA"  value "value 1"  headers source="tower"
                      ends in a partial batch of 30 bytes

        """
    )


def test_metadata_is_printed_with_its_brokers_and_partitions(conversation: Conversation, screen: Screen) -> None:
    asked = conversation.ask(ApiKey.METADATA, 5, MetadataRequest(topics=None))
    partition: tuple[Any, ...] = (0, 3, 0, 0, [0, 1], [0], [])
    topics = [MetadataResponse.row("topics")(error_code=0, name="flights", partitions=[partition])]
    brokers = [(0, "127.0.0.1", 9092, None)]
    conversation.answer(asked, MetadataResponse(brokers=brokers, cluster_id="c", controller_id=0, topics=topics))

    printed = screen.exchanges(conversation)

    assert "topics: null\n    allow_auto_topic_creation: true\n" in printed
    assert printed[printed.index("  response") :] == page(
        """
          response
            throttle_time_ms: 0
            brokers:
              - node_id: 0  host: "127.0.0.1"  port: 9092  rack: null
            cluster_id: "c"
            controller_id: 0
            topics:
              - error_code: 0 NONE  name: "flights"  is_internal: false
                partitions:
                  - error_code: 0 NONE  partition: 3  leader_id: 0  replica_nodes: [0, 1]  isr_nodes: [0]
                    offline_replicas: []

        """
    )


def test_joining_a_group_is_printed_with_the_metadata_of_members(conversation: Conversation, screen: Screen) -> None:
    subscription = b"\0\0\0\0\0\1\0\7flights\xff\xff\xff\xff"
    request = JoinGroupRequest(group_id="g", protocol_type="consumer", protocols=[("range", subscription)])
    answer = JoinGroupResponse(error_code=79, generation_id=-1, protocol_name="", member_id="m-1")
    conversation.answer(conversation.ask(ApiKey.JOIN_GROUP, 5, request), answer)

    lines = screen.exchanges(conversation).splitlines()

    shown = '- name: "range"  metadata: 19 bytes 0000000000010007666c6967687473ffffffff |........flights....|'
    for line in (shown, "error_code: 79 MEMBER_ID_REQUIRED", 'member_id: "m-1"', "members: []"):
        assert line in map(str.strip, lines)


def test_connections_and_their_ends_are_printed(conversation: Conversation, screen: Screen) -> None:
    conversation.ask_bytes(b"\0\1\0\x63\0\0\0\7\xff\xff")
    conversation.tell(Kind.REFUSED, "Fetch has no version 99, the last is 18")
    conversation.tell(Kind.CLOSED, "Fetch has no version 99, the last is 18")

    assert screen.text(conversation) == page(
        """
            0.000 s  a broker started: process 7, data in data, 2023-11-14T22:13:20.000Z
            0.001 s  #1 opened by 127.0.0.1:50000
            0.002 s  #1 127.0.0.1:50000  Fetch v99  no client id  correlation 7  10 -> - bytes  1.0 ms
          request
            Fetch has no version 99, the last is 18
            000000  00 01 00 63 00 00 00 07 ff ff                    ...c......
          refused, the connection was closed: Fetch has no version 99, the last is 18

            0.004 s  #1 closed: Fetch has no version 99, the last is 18
        """
    )


def test_a_message_that_cannot_be_decoded_is_in_hexadecimal_and_the_rest_goes_on(
    conversation: Conversation, screen: Screen
) -> None:
    conversation.ask_bytes(encode_request(ApiKey.HEARTBEAT, 3, 1, "me", HEARTBEAT)[4:-3])
    conversation.answer_bytes(struct.pack(">ihi", 6, 0, 1))
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 3, HEARTBEAT), HeartbeatResponse())

    printed = screen.exchanges(conversation)

    assert "HeartbeatRequest v3: " in printed
    assert "000000  00 0c 00 03 00 00 00 01 00 02 6d 65 00 01 67 00  ..........me..g." in printed
    assert "HeartbeatResponse v3: " in printed
    assert "    generation_id: 3\n" in printed


def test_long_arrays_and_values_are_shortened_unless_all_is_wanted(conversation: Conversation, screen: Screen) -> None:
    topics = MetadataRequest(topics=[(b"", f"topic-{index}") for index in range(47)])
    conversation.answer(conversation.ask(ApiKey.METADATA, 1, topics), MetadataResponse(cluster_id="c"))
    conversation.answer(conversation.ask(ApiKey.HEARTBEAT, 0, HEARTBEAT._replace(group_id="g" * 1000)), (0, 0))

    short, full = screen.text(conversation), screen.text(conversation, "--full")

    assert '"topic-9"' in short and '"topic-10"' not in short
    assert "      ... 37 more\n" in short
    assert "g... 882 more characters\n" in short
    assert '"topic-46"' in full and "g" * 1000 in full and "more" not in full


def test_records_that_were_not_kept_are_marked(conversation: Conversation, screen: Screen) -> None:
    batches = [records(1), records(30)]
    request = ProduceRequest(acks=1, topics=[("flights", [(0, batches[0]), (1, batches[1]), (2, batches[0])])])
    whole = encode_request(ApiKey.PRODUCE, 7, 1, "me", request)[4:]
    cut = whole.index(batches[1]) + 100
    end = whole.index(batches[1]) + len(batches[1])
    gaps = (Gap(cut, end - cut), Gap(len(whole) - len(batches[0]), len(batches[0])))
    frame = Frame(len(whole), whole[:cut] + whole[end : gaps[1].position], gaps)
    conversation.tell(Kind.REQUEST, frame=frame)
    conversation.tell(Kind.NO_RESPONSE)

    printed = screen.exchanges(conversation)

    assert "batch 0-0  1 record  " in printed
    assert "batch 0-29  30 records" in printed
    assert "not recorded to its end\n" in printed
    assert f"the last {end - cut} of {len(batches[1])} bytes were not recorded\n" in printed
    assert f"the last {len(batches[0])} of {len(batches[0])} bytes were not recorded\n" in printed
    assert printed.endswith("  takes no response\n\n")


def test_damaged_records_are_an_error_and_none_differ_from_null(conversation: Conversation, screen: Screen) -> None:
    broken = bytearray(records(1))
    broken[-1] ^= 1
    for data in (bytes(broken), b"x" * 40, records(1), b"", None):
        asked = conversation.ask(ApiKey.FETCH, 4, FetchRequest())
        row = FetchResponse.row("topics.partitions")(partition=0, records=data)
        conversation.answer(asked, FetchResponse(topics=[("flights", [row])]))

    printed = screen.exchanges(conversation)
    wrong, unreadable = screen.exchanges(conversation, "--brief", "--errors").splitlines()

    assert "  codec none  the CRC is wrong\n" in printed
    assert "40 bytes from there on cannot be read" in printed
    assert "aborted_transactions: null  records: 0 bytes\n" in printed
    assert "aborted_transactions: null  records: null\n" in printed
    assert wrong.endswith("  a wrong CRC") and unreadable.endswith("  records that cannot be read")


def test_one_line_names_topics_and_groups_by_any_name_of_their_fields(
    conversation: Conversation, screen: Screen
) -> None:
    for key, version, body in (
        (ApiKey.FIND_COORDINATOR, 4, FindCoordinatorRequest(key_type=0, coordinator_keys=["tour"])),
        (ApiKey.DESCRIBE_CONFIGS, 0, DescribeConfigsRequest(resources=[(2, "flights", None), (4, "0", None)])),
        (ApiKey.DESCRIBE_TRANSACTIONS, 0, DescribeTransactionsRequest(transactional_ids=["t"])),
        (ApiKey.CREATE_PARTITIONS, 0, CreatePartitionsRequest(topics=[("flights", 2, None)])),
    ):
        asked = conversation.ask(key, version, body)
        conversation.answer(asked, API_TABLE[key].response())

    lines = screen.exchanges(conversation, "--brief").splitlines()

    assert [line.partition("1.0 ms")[2].strip() for line in lines] == ["tour", "flights", "t", "flights"]


def test_texts_of_clients_cannot_drive_a_terminal(conversation: Conversation, screen: Screen) -> None:
    evil = "\x1b[2J\x9b31m"
    value = bytes(build_batch([Record(0, 0, evil.encode(), evil.encode(), ((evil, evil.encode()),))]))
    conversation.ask(ApiKey.PRODUCE, 7, ProduceRequest(acks=1, topics=[(evil, [(0, value)])]), client_id=evil)
    conversation.tell(Kind.REFUSED, evil)
    conversation.tell(Kind.CLOSED, evil)

    for arguments in ([], ["--brief"], ["-o", "json"]):
        assert not {"\x1b", "\x9b"} & set(screen.text(conversation, *arguments))


def test_every_entry_kind_can_be_damaged_without_a_traceback(conversation: Conversation, screen: Screen) -> None:
    """Each byte of a frame in turn is another: whatever that makes of it is printed."""
    batch = records(2, codec=Codec.LZ4)
    request = encode_request(ApiKey.PRODUCE, 7, 1, "me", ProduceRequest(acks=1, topics=[("flights", [(0, batch)])]))[4:]
    for position in range(len(request)):
        wrong = bytearray(request)
        wrong[position] ^= 0xFF
        conversation.ask_bytes(bytes(wrong))
        conversation.tell(Kind.NO_RESPONSE)

    assert screen.text(conversation).count("correlation") == len(request)
