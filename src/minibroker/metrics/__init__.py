"""The metrics of a Kafka cluster for Prometheus, by the names that its dashboards read: of any cluster those of
kafka_exporter, of minibroker also those of the JMX exporter, and its own."""
