"""Open the backend of a URL."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from leasectl.backends.contract import Opening
from leasectl.backends.kinds import claim_key_of, kind_of, kind_of_handle
from leasectl.errors import NotSupported
from leasectl.http.settings import Settings, parse_settings
from leasectl.model import Request
from leasectl.state.directory import State
from leasectl.system.clock import Clock

if TYPE_CHECKING:
    from leasectl.backends.contract import Backend, Opener
    from leasectl.backends.servers import (
        ClaimServer,
        ClaimWatch,
        CountServer,
        Locator,
        PoolServer,
        Renew,
        StatusServer,
        Timing,
        TimingSource,
        TypeCounts,
    )
    from leasectl.engines.contract import LostListener
    from leasectl.engines.notes import NoteListener
    from leasectl.engines.pool_admin import Sides
    from leasectl.model import Handle
    from leasectl.system.poll import Interrupt


def check_url(url: str) -> str:
    """Return the URL of a backend there is, or raise InvalidRequest."""
    _opener(url).check_url(url)
    return url


def located(url: str, settings: Settings, environment: Mapping[str, str]) -> Settings:
    """Settings with which server a URL means here and now, where it doesn't say that itself.

    Args:
        url: Of a backend there is.
        settings: As far as they are the same for all.
        environment: The variables that may say so.

    Raises:
        LeaseError: Nothing says so, or what does can't be used.
    """
    module = kind_of(url).located_by
    if module is None:
        return settings
    locator = cast("Locator", importlib.import_module(module))
    return locator.locate(url, settings, environment)


def check_request(url: str, request: Request, wait_seconds: float | None) -> None:
    """Refuse what no backend of this kind could ever grant; nobody is asked.

    Args:
        url: Of the backend.
        request: What is wanted.
        wait_seconds: For how long it may wait; None for no limit.

    Raises:
        InvalidRequest: It can't be granted, or there is no such backend.
    """
    check_url(url)
    _opener(url).check_request(request, wait_seconds)


def timing(url: str) -> Timing | None:
    """How long leases last where their address says it; None where requests do.

    Args:
        url: Of a backend there is.

    Raises:
        InvalidRequest: It can't be right.
    """
    module = kind_of(url).timed_by
    if module is None:
        return None
    return cast("TimingSource", importlib.import_module(module)).timing(url)


def renew_seconds(handle: Handle) -> float:
    """How often what a handle holds is renewed: well before its ttl is over, so that there is time
    for more than one try."""
    assert handle.request.ttl_seconds is not None
    third = handle.request.ttl_seconds / 3
    if kind_of_handle(handle).timed_by is None:
        return third
    known = timing(handle.backend)
    return third if known is None else min(third, known.renew_seconds)


def open_backend(
    url: str,
    state: State,
    *,
    settings: str,
    release_seconds: float | None = None,
    rest_seconds: float = 0.0,
    lost: LostListener,
    warn: Callable[[str], None] = lambda _: None,
    clock: Clock,
    caller: str = "",
) -> Backend:
    """Open the backend that a URL names; no server is asked anything yet.

    Args:
        url: Of it.
        state: Where the embedded pool is kept.
        settings: How to talk to a server, as `encode_settings` wrote it.
        release_seconds: How long a release may take in all, on a server; None for as long as is
            usual there.
        rest_seconds: For how long a server isn't asked again that hasn't answered.
        lost: Told of leases that went away without having been given back.
        warn: Called with a line for people, about what should be known of although it goes on.
        clock: Where times come from.
        caller: Who makes and changes pools, as events tell of it.

    Raises:
        InvalidRequest: There is none.
    """
    check_url(url)
    opening = Opening(state, settings, release_seconds, rest_seconds, lost, warn, clock, caller)
    return _opener(url).open_backend(url, opening)


def open_renewals(
    url: str,
    *,
    state_id: str,
    settings: str,
    ttl_seconds: float,
    noted: NoteListener = lambda notes: None,
    put_off: Callable[[], object] | None = None,
    clock: Clock,
) -> Renew:
    """Open what renews leases on a server, for use in a thread of its own.

    Args:
        url: Of a backend whose leases expire and live on a server.
        state_id: Of the state directory, as `State.state_id` tells it.
        settings: How to talk to the server, as `encode_settings` wrote it.
        ttl_seconds: Of the leases. No renewal takes longer than a third of it.
        noted: Told by each renewal, in that thread, what is noted at the claims.
        put_off: Called likewise if some of a renewal was put off to the answer of a note, and is to
            be repeated soon; None to put nothing off.
        clock: Where times come from.

    Returns:
        Gives a claim key's claims their full time again, which are some names as far as is known,
        and tells which it still holds.

    Raises:
        NotSupported: Leases of this kind aren't renewed by their holder.
    """
    server = _claim_server(url)
    if server is None:
        raise NotSupported(f"leases of {url} aren't renewed by their holder")
    return server.open_renewals(
        url,
        state_id=state_id,
        settings=parse_settings(settings),
        ttl_seconds=ttl_seconds,
        noted=noted,
        put_off=put_off,
        clock=clock,
    )


def open_claim_watch(handle: Handle, *, state_id: str, clock: Clock) -> ClaimWatch | None:
    """Open what tells at once when somebody else changes what a handle holds on a server.

    Args:
        handle: It holds something that lives on a server.
        state_id: Of the state directory, as `State.state_id` tells it.
        clock: Where times come from.

    Returns:
        It has a thread of its own. None where leases aren't changed by others, or nobody says so.
    """
    server = _claim_server(handle.backend)
    if server is None:
        return None
    return server.open_claim_watch(
        handle.backend,
        state_id=state_id,
        settings=parse_settings(handle.settings),
        claim_key=claim_key_of(handle),
        fence=min((lease.fence for lease in handle.leases), default=0),
        clock=clock,
    )


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
    server = _claim_server(url)
    return None if server is None else server.open_probe(url, settings, clock=clock)


def pool_types(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sequence[str]:
    """The types of the pools on a server, to complete them; none where it isn't asked for them.

    Args:
        url: As `check_url` has it.
        settings: How to talk to the server.
        seconds: How long that may take.
        clock: Where times come from.

    Raises:
        LeaseError: They can't be had in that time.
    """
    server = _pool_server(url)
    return [] if server is None else server.pool_types(url, settings, seconds=seconds, clock=clock)


def resource_names(
    url: str,
    settings: Settings,
    begin: str,
    types: Collection[str],
    *,
    seconds: float,
    clock: Clock,
) -> Sequence[str]:
    """Names in the pools on a server, to complete them; none where it isn't asked for them.

    Args:
        url: As `check_url` has it.
        settings: How to talk to the server.
        begin: What they begin with; of very many so, the first will do.
        types: Of the pools that they are to be in; none of them for any.
        seconds: How long that may take.
        clock: Where times come from.

    Raises:
        LeaseError: They can't be had in that time.
    """
    server = _pool_server(url)
    if server is None:
        return []
    return server.resource_names(url, settings, begin, types, seconds=seconds, clock=clock)


def open_to_look(url: str, settings: Settings, *, seconds: float, clock: Clock) -> Sides | None:
    """The pools on a server and what is beside them, to complete what they have.

    Args:
        url: As `check_url` has it.
        settings: How to talk to the server.
        seconds: How long each request may take.
        clock: Where times come from.

    Returns:
        What is only to be read; None where no server is asked for them.
    """
    server = _pool_server(url)
    if server is None:
        return None
    return server.open_to_look(url, settings, seconds=seconds, clock=clock)


def ask_status(url: str, settings: str, *, pool_type: str | None, clock: Clock) -> object | None:
    """Ask a server how the pools behind it are, which aren't ours to change.

    Args:
        url: As `check_url` has it.
        settings: How to talk to the server, as `encode_settings` wrote it.
        pool_type: The one to tell of; None for all.
        clock: Where times come from.

    Returns:
        What `leasectl.pools.shown_json` reads; None where no server is asked for that.

    Raises:
        NotFound: It has no such type.
        NotSupported: It tells nothing of pools.
        BackendUnreachable: No answer, or none to us.
    """
    module = kind_of(url).status_by
    if module is None:
        return None
    server = cast("StatusServer", importlib.import_module(module))
    return server.ask_status(url, parse_settings(settings), pool_type=pool_type, clock=clock)


def ask_counts(
    url: str,
    settings: str,
    pool_type: str,
    *,
    interrupts: Sequence[Interrupt] = (),
    clock: Clock,
) -> TypeCounts:
    """Ask a server how many resources of a type there are, and who has how many.

    Args:
        url: Of a backend whose row names a `CountServer`.
        settings: How to talk to the server, as `encode_settings` wrote it.
        pool_type: Which type.
        interrupts: What ends it sooner, with whatever they raise.
        clock: Where times come from.

    Raises:
        NotFound: There is none of it.
        BackendUnreachable: No answer, or none to us.
    """
    module = kind_of(url).counted_by
    assert module is not None, "its row names one"
    server = cast("CountServer", importlib.import_module(module))
    return server.ask_counts(
        url, parse_settings(settings), pool_type, interrupts=interrupts, clock=clock
    )


def _opener(url: str) -> Opener:
    return cast("Opener", importlib.import_module(kind_of(url).opener))


def _claim_server(url: str) -> ClaimServer | None:
    module = kind_of(url).claim_server
    return None if module is None else cast("ClaimServer", importlib.import_module(module))


def _pool_server(url: str) -> PoolServer | None:
    server = _claim_server(url)
    return cast("PoolServer", server) if kind_of(url).has_pools else None
