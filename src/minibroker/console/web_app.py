"""The application: every route of the console, behind `safety`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

import minibroker
from minibroker.console import (
    acls,
    activity,
    assets,
    brokers,
    connections,
    groups,
    inside_routes,
    members,
    messages,
    overview,
    producing,
    prometheus,
    quotas,
    replicas,
    topics,
    transactions,
    users,
)
from minibroker.console.answers import get
from minibroker.console.console import Console
from minibroker.console.inside_watch import InsideWatch
from minibroker.console.safety import Safety


def web_app(console: Console) -> ASGIApp:
    async def ready(request: Request) -> object:
        """Whether the cluster answers the console."""
        await console.metadata.snapshot(fresh=True)
        return {"status": "ok"}

    watch = InsideWatch(console)
    routes: list[BaseRoute] = [
        get("/healthz", healthy),
        get("/readyz", ready),
        *overview.routes(console),
        *activity.routes(console, watch),
        *topics.routes(console),
        *messages.routes(console),
        *producing.routes(console),
        *groups.routes(console),
        *members.routes(console, watch),
        *transactions.routes(console),
        *connections.routes(console, watch),
        *brokers.routes(console),
        *acls.routes(console),
        *users.routes(console),
        *quotas.routes(console),
        *inside_routes.routes(console, watch),
        *replicas.routes(console),
        *prometheus.routes(console),
        *assets.ROUTES,
    ]
    api = openapi_of(routes)

    async def openapi(request: Request) -> object:
        return api

    return Safety(Starlette(routes=[get("/api/openapi.json", openapi), *routes]), console.options)


def openapi_of(routes: Sequence[BaseRoute]) -> dict[str, Any]:
    """The addresses and their methods, read off the routes."""
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        if isinstance(route, Route) and ":path}" not in route.path:
            for method in sorted(route.methods or ()):
                if method != "HEAD":
                    paths.setdefault(route.path, {})[method.lower()] = {
                        "parameters": [
                            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
                            for name in route.param_convertors
                        ],
                        "security": [{"token": []}] if method != "GET" else [],
                        "responses": {
                            "default": {"description": 'JSON; of an error {"error": "what, and what to do"}'}
                        },
                    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "minibroker console", "version": minibroker.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
    }


async def healthy(request: Request) -> object:
    """Whether the console runs."""
    return {"status": "ok"}
