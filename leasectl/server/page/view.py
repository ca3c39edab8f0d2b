"""What a viewer wants to see, as the query of the page's address says it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlencode

from leasectl.pools.overview import Holder

RANGES: Mapping[str, tuple[str, float]] = {
    "15m": ("15 min", 900.0),
    "1h": ("1 h", 3600.0),
    "6h": ("6 h", 21600.0),
    "1d": ("1 d", 86400.0),
}
_LONGEST = 300


class View(NamedTuple):
    """A selection of what there is, and its order.

    Args:
        pool: The type of the only pool; empty for all of them.
        text: Only rows of holders, resources or pools with this text.
        sort: The column to sort by, with ``-`` before it for the largest first; empty for as it is.
        range: The stretch of time that charts show: a key of `RANGES`.
    """

    pool: str = ""
    text: str = ""
    sort: str = ""
    range: str = "1h"

    @property
    def seconds(self) -> float:
        """How long the stretch of time is."""
        return RANGES[self.range][1]

    def has(self, *texts: str) -> bool:
        """Return whether what is searched for is in one of some texts."""
        wanted = self.text.casefold()
        return any(wanted in each.casefold() for each in texts)

    def has_holder(self, holder: Holder, *texts: str) -> bool:
        """Return whether it is in a holder's identity, or in one of some texts."""
        return holder.has(self.text) or self.has(*texts)

    def link(self, **changes: str) -> str:
        """Return the address, relative to the page's, of a view that differs in some fields."""
        wanted = self._replace(**changes)
        said = {key: value for key, value in wanted._asdict().items() if value}
        if wanted.range == "1h":
            del said["range"]
        return f"?{urlencode(said)}" if said else "./"


def parse_view(query: Mapping[str, str]) -> View:
    """Read the query of an address; what it doesn't say, or says wrongly, is as usual."""
    said = {key: query[key][:_LONGEST].strip() for key in View._fields if key in query}
    if said.get("range") not in RANGES:
        said.pop("range", None)
    return View(**said)
