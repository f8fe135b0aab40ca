"""Jobs for Spark that read from Kafka or write to it; each is a module with a command line of its own."""

from typing import NamedTuple


class JobInfo(NamedTuple):
    """A job of `minibroker jobs run NAME`."""

    module: str  # in this package
    about: str


JOBS = {
    "alerts": JobInfo("alerts", "Alerts about JSON records, from topic to topic, in milliseconds by Real-time Mode."),
    "archive": JobInfo("archive", "Topics to Parquet by topic, date and hour; each record once."),
    "delays": JobInfo(
        "flight_delays", "Delays of flights by origin and carrier, in windows of event time, to Parquet."
    ),
    "replay": JobInfo("replay", "An archive or files back into topics: order, time and partition as they were."),
    "telemetry": JobInfo("telemetry", "How a broker serves its readers: lag over time, and what fetches wait for."),
    "verify": JobInfo("verify", "Compare a topic with another, or with an archive, record by record."),
}
