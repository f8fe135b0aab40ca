"""Requests to any Kafka cluster, for the command, the console and the metrics; it knows no terminal and no page."""
