"""Options of a JVM that lives for a minute: half the CPU time, most of which would go into compiling."""

from __future__ import annotations

QUICK_JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
SPARK_VARIABLE = "SPARK_SUBMIT_OPTS"  # which Spark's own scripts heed
