"""Which handles the keeper has something to do for."""

from __future__ import annotations

from leasectl.backends.kinds import kind_of_handle
from leasectl.model import Handle
from leasectl.state.handles import is_watched


def needs_keeper(handle: Handle) -> bool:
    """Tell whether the keeper has something to do for this handle while it isn't released."""
    return is_watched(handle, on_server=not kind_of_handle(handle).shares_transaction)
