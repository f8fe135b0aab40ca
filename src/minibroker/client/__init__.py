"""The one client of this project: a blocking client of any Kafka, on `protocol/` alone."""
