"""Jobs for Spark that read from Kafka or write to it; each is a module with a command line of its own."""

from typing import NamedTuple


class JobInfo(NamedTuple):
    """A job of `minibroker jobs run NAME`."""

    module: str  # in this package
    about: str


JOBS = {
    "archive": JobInfo("archive", "Topics to Parquet by topic, date and hour; each record once."),
    "delays": JobInfo(
        "flight_delays", "Delays of flights by origin and carrier, in windows of event time, to Parquet."
    ),
    "verify": JobInfo("verify", "Compare a topic with another, or with an archive, record by record."),
}
