"""Whether two URLs mean the same place."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, cast

from leasectl.backends.kinds import kind_of
from leasectl.http.settings import parse_settings

if TYPE_CHECKING:
    from leasectl.backends.servers import PlaceSource


@lru_cache(maxsize=64)  # thousands of handles may be at few
def place_of(url: str, settings: str) -> str:
    """Where leases are: the same for all words that mean the same place, and for no others.

    Args:
        url: Of a backend there is.
        settings: How to talk to it, as `encode_settings` wrote it.

    Raises:
        CorruptState: They can't be read.
    """
    module = kind_of(url).placed_by
    if module is None:
        return url
    source = cast("PlaceSource", importlib.import_module(module))
    return source.place(url, parse_settings(settings))
