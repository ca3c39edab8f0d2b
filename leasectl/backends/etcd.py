"""``etcd://``: pools in etcd.

What asks a cluster is imported where it is asked: an address is looked at without that, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING

from leasectl.backends.contract import Backend, Opening
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.etcd.address import parse_etcd_url
from leasectl.engines.etcd.gateway.gateway import ATTEMPT_SECONDS
from leasectl.engines.etcd.keys import Keys
from leasectl.engines.etcd.opening import open_below, open_etcd, open_gateway
from leasectl.engines.etcd.pools.listing import pool_types as types_in
from leasectl.engines.etcd.pools.listing import resource_names as names_in
from leasectl.engines.etcd.records import check_count, revision_of
from leasectl.http.settings import Settings, parse_settings
from leasectl.model import Request
from leasectl.state.event import Kept
from leasectl.system import signals
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.backends.servers import ClaimWatch, Renew
    from leasectl.engines.etcd.gateway.gateway import Gateway
    from leasectl.engines.etcd.keys import Keys
    from leasectl.engines.notes import NoteListener
    from leasectl.engines.pool_admin import Sides
    from leasectl.state.directory import State
    from leasectl.state.event import Kept

# What any request may take in all, unless somebody has said how long a release may.
_REQUEST_SECONDS = 10.0
_PROBE_SECONDS = 2.0
# So that with a member that is down there is time for another.
_ONE_MEMBERS_SHARE = 0.4
# More than anybody looks through; so many are read in a few hundredths of a second.
_MOST_NAMES = 5_000


def check_url(url: str) -> None:
    """Raise InvalidRequest unless it is the URL of a cluster."""
    parse_etcd_url(url)


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Raise InvalidRequest when it asks for more than one transaction can claim."""
    check_count(request)


def open_backend(url: str, opening: Opening) -> Backend:
    """Open the pools in a cluster; nothing is asked of it yet."""
    seconds = opening.release_seconds
    gateway = open_gateway(
        url,
        parse_settings(opening.settings),
        clock=opening.clock,
        deadline_seconds=_REQUEST_SECONDS if seconds is None else seconds,
        rest_seconds=opening.rest_seconds,
        pause=signals.pause,
    )
    opened = open_etcd(
        url,
        gateway,
        state_id=opening.state.state_id(),
        lost=opening.lost,
        clock=opening.clock,
        caller=opening.caller,
        kept=_kept(opening.state),
    )
    return PoolBackend(
        url,
        opened.engine,
        opened,
        clock=opening.clock,
        remote=True,
        limited=gateway.limited,
        release_seconds=seconds,
    )


def _kept(state: State) -> Kept | None:
    """Which events are kept; None for the default."""
    kept = Kept(state.events.kept_seconds, state.events.kept_number)
    return None if kept == Kept() else kept


def open_renewals(
    url: str,
    *,
    state_id: str,
    settings: Settings,
    ttl_seconds: float,
    noted: NoteListener,
    put_off: Callable[[], object] | None,
    clock: Clock,
) -> Renew:
    """Implements `ClaimServer`. A try at one member takes at most a sixth of the ttl."""
    gateway = open_gateway(
        url,
        settings,
        clock=clock,
        deadline_seconds=ttl_seconds / 3,
        attempt_seconds=min(ATTEMPT_SECONDS, ttl_seconds / 6),
    )
    opened = open_etcd(
        url, gateway, state_id=state_id, lost=lambda claim_key, names: None, clock=clock
    )
    opened.engine.renewals.noted = noted
    return lambda claim_key, names: opened.engine.renew(claim_key)


def open_claim_watch(
    url: str, *, state_id: str, settings: Settings, claim_key: str, fence: int, clock: Clock
) -> ClaimWatch:
    """Implements `ClaimServer`."""
    from leasectl.engines.etcd.waiting.claim_watch import EtcdClaimWatch

    gateway = open_gateway(url, settings, clock=clock)
    keys = Keys(parse_etcd_url(url).prefix, state_id)
    return EtcdClaimWatch(gateway, keys, claim_key, revision_of(fence))


def open_probe(url: str, settings: Settings, *, clock: Clock) -> Callable[[], None]:
    """Implements `ClaimServer`."""
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


def pool_types(url: str, settings: Settings, *, seconds: float, clock: Clock) -> list[str]:
    """Implements `PoolServer`."""
    return types_in(*_open_briefly(url, settings, seconds=seconds, clock=clock))


def resource_names(
    url: str,
    settings: Settings,
    begin: str,
    types: Collection[str],
    *,
    seconds: float,
    clock: Clock,
) -> list[str]:
    """Implements `PoolServer`."""
    opened = _open_briefly(url, settings, seconds=seconds, clock=clock)
    return names_in(*opened, begin, types, most=_MOST_NAMES)


def open_to_look(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sides:
    """Implements `PoolServer`."""
    gateway, keys = _open_briefly(url, settings, seconds=seconds, clock=clock)
    return open_below(keys, gateway, lost=lambda claim_key, names: None, clock=clock)


def _open_briefly(
    url: str, settings: Settings, *, seconds: float, clock: Clock
) -> tuple[Gateway, Keys]:
    """Open a cluster for a short read, such as shell completion."""
    gateway = open_gateway(
        url,
        settings,
        clock=clock,
        deadline_seconds=seconds,
        attempt_seconds=seconds * _ONE_MEMBERS_SHARE,
    )
    return gateway, Keys(parse_etcd_url(url).prefix, "")
