"""CRC32C, the checksum of record batches (Castagnoli, as iSCSI), directly from its C extension.

`crc32c(buffer, value)` reads any buffer without copying it. The `crc32c` package reads its own metadata when it is
imported, which takes 30 ms of a broker's start, so its extension is loaded alone if it can be found, and through the
package otherwise.
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
    """Return the extension's function; None if the package has another layout."""
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
    """Return the function from its package, at the cost of importing that."""
    from crc32c import crc32c as from_package

    return cast("Checksum", from_package)


def crc32c_function() -> Checksum:
    """Return the fastest of the two to import."""
    extension = load_extension()
    return load_package() if extension is None else extension


crc32c = crc32c_function()
