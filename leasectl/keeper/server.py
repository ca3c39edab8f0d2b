"""Which server the keeper asks."""

from __future__ import annotations

from leasectl.typed.tuples import NamedTuple


class Server(NamedTuple):
    """Who is asked, and as whom; each has a thread of its own.

    Args:
        url: Of the backend.
        settings: How to talk to it, as a record has them.
    """

    url: str
    settings: str
