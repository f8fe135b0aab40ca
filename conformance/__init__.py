"""Judges a broker by what Apache Kafka answers to the same requests: `minibroker conform`."""
