"""From a backend's URL to the backend."""

from __future__ import annotations

import re
from typing import Callable

from leasectl.backends.contract import Backend
from leasectl.backends.dry_run import DryRunBackend
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import LostListener
from leasectl.engines.etcd.address import is_etcd, parse_etcd_url
from leasectl.engines.local.engine import LocalEngine
from leasectl.engines.local.pools import LocalPools
from leasectl.errors import InvalidRequest
from leasectl.http.settings import RELEASE_SECONDS, Settings, parse_settings
from leasectl.model import is_remote
from leasectl.state.directory import State
from leasectl.system import signals
from leasectl.system.clock import Clock
from leasectl.text.printable import printable

LOCAL = "local:"
DRY_RUN = "none:"
_PROXY = re.compile(r"https?://[A-Za-z0-9._~:\[\]-]+(/[A-Za-z0-9._~/-]*)?", re.ASCII)
_ETCD_TTL_SECONDS = 60.0
_PROBE_SECONDS = 2.0


def check_url(url: str) -> str:
    """Return the URL of a backend there is, or raise InvalidRequest."""
    if is_etcd(url):
        parse_etcd_url(url)
    elif url not in (LOCAL, DRY_RUN) and not _PROXY.fullmatch(url):
        raise InvalidRequest(
            f'there is no backend "{printable(url)}"; choose {LOCAL}, {DRY_RUN}, '
            "etcd://HOST:PORT or the http:// address of a lease proxy with --backend or "
            "LEASECTL_BACKEND"
        )
    return url


def has_pools(url: str) -> bool:
    """Tell whether a backend has pools of its own that can be shown and changed."""
    return url == LOCAL or is_etcd(url)


def default_ttl_seconds(url: str) -> float | None:
    """The ttl of a request that names none, in seconds; None: it doesn't expire."""
    return _ETCD_TTL_SECONDS if is_etcd(url) else None


def open_backend(
    url: str,
    state: State,
    *,
    settings: str,
    release_seconds: float = RELEASE_SECONDS,
    rest_seconds: float = 0.0,
    lost: LostListener,
    clock: Clock,
) -> Backend:
    """Open the backend that a URL names.

    Args:
        url: As `check_url` has it.
        state: Where the embedded pool is kept.
        settings: How to talk to a server, as `encode_settings` wrote it.
        release_seconds: How long a release may take in all, on a server.
        rest_seconds: For how long a server isn't asked again that hasn't answered.
        lost: Told of leases that went away without having been given back.
        clock: Where times come from.
    """
    if check_url(url) == DRY_RUN:
        return DryRunBackend(state)
    if is_etcd(url):
        from leasectl.engines.etcd.opening import open_etcd, open_gateway

        gateway = open_gateway(
            url,
            parse_settings(settings),
            clock=clock,
            deadline_seconds=release_seconds,
            rest_seconds=rest_seconds,
            pause=signals.sleep,
        )
        opened = open_etcd(url, gateway, state_id=state.state_id(), lost=lost, clock=clock)
        return PoolBackend(url, opened.engine, opened.pools, clock=clock, remote=True)
    if is_remote(url):
        return _open_proxy(url, settings, release_seconds, clock)
    engine = LocalEngine(state, lost=lost, clock=clock)
    pools = LocalPools(state, lost=lost, clock=clock)
    return PoolBackend(url, engine, pools, clock=clock)


def open_renewals(
    url: str, *, state_id: str, settings: str, ttl_seconds: float, clock: Clock
) -> Callable[[str], tuple[str, ...]]:
    """Open what sends heartbeats to a server, for use in a thread of its own.

    Args:
        url: Of a backend whose leases expire and live on a server.
        state_id: Of the state directory, as `State.state_id` tells it.
        settings: How to talk to the server, as `encode_settings` wrote it.
        ttl_seconds: Of the leases. No heartbeat takes longer than a third of it, and none is tried
            longer than a sixth at one member.
        clock: Where times come from.

    Returns:
        Gives an owner's claims their full time again and tells which it still holds.
    """
    from leasectl.engines.etcd.gateway.gateway import ATTEMPT_SECONDS
    from leasectl.engines.etcd.opening import open_etcd, open_gateway

    gateway = open_gateway(
        url,
        parse_settings(settings),
        clock=clock,
        deadline_seconds=ttl_seconds / 3,
        attempt_seconds=min(ATTEMPT_SECONDS, ttl_seconds / 6),
    )
    opened = open_etcd(
        url, gateway, state_id=state_id, lost=lambda claim_key, names: None, clock=clock
    )
    return opened.engine.renew


def open_probe(url: str, settings: Settings, *, clock: Clock) -> Callable[[], None] | None:
    """Open what finds out whether a backend of ours works, for use in any thread.

    Args:
        url: As `check_url` has it.
        settings: How to talk to a server.
        clock: Where times come from.

    Returns:
        Raises LeaseError when the backend doesn't work, after two seconds at the latest, and
        changes nothing; calls must not overlap. None where there is no server to be asked, or no
        way to ask it without leasing.
    """
    if not is_etcd(url):
        return None
    from leasectl.engines.etcd.keys import Keys
    from leasectl.engines.etcd.opening import open_gateway
    from leasectl.engines.etcd.probe import probe

    address = parse_etcd_url(url)
    # One out of so many answers, as long as most of them do.
    tries = len(address.endpoints) // 2 + 1
    gateway = open_gateway(
        url,
        settings,
        clock=clock,
        deadline_seconds=_PROBE_SECONDS,
        attempt_seconds=_PROBE_SECONDS / tries,
    )
    keys = Keys(address.prefix, state_id="")
    return lambda: probe(gateway, keys)


def _open_proxy(url: str, settings: str, release_seconds: float, clock: Clock) -> Backend:
    # Here, because they bring httpx and tenacity along.
    from leasectl.backends.proxy.backend import ProxyBackend
    from leasectl.http.connection import Connection

    connection = Connection(url, parse_settings(settings), clock=clock)
    return ProxyBackend(url, connection, release_seconds=release_seconds, clock=clock)
