"""`/metrics` for Prometheus: what `minibroker metrics serve` has, at the console's own address.

A scrape runs in a thread, and not at all where nobody scrapes. Of a minibroker with a control socket it has all
metrics, of any other Kafka those of the cluster.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import trio
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from minibroker.console.answers import Refused, answered, looked
from minibroker.console.console import Console

if TYPE_CHECKING:
    from minibroker.metrics.scraper import Scraper

Page = tuple[bytes, str]  # its text, and the type of that


def routes(console: Console) -> list[BaseRoute]:
    @cache
    def scraper() -> Scraper:
        from minibroker.metrics.scraper import Scraper

        control = console.control
        return Scraper(console.options.cluster) if control is None else Scraper(call=control.call)

    def scrape(accept: str) -> Page:
        try:
            from minibroker.metrics.exposition import exposition

            found = scraper().scrape()
        except ImportError:
            raise Refused(501, "metrics need prometheus-client; run: pip install prometheus-client") from None
        return exposition(found, accept)

    async def metrics(request: Request) -> Response:
        """The metrics, as text."""

        async def handle() -> Page:
            accept = request.headers.get("accept", "")
            scraped, lacking = await looked(lambda: trio.to_thread.run_sync(scrape, accept, abandon_on_cancel=True))
            return with_comments(scraped, lacking)

        return await answered(handle, response_of)

    return [Route("/metrics", metrics, methods=["GET"])]


def with_comments(page: Page, lines: list[str]) -> Page:
    """The page with those lines as comments, which only the older of Prometheus's formats has."""
    text, content_type = page
    if content_type.startswith("text/plain"):
        text += "".join(f"# {line}\n" for line in lines).encode()
    return text, content_type


def response_of(page: Page) -> Response:
    text, content_type = page
    return Response(text, headers={"cache-control": "no-store", "content-type": content_type})
