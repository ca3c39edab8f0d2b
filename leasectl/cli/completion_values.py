"""What there is to complete: types and handles, looked at and left as they are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from leasectl.backends.kinds import kind_of
from leasectl.cli.context import choose_backend, settings, state_directory

_SERVER_SECONDS = 1.0


def known_types(backend: str | None = None) -> Sequence[str]:
    """The types of the pools of a backend; none when they can't be read, or aren't its own.

    Args:
        backend: What ``--backend`` says.
    """
    from leasectl.backends.opening import pool_types
    from leasectl.errors import LeaseError
    from leasectl.state import read_only
    from leasectl.system.clock import Clock

    url = choose_backend(backend).url
    with contextlib.suppress(LeaseError):
        kind = kind_of(url)
        if kind.has_pools and not kind.remote:
            return read_only.pool_types(state_directory())
        return pool_types(url, settings(), seconds=_SERVER_SECONDS, clock=Clock())
    return []


def known_handles(*, released_too: bool) -> list[tuple[str, str]]:
    """Ids and holder identities of handles; none when they can't be read."""
    from leasectl.state import read_only

    return read_only.handle_ids(state_directory(), released_too=released_too)
