"""The files of the page, from the package: `/static/...`, and the one page for every address that is not a file.

The page looks at the address itself, so that each of its states has a link.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from minibroker.console.answers import Refused, refusal_response

PAGE = "index.html"
BEFORE, MAIN, SECTIONS = "before.js", "main.js", "sections.js"
# Served as one file each: what a page waits for costs it by the number of files, not by their size.
JOINED = {
    BEFORE: ("theme.js", "early.js"),
    "styles.css": ("tokens.css", "console.css", "pages/pages.css", "inside/inside.css"),
}
PAGE_MODULE = re.compile(r"pattern: '([^']*)'.*?import\('([^']*)'\)")
IMPORT = re.compile(r"^(?:import\b|\}).*from '(\.[^']*)'$", re.MULTILINE)
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
    found = dict(contents_in(files("minibroker.console").joinpath("static"), ""))
    for name, parts in JOINED.items():
        between = b";\n" if name.endswith(".js") else b"\n"  # a script that begins with ( would call the one before
        found[name] = between.join(found.pop(part) for part in parts)
    return {name: asset_of(name, content) for name, content in found.items()}


def contents_in(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for each in folder.iterdir():
        if each.is_dir():
            yield from contents_in(each, f"{prefix}{each.name}/")
        elif each.name.rpartition(".")[2] in TYPES:
            yield prefix + each.name, each.read_bytes()


def asset_of(name: str, content: bytes) -> Asset:
    etag = f'"{hashlib.sha256(content).hexdigest()[:20]}"'
    return Asset(content, TYPES[name.rpartition(".")[2]], etag)


async def static_file(request: Request) -> Response:
    return asset_response(request, request.path_params["path"])


async def page(request: Request) -> Response:
    """The one page, with the modules that it needs at this address: a browser loads them all at once."""
    modules = modules_of(request.url.path)
    response = asset_response(request, PAGE)
    if modules:
        links = [f"</static/{BEFORE}>; rel=preload; as=script"]
        links += [f"</static/{each}>; rel=modulepreload" for each in modules]
        response.headers["link"] = ", ".join(links)
    return response


@cache
def pages() -> list[tuple[list[str], list[str]]]:
    """The pattern of each page as its parts, with the modules that it imports, from `sections.js`."""
    found = PAGE_MODULE.findall(assets()[SECTIONS].content.decode())
    return [(parts_of(pattern), imported([MAIN, joined(SECTIONS, module)])) for pattern, module in found]


def modules_of(path: str) -> list[str]:
    """The modules of the page at an address; if there is none, the modules of every page."""
    parts = parts_of(path)
    for pattern, modules in pages():
        if len(pattern) == len(parts) and all(
            name.startswith(":") or name == part for name, part in zip(pattern, parts, strict=True)
        ):
            return modules
    return imported([MAIN])


def imported(modules: list[str]) -> list[str]:
    """The modules and all that they import, the nearest first."""
    found = list(modules)
    for module in found:  # it grows while it is gone through
        for name in IMPORT.findall(assets()[module].content.decode()):
            if (path := joined(module, name)) not in found:
                found.append(path)
    return found


def joined(module: str, name: str) -> str:
    """The path of a module that another one names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(module), name))


def parts_of(path: str) -> list[str]:
    return [each for each in path.split("/") if each]


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
