"""Open the backend, and what is asked beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from leasectl.backends.boskos import requests
from leasectl.backends.boskos.backend import BoskosBackend
from leasectl.backends.boskos.connection import BoskosConnection, check_is_boskos
from leasectl.backends.boskos.holding import Holding
from leasectl.backends.boskos.requests import parse_boskos_url, sign_of_life, with_login
from leasectl.backends.contract import Backend, Opening
from leasectl.backends.servers import Timing
from leasectl.backends.without_pools import own_events
from leasectl.http.settings import Settings, parse_settings
from leasectl.model import Request
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.backends.servers import ClaimWatch, Renew
    from leasectl.engines.notes import NoteListener

_PROBE_SECONDS = 2.0


def check_url(url: str) -> None:
    """Raise InvalidRequest unless it is the address of a Boskos."""
    parse_boskos_url(url)


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Implements `limits.check_request`."""
    requests.check_request(request)


def timing(url: str) -> Timing:
    """Implements `TimingSource`: the reaper's time, as the address gives it."""
    address = parse_boskos_url(url)
    return Timing(address.ttl_seconds, address.reaper_seconds, address.renew_seconds)


def locate(url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Implements `Locator`: the user, if something in front of Boskos needs one."""
    return with_login(settings, environment)


def open_backend(url: str, opening: Opening) -> Backend:
    """Open a Boskos; nothing is asked of it yet."""
    # Here, because they take long to load.

    connection = BoskosConnection(
        parse_boskos_url(url), parse_settings(opening.settings), clock=opening.clock
    )
    return BoskosBackend(
        url,
        connection,
        release_seconds=opening.release_seconds,
        warn=opening.warn,
        clock=opening.clock,
        events=lambda: own_events(opening.state, url),
    )


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
    """Implements `ClaimServer`. A try takes at most a sixth of the ttl."""
    holding = Holding(BoskosConnection(parse_boskos_url(url), settings, clock=clock), clock=clock)
    return lambda claim_key, names: holding.renew(claim_key, names, seconds=ttl_seconds / 3)


def open_claim_watch(
    url: str, *, state_id: str, settings: Settings, claim_key: str, fence: int, clock: Clock
) -> ClaimWatch | None:
    """Return None: Boskos doesn't report leases that it takes back."""
    return None


def open_probe(url: str, settings: Settings, *, clock: Clock) -> Callable[[], None]:
    """Implements `ClaimServer`."""
    connection = BoskosConnection(parse_boskos_url(url), settings, clock=clock)
    call = sign_of_life(connection.address)
    return lambda: check_is_boskos(connection.url, connection.ask(call, seconds=_PROBE_SECONDS))
