"""minibroker measured beside Apache Kafka 2.0.1 and raw sockets: `make bench`, or `python -m benchmarks --help`.

Reading order: goals.py (what must be true), cases/ (what is measured), lab.py (what they run on), measurements.py
(rounds and ratios), load/ (the client processes).
"""
