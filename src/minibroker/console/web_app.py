"""The application: every route of the console, behind `safety`."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from minibroker.console import (
    assets,
    groups,
    inside_routes,
    members,
    messages,
    overview,
    producing,
    topics,
    transactions,
)
from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.safety import Safety


def web_app(console: Console) -> ASGIApp:
    routes: list[BaseRoute] = [
        get("/healthz", healthy),
        *overview.routes(console),
        *topics.routes(console),
        *messages.routes(console),
        *producing.routes(console),
        *groups.routes(console),
        *members.routes(console),
        *transactions.routes(console),
        *inside_routes.routes(console),
        *assets.ROUTES,
    ]
    return Safety(Starlette(routes=routes), console.options)


async def healthy(request: Request) -> object:
    return {"status": "ok"}
