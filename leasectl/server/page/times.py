"""Times in HTML: as text for now, and as what the page's script has go on from there.

All are by the server's clock. A browser's own may be set otherwise, so the page says what time it
is here, and the script only counts from that.
"""

from __future__ import annotations

from leasectl.server.page.markup import Markup, tag
from leasectl.system.clock import rfc3339
from leasectl.text.durations import format_duration


def since(earlier: float, now: float) -> Markup:
    """How long ago a time was: ``12m``.

    Args:
        earlier: Wall clock, seconds since the epoch.
        now: Likewise.
    """
    return _time("data-since", earlier, format_duration(max(0.0, now - earlier)))


def until(later: float, now: float) -> Markup:
    """How long it is until a time: ``in 14s``, and ``now`` once it has come."""
    left = later - now
    return _time("data-until", later, f"in {format_duration(left)}" if left > 0 else "now")


def _time(key: str, at: float, text: str) -> Markup:
    moment = rfc3339(at) or ""
    return tag("time", text, datetime=f"{moment[:19]}Z", **{key: f"{at:.1f}"})
