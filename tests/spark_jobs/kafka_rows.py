"""The columns that Spark's Kafka source gives, for rows that are simply there."""

KAFKA_ROW = (
    "topic string, partition int, offset long, timestamp timestamp, timestampType int, key binary, value binary,"
    " headers array<struct<key string, value binary>>"
)
