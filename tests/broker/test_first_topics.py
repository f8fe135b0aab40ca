"""The syntax of `serve --create-topics` and KAFKA_CREATE_TOPICS; tests/integration/test_serve.py creates topics."""

from __future__ import annotations

import pytest

from minibroker.broker.cluster.first_topics import SEPARATORS, first_topics
from minibroker.broker.cluster.topic_changes import NewTopic
from minibroker.broker.config.kafka_config import KafkaConfig

CONFIG = KafkaConfig({"num.partitions": "5", "default.replication.factor": "2"})
RETENTION = {"cleanup.policy": "compact,delete", "retention.ms": "-1", "segment.ms": "60000"}


@pytest.mark.parametrize(
    ("text", "separators", "topics"),
    [
        ("orders", SEPARATORS, [NewTopic("orders", 5, 2, {}, {})]),
        (
            "a:3, b:1:1,\n\tc:1:1:compact\n",
            SEPARATORS,
            [
                NewTopic("a", 3, 2, {}, {}),
                NewTopic("b", 1, 1, {}, {}),
                NewTopic("c", 1, 1, {}, {"cleanup.policy": "compact"}),
            ],
        ),
        ("a::1,a::1", SEPARATORS, [NewTopic("a", 5, 1, {}, {})]),
        # What a compose file has for bash: KAFKA_CREATE_TOPICS_SEPARATOR: "$$'\n'"
        ("a:1:1\nb:1:1\n", "$'\n'", [NewTopic("a", 1, 1, {}, {}), NewTopic("b", 1, 1, {}, {})]),
        (
            "a:1:1:compact,delete --config retention.ms=-1 --config=segment.ms=60000",
            ";",
            [NewTopic("a", 1, 1, {}, RETENTION)],
        ),
    ],
)
def test_topics_have_the_syntax_of_wurstmeisters_image(text: str, separators: str, topics: list[NewTopic]) -> None:
    assert [each.new for each in first_topics(text, CONFIG, separators)] == topics


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a:b", "'a:b' is not NAME:PARTITIONS:REPLICAS:CLEANUP_POLICY"),
        ("a:1:1:compact:x", "is not NAME:PARTITIONS"),
        ("a:1:1:compact --zookeeper=x", "is not NAME:PARTITIONS"),
        (":3", "is not NAME:PARTITIONS"),
        ("a:3,a:4", "topic a is there twice: 'a:3' and 'a:4'"),
        ("x" * 250, "can't be longer than 249 characters"),
        ("..", 'Topic name cannot be "." or ".."'),
    ],
)
def test_a_text_that_names_no_topic_is_refused(text: str, reason: str) -> None:
    with pytest.raises(ValueError) as refused:
        first_topics(text, CONFIG)
    assert reason in str(refused.value)
