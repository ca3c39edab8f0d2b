"""From a backend's URL to the backend."""

from __future__ import annotations

import re

from leasectl.backends.base import Backend
from leasectl.backends.dry_run import DryRunBackend
from leasectl.backends.pool import PoolBackend
from leasectl.backends.settings import RELEASE_SECONDS, parse_settings
from leasectl.clock import Clock
from leasectl.durations import printable
from leasectl.engines.base import LostListener, PoolAdmin
from leasectl.engines.local import LocalEngine
from leasectl.engines.local_pools import LocalPools
from leasectl.errors import InvalidRequest, NotSupported
from leasectl.state import State

LOCAL = "local:"
DRY_RUN = "none:"
_PROXY = re.compile(r"https?://[A-Za-z0-9._~:\[\]-]+(/[A-Za-z0-9._~/-]*)?", re.ASCII)


def check_url(url: str) -> str:
    """Return the URL of a backend there is, or raise InvalidRequest."""
    if url not in (LOCAL, DRY_RUN) and not _PROXY.fullmatch(url):
        raise InvalidRequest(
            f'there is no backend "{printable(url)}"; choose {LOCAL}, {DRY_RUN} or the http:// '
            "address of a lease proxy with --backend or LEASECTL_BACKEND"
        )
    return url


def is_remote(url: str) -> bool:
    """Tell whether a backend's leases live on a server."""
    return url.startswith(("http://", "https://"))


def open_backend(
    url: str,
    state: State,
    *,
    settings: str,
    release_seconds: float = RELEASE_SECONDS,
    lost: LostListener,
    clock: Clock,
) -> Backend:
    """Open the backend that a URL names.

    Args:
        url: As `check_url` has it.
        state: Where the embedded pool is kept.
        settings: How to talk to a server, as `encode_settings` wrote it.
        release_seconds: How long a release may take in all, on a server.
        lost: Told of leases that went away without having been given back.
        clock: Where times come from.
    """
    if check_url(url) == DRY_RUN:
        return DryRunBackend(state)
    if is_remote(url):
        return _open_proxy(url, settings, release_seconds, clock)
    engine = LocalEngine(state, lost=lost, clock=clock)
    pools = LocalPools(state, lost=lost, clock=clock)
    return PoolBackend(url, engine, pools, clock=clock)


def open_pools(url: str, state: State, *, lost: LostListener, clock: Clock) -> PoolAdmin:
    """Open what makes and shows a backend's pools.

    Raises:
        NotSupported: The backend has no pools of its own.
    """
    if check_url(url) != LOCAL:
        raise NotSupported(f"backend {url} has no pools; choose {LOCAL} with --backend")
    return LocalPools(state, lost=lost, clock=clock)


def _open_proxy(url: str, settings: str, release_seconds: float, clock: Clock) -> Backend:
    # Here, because they bring httpx and tenacity along.
    from leasectl.backends.connection import Connection
    from leasectl.backends.proxy import ProxyBackend

    connection = Connection(url, parse_settings(settings), clock=clock)
    return ProxyBackend(url, connection, release_seconds=release_seconds, clock=clock)
