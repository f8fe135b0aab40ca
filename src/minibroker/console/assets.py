"""The files of the page, from the package: `/static/...`, and the one page for every address that is not a file.

The page looks at the address itself, so that each of its states has a link.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from minibroker.console.answers import Refused, refusal_response

PAGE = "index.html"
TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "woff2": "font/woff2",
    "svg": "image/svg+xml",
}


class Asset(NamedTuple):
    content: bytes
    media_type: str
    etag: str


@cache
def assets() -> dict[str, Asset]:
    """Every file of the page by its path below static/."""
    return dict(found_in(files("minibroker.console").joinpath("static"), ""))


def found_in(folder: Traversable, prefix: str) -> list[tuple[str, Asset]]:
    found = []
    for each in folder.iterdir():
        ending = each.name.rpartition(".")[2]
        if each.is_dir():
            found += found_in(each, f"{prefix}{each.name}/")
        elif ending in TYPES:
            content = each.read_bytes()
            etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
            found.append((prefix + each.name, Asset(content, TYPES[ending], etag)))
    return found


async def static_file(request: Request) -> Response:
    return asset_response(request, request.path_params["path"])


async def page(request: Request) -> Response:
    return asset_response(request, PAGE)


def asset_response(request: Request, path: str) -> Response:
    asset = assets().get(path)
    if asset is None:
        return refusal_response(Refused(404, f"the console has no file {path}; correct the address"))
    headers = {"cache-control": "no-cache", "etag": asset.etag}
    if request.headers.get("if-none-match") == asset.etag:
        return Response(status_code=304, headers=headers)
    return Response(asset.content, headers=headers, media_type=asset.media_type)


async def no_such_api(request: Request) -> Response:
    return refusal_response(Refused(404, f"there is nothing at {request.url.path}; /api/openapi.json lists what is"))


ROUTES = [
    Route("/static/{path:path}", static_file, methods=["GET"]),
    Route("/api/{path:path}", no_such_api, methods=["GET", "POST", "PUT", "DELETE"]),
    Route("/{path:path}", page, methods=["GET"]),
]
