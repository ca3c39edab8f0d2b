"""Turn a request into the record of a new handle."""

from __future__ import annotations

import os

from leasectl.backends.kinds import Context, choosing, lacking, only_ttl
from leasectl.errors import InvalidRequest, StateUnwritable
from leasectl.leases.service import Service
from leasectl.model import (
    HIGHEST_PRIORITY,
    Handle,
    Labels,
    OnReclaim,
    Request,
    Scope,
    Where,
)
from leasectl.system.process import this_process
from leasectl.text.durations import (
    DurationRange,
    draw_between,
    drawn_between,
    format_duration,
    format_seconds,
)
from leasectl.text.naming import (
    BUILD_LABEL,
    OWN_LABELS,
    WHOLE_POOL_LABEL,
    check_label_key,
    superseding_key,
    superseding_label,
    wants_whole_pool,
)
from leasectl.text.wording import printable

SHORTEST_TTL_SECONDS = 2.0  # etcd prolongs a shorter one
LARGEST_COUNT = 1_000_000  # far more than any pool has
MOST_TYPES = 16  # a waiter needs a descriptor or two for each
_LONGEST_LABEL = 200  # characters of its value


def check_request(request: Request, wait_seconds: float | None, context: Context) -> None:
    """Refuse an invalid request before anything is opened or asked.

    Args:
        request: What is wanted.
        wait_seconds: How long it may wait; None for no limit.
        context: Where the leases come from, and who asks.

    Raises:
        InvalidRequest: It is invalid, or not possible on this backend.
    """
    _effective(request, context)
    context.kind.check_url(context.url)
    context.kind.check_request(request, wait_seconds)


def parse_labels(labels: tuple[str, ...]) -> Labels:
    """Read ``K=V`` options; raise InvalidRequest if one is invalid."""
    pairs = []
    for label in labels:
        key, equals, value = label.partition("=")
        check_label_key(key)
        if key.startswith(OWN_LABELS):
            raise InvalidRequest(f'--label "{key}": keys that begin with {OWN_LABELS} are reserved')
        if not equals or not value.isprintable() or len(value) > _LONGEST_LABEL:
            raise InvalidRequest(
                f'--label "{key}": write it as KEY=VALUE, in one printable line of at most '
                f"{_LONGEST_LABEL} characters"
            )
        pairs.append((key, value))
    return tuple(pairs)


def make_request(
    *,
    pool_types: tuple[str, ...],
    count: int | None,
    name: str | None,
    where: tuple[str, ...],
    release_after: DurationRange | None,
    ttl_seconds: float | None,
    labels: tuple[str, ...],
    priority: int,
    supersede: str | None = None,
    on_reclaim: OnReclaim = "keep",
    scope: Scope = "step",
    each: bool = False,
) -> Request:
    """Make a `Request` from the values of the command line's options.

    Args:
        pool_types: The pools, any of which will do, unless ``each``; the first names the request.
        count: How many resources; None for the whole pool.
        name: The one resource that will do; None for any.
        where: Conditions on properties, each ``K=V`` or ``K!=V``.
        release_after: When the keeper releases, in seconds after the grant; None for never.
        ttl_seconds: The ttl; None for the backend's default.
        labels: ``K=V`` each, shown to people.
        priority: The higher goes first.
        supersede: Withdraws older waiting requests for the pool with this key; None for none.
        on_reclaim: The answer when a lease is wanted back.
        scope: See `Request`.
        each: All pools are needed, for ``count`` resources of each.

    Raises:
        InvalidRequest: A value is invalid, or two contradict each other.
    """
    if count is None and (name is not None or len(pool_types) > 1):
        raise InvalidRequest("--count all means one whole pool; leave out --name, and give one -t")
    if each and len(pool_types) == 1:
        raise InvalidRequest("--each needs several pools; name each with -t, or leave out --each")
    own: Labels = ()
    if supersede is not None:
        if not supersede or not supersede.isprintable() or len(supersede) > _LONGEST_LABEL:
            raise InvalidRequest(
                f"--supersede: write one printable line of 1 to {_LONGEST_LABEL} characters"
            )
        own = (superseding_label(supersede),)
    if count is None:
        own = (*own, WHOLE_POOL_LABEL)
    conditions: Where = ()
    if where:
        from leasectl.text.properties import parse_conditions  # which few requests need

        conditions = parse_conditions(where)
    return Request(
        type=pool_types[0],
        count=1 if count is None else count,  # counted when the request is made
        name=name,
        ttl_seconds=ttl_seconds,
        release_after_seconds=None if release_after is None else release_after.shortest,
        scope=scope,
        labels=(*parse_labels(labels), *own),
        other_types=pool_types[1:],
        priority=priority,
        release_between_seconds=drawn_between(release_after),
        where=conditions,
        on_reclaim=on_reclaim,
        needs_all=each,
    )


def new_handle(service: Service, request: Request, handle_id: str) -> Handle:
    """Return the record of a new request, not written yet.

    Raises:
        InvalidRequest: It is invalid, or not possible on this backend.
        StateUnwritable: There is no folder to list it in.
    """
    caller = service.caller
    explicit_ttl = request.ttl_seconds is not None
    request = drawn(_effective(request, service.context))
    if caller.build_url and all(key != BUILD_LABEL for key, _ in request.labels):
        request = request._replace(labels=(*request.labels, (BUILD_LABEL, caller.build_url)))
    if request.scope == "test" and not os.path.isdir(caller.require_shared_dir()):
        raise StateUnwritable(
            f"SHARED_DIR {caller.shared_dir} is not a directory; set it to one that exists"
        )
    return Handle(
        id=handle_id,
        backend=service.backend_url,
        request=request,
        owner=caller.owner,
        holder_identity=caller.identity_of(handle_id),
        state="acquiring",
        acquisition=1,
        waiter=this_process(),
        shared_dir=caller.shared_dir if request.scope == "test" else None,
        settings=service.settings,
        explicit_ttl=explicit_ttl,
    )


def count_whole_pool(service: Service, request: Request) -> Request:
    """Set the count of a request for all resources of its pool, as the pool is now.

    Cordoned resources count: they may still have a holder, and may be uncordoned during the lease.

    Raises:
        NotFound: There is no such pool.
        NotSupported: The backend has no pools.
    """
    if not wants_whole_pool(request.labels) or service.kind.grants_nothing:
        return request
    if not service.kind.has_pools:
        raise lacking(f"--count all is not supported by {service.backend_url}")
    from leasectl.engines.rules.possible import usable_in

    (pool,) = service.pools.pools(request.type)
    return request._replace(count=max(1, len(usable_in(pool, request))))


def drawn(request: Request) -> Request:
    """Return a request whose delayed release has been drawn from its range, if it has one."""
    if request.release_between_seconds is None:
        return request
    return request._replace(release_after_seconds=draw_between(*request.release_between_seconds))


def check_ttl(ttl_seconds: float, *, named: str = "--ttl") -> None:
    """Refuse a ttl that no store could keep, with InvalidRequest."""
    if ttl_seconds < SHORTEST_TTL_SECONDS:
        raise InvalidRequest(
            f"{named} {format_seconds(ttl_seconds)} is too short; it must be at least 2s, or leave "
            "it out for the default"
        )


def parse_priority(text: str, *, named: str = "--priority") -> int:
    """Read a priority; raise InvalidRequest if it is none."""
    try:
        priority = int(text)
    except ValueError:
        priority = HIGHEST_PRIORITY + 1
    if abs(priority) > HIGHEST_PRIORITY:
        raise InvalidRequest(
            f"{named} {printable(text)}: use a whole number from {-HIGHEST_PRIORITY} to "
            f"{HIGHEST_PRIORITY}"
        )
    return priority


def _effective(request: Request, context: Context) -> Request:
    """Return a valid request with the ttl that it has on this backend, or raise InvalidRequest."""
    count = request.count
    if not (isinstance(count, int) and 1 <= count <= LARGEST_COUNT):
        raise InvalidRequest(
            f"--count {count}: use a whole number from 1 to {LARGEST_COUNT}, or all"
        )
    parse_priority(str(request.priority))
    if request.name is not None:
        _check_name(request)
    can_choose = context.kind.has_pools or context.kind.grants_nothing
    if request.other_types:
        if not can_choose:
            raise choosing(
                f"{context.url} takes one pool per request; give -t once, or another backend"
            )
        _check_types(request)
    if superseding_key(request.labels) and not context.kind.has_pools:
        raise lacking(f"--supersede is not supported by {context.url}")
    if request.on_reclaim != "keep" and not can_choose:
        raise lacking(f"--on-reclaim {request.on_reclaim} is not supported by {context.url}")
    ttl = request.ttl_seconds
    if ttl is not None:
        check_ttl(ttl)
    if request.scope == "test":
        context.caller.require_shared_dir()
    return _with_ttl(request, context)


def _with_ttl(request: Request, context: Context) -> Request:
    """Return a request with the ttl that it has on a backend."""
    url, kind, ttl = context.url, context.kind, request.ttl_seconds
    if kind.default_ttl_seconds is None:
        return request
    known = kind.timing(url)
    if ttl is None and request.scope == "test":
        wanted = "" if known is None else f" {format_duration(known.said_seconds)}"
        raise InvalidRequest(
            f"--scope test needs --ttl{wanted} on {url}: leases expire there, "
            "and nothing renews them between steps"
        )
    if known is not None:
        if ttl not in (None, known.said_seconds):
            raise only_ttl(url, known.said_seconds)
        return request._replace(ttl_seconds=known.ttl_seconds)
    return request if ttl is not None else request._replace(ttl_seconds=kind.default_ttl_seconds)


def _check_name(request: Request) -> None:
    """Refuse an invalid request for one resource by name."""
    if request.count != 1:
        raise InvalidRequest("--name asks for one resource; leave out --count")
    if request.where:
        raise InvalidRequest("--name already chooses the resource; leave out --where")


def _check_types(request: Request) -> None:
    """Refuse an invalid request for several pools."""
    several = " ".join(f"-t {each}" for each in request.types[:MOST_TYPES])
    if len(request.types) > MOST_TYPES:
        raise InvalidRequest(f"{len(request.types)} pools: give -t at most {MOST_TYPES} times")
    if len(set(request.types)) < len(request.types):
        raise InvalidRequest(f"{several}: name each pool once")
    if request.count != 1 and not request.needs_all:
        raise InvalidRequest(
            f"{several} means one lease of either pool; leave out --count, or add --each"
        )
    if request.name is not None:
        raise InvalidRequest(
            f"--name {request.name} is in one pool; name only that pool, not {several}"
        )
