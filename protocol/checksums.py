"""CRC32C, the checksum of record batches (Castagnoli, as iSCSI), straight from its C extension.

The rule owned here: `crc32c(buffer, value=0)` reads any buffer without copying it. The `crc32c` package reads
its own metadata when it is imported, which costs 30 ms of a broker's start, so its extension is loaded alone
where it can be found, and through the package where it cannot.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Callable

    from _typeshed import ReadableBuffer

    Checksum = Callable[[ReadableBuffer, int], int]


def load_extension() -> Checksum | None:
    """Return the extension's function, or None where the package is laid out in another way."""
    package = find_spec("crc32c")
    if package is None or package.submodule_search_locations is None:
        return None
    spec = PathFinder.find_spec("_crc32c", list(package.submodule_search_locations))
    if spec is None or spec.loader is None:
        return None
    try:
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError:
        return None
    return cast("Checksum | None", getattr(module, "crc32c", None))


def load_package() -> Checksum:
    """Return the function through its package, at the package's price."""
    from crc32c import crc32c as from_package

    return cast("Checksum", from_package)


def crc32c_function() -> Checksum:
    extension = load_extension()
    return load_package() if extension is None else extension


crc32c = crc32c_function()
