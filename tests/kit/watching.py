"""The handles that a keeper sees to, whole."""

from __future__ import annotations

from leasectl.model import Handle
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.watched import WatchedHandles


def watched(state: State) -> list[Handle]:
    """Those that a keeper has to watch, release or renew, as they are on record."""
    return [Handles(state).require(each.id) for each in WatchedHandles(state).all()]
