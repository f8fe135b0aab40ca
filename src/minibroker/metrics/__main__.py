"""`python -m minibroker.metrics`: the process that `minibroker serve --metrics` starts beside the broker.

It gets two descriptors: the listening socket, and the channel to the broker. It ends when the channel does.
"""

from __future__ import annotations

import argparse
import logging
import os
import select
import socket
import sys
import threading

from minibroker.control import Channel
from minibroker.metrics.endpoint import Endpoint
from minibroker.metrics.scraper import Scraper


def main() -> int:
    parser = argparse.ArgumentParser(prog="minibroker.metrics")
    parser.add_argument("--listener", type=int, required=True)
    parser.add_argument("--channel", type=int, required=True)
    options = parser.parse_args()
    logging.basicConfig(stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    channel = socket.socket(fileno=options.channel)
    threading.Thread(target=end_with, args=[channel], daemon=True).start()
    endpoint = Endpoint(socket.socket(fileno=options.listener), Scraper(call=Channel(channel).call))
    endpoint.serve_forever()
    return 0


def end_with(channel: socket.socket) -> None:
    """End this process when the broker has closed the channel, or has ended in any way."""
    poll = select.poll()
    poll.register(channel, select.POLLRDHUP)
    poll.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
