"""minibroker measured beside Apache Kafka 2.0.1 and raw sockets: `make bench`, or `python -m benchmarks --help`.

Reading order: goals.py (the targets), cases/ (the measurements), lab.py (the brokers under test), measurements.py
(rounds and ratios), load/ (the client processes).
"""
