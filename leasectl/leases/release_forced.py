"""End leases that another job or process holds.

Their holder is told at once. A resource is granted again when the holder's `run` has ended the
command and said so, and no later than the end of the lease's ttl. Without a `run` and without a ttl
it is free at once; then only the fence tells the newer holder from the older. The queue stays.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leasectl.backends.kinds import claim_key_of, kind_of_handle
from leasectl.engines.facts import QueueEntry, Resource
from leasectl.errors import InvalidRequest, LeaseError, NotAllowed, NotFound, NotSupported
from leasectl.leases.release import release, release_each
from leasectl.leases.service import ANY_LEASE, Expected, Service
from leasectl.leases.targets import targets_of_everything
from leasectl.model import Handle, Process, whole
from leasectl.state.handles import explain_loss
from leasectl.state.named_pipe import is_read
from leasectl.system.process import liveness
from leasectl.text.wording import printable

_LONGEST_REASON = 200


class Forced(NamedTuple):
    """A lease that was ended, just now or before.

    Args:
        name: Of the resource.
        fence: Of the lease; later holders have larger ones.
        holder_identity: Of its holder.
        has_run: A `run` of this state directory ends its command first; None if that is known only
            in another state directory.
        free_in_seconds: When it is free at the latest; None when only `run` says, 0 for at once.
        ended_before: Who had ended it already, and why, while the pool still keeps it; else None.
        is_at_risk: It was freed although its holder had time left, or a `run` to end its command.
    """

    name: str
    fence: int
    holder_identity: str
    has_run: bool | None
    free_in_seconds: float | None
    ended_before: str | None = None
    is_at_risk: bool = False


def check_reason(reason: str) -> str:
    """Return a reason if it is safe to print on a terminal.

    Raises:
        InvalidRequest: It isn't one printable line of 200 characters at most.
    """
    if not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise InvalidRequest("--reason: write one printable line, of 200 characters at most")
    return reason


def release_by_force(
    service: Service,
    names: Sequence[str],
    *,
    reason: str,
    expected: Expected = ANY_LEASE,
    at_once: bool = False,
) -> list[Forced]:
    """End the leases on some resources, whoever holds them.

    Args:
        service: On the backend that they come from.
        names: Of the resources; free ones are left out of the result.
        reason: Why, as `check_reason` returned it; may be empty.
        expected: What each lease must still be. A claim key names one acquisition, so a lease that
            is granted after this check isn't ended.
        at_once: Free them now, although their holders may still use them.

    Returns:
        The leases that this call has ended, and those that were ended before and are still kept.

    Raises:
        NotFound: No such resource; none is released.
        NotAllowed: A holder didn't get its lease from leasectl, or a lease isn't the expected one;
            none is released.
        NotSupported: The backend has no pools of its own.
    """
    kind = service.kind
    if not kind.has_pools:
        why = (
            "doesn't know holders. Without --force, --names releases any lease there: check the "
            "names"
            if kind.releases_by_name or kind.grants_nothing
            else "releases a lease only for its handle; run leasectl release H on the machine that "
            "acquired it"
        )
        raise NotSupported(f"--force is not supported by {kind.title}, which {why}")
    text = _told(service, reason)
    forced: list[Forced] = []
    with service.atomic():
        resources = _resources(service, names)
        for resource in resources:
            if resource.lease is not None:
                expected.check(resource.lease)
        for resource in resources:
            forced += _end(service, resource, text, at_once=at_once)
    return forced


def release_handle_by_force(
    service: Service, handle: Handle, *, reason: str, at_once: bool = False
) -> list[Forced]:
    """End the leases of a handle of this state directory, or withdraw its request.

    A backend without pools keeps nothing for a holder, so there the leases are free at once.

    Args:
        service: On the state directory of the handle.
        handle: As just loaded; nothing happens if it was acquired again since.
        reason: See `release_by_force`.
        at_once: See `release_by_force`.

    Returns:
        See `release_by_force`.

    Raises:
        LeaseError: See `release`.
    """
    if handle.state == "acquiring" or not kind_of_handle(handle).has_pools:
        names = release(service, whole(handle, by="force"))
        fences = {lease.name: lease.fence for lease in handle.leases}
        return [Forced(n, fences.get(n, 0), handle.holder_identity, False, 0.0) for n in names]
    there, claim_key, text = (
        service.at_backend_of(handle),
        claim_key_of(handle),
        _told(service, reason),
    )
    forced: list[Forced] = []
    with there.atomic():
        if service.current(whole(handle)) is None:
            return []
        for pool in there.pools.pools():
            for resource in pool.resources:
                if resource.claim_key == claim_key and (at_once or resource.ended is None):
                    forced += _end(there, resource, text, at_once=at_once)
    return forced


def withdraw_waiting(
    service: Service, holder: str, *, reason: str, force: bool
) -> list[QueueEntry]:
    """Withdraw the requests of a holder, in whichever state directory they are recorded.

    Args:
        service: On the backend that they wait for.
        holder: The whole identity, ``<job>/<build>``, or the handle's id.
        reason: See `release_by_force`.
        force: Also those of another job or build.

    Returns:
        The requests, as they were.

    Raises:
        NotAllowed: One is of another job or build; then none is withdrawn.
        NotSupported: The backend has no pools of its own.
    """
    from leasectl.backends.pool.withdrawals import waiting_as, withdraw

    why = _told(service, check_reason(reason), what="withdrawn")
    found = waiting_as(service.pools, holder)
    for each in found:
        owner = each.holder_identity.rpartition("/")[0].rpartition("/")[0]
        if not force and not service.caller.is_owner(owner):
            raise NotAllowed(
                f'the request of "{printable(each.holder_identity, longest=1000)}" is of another '
                f"job or build than {service.caller.owner}; to withdraw it anyway, add --force"
            )
    for each in found:
        withdraw(service.backend, each, why)
    return found


def release_all_by_force(
    service: Service, *, reason: str, at_once: bool = False
) -> tuple[list[str], list[Forced], LeaseError | None]:
    """Release what this state directory holds; by force what isn't the caller's own.

    Args:
        service: On the state directory.
        reason: Why; may be empty.
        at_once: See `release_by_force`; also frees what was ended by force before.

    Returns:
        The names that were released, the leases that were ended by force, and the first error:
        all the rest was tried all the same.
    """
    check_reason(reason)
    own, others = targets_of_everything(service)
    released, forced, failed = list[str](), list[Forced](), None
    # Waiters first, or they would be granted what the others give back.
    for handle in sorted(others, key=lambda each: each.state != "acquiring"):
        try:
            forced += release_handle_by_force(service, handle, reason=reason, at_once=at_once)
        except LeaseError as error:
            failed = failed or error
    if at_once:
        forced += release_kept(service, reason=reason)
    try:
        release_each(service, own, tell=released.extend)
    except LeaseError as error:
        failed = failed or error
    return released, forced, failed


def release_kept(service: Service, *, reason: str) -> list[Forced]:
    """Free leases of this state directory that were ended by force and are still kept.

    Args:
        service: On the backend that they come from.
        reason: See `release_by_force`.

    Returns:
        See `release_by_force`.
    """
    if not service.kind.has_pools:
        return []
    text, forced = _told(service, reason), list[Forced]()
    with service.atomic():
        for pool in service.pools.pools():
            for resource in pool.resources:
                handle_id = (resource.claim_key or "").partition("/")[0]
                if resource.ended is not None and service.handles.load(handle_id) is not None:
                    forced += _end(service, resource, text, at_once=True)
    return forced


def _told(service: Service, reason: str, *, what: str = "released by force") -> str:
    """Return what the holder, or who waits, is told: who has ended it, and why."""
    by_whom = f"{what} by {service.caller.owner}"
    return f"{by_whom}: {reason}" if reason else by_whom


def _resources(service: Service, names: Sequence[str]) -> list[Resource]:
    pools = service.pools.pools()
    found = {each.name: each for pool in pools for each in pool.resources}
    for name in names:
        if name not in found:
            raise NotFound(
                f'no resource "{printable(name)}"; list them with: leasectl status --wide'
            )
    for name in names:
        lease = found[name].lease
        if lease is not None and found[name].claim_key is None:
            holder = printable(lease.holder_identity, longest=1000)
            raise NotAllowed(
                f'{name} is held by "{holder}", which is not leasectl; release it there (leasectl '
                "doctor shows where)"
            )
    return [found[name] for name in dict.fromkeys(names)]


def _end(service: Service, resource: Resource, text: str, *, at_once: bool) -> list[Forced]:
    claim_key, lease = resource.claim_key, resource.lease
    if claim_key is None or lease is None:
        return []
    handle = service.handles.load(claim_key.partition("/")[0])
    if handle is not None and claim_key_of(handle) != claim_key:
        handle = None  # it has moved on
    has_run = handle is not None and _is_followed(service, handle)
    guard = _guard_to_wait_for(handle, has_run=has_run, expires=lease.lease_duration_seconds)
    names = service.pools.end_early(
        claim_key, [resource.name], guard=guard, reason=text, at_once=at_once
    )
    if names and handle is not None:
        with service.state.transaction():
            explain_loss(service.state, handle, text)
    left = resource.expires_in_seconds if lease.lease_duration_seconds is not None else None
    known = has_run if handle is not None else None
    if not names and resource.ended is not None:
        told = resource.ended
        return [Forced(resource.name, lease.fence, lease.holder_identity, known, left, told)]
    is_at_risk = at_once and (left is not None or guard is not None)
    if at_once or (left is None and guard is None):
        left = 0.0
    return [
        Forced(name, lease.fence, lease.holder_identity, known, left, is_at_risk=is_at_risk)
        for name in names
    ]


def _is_followed(service: Service, handle: Handle) -> bool:
    """Return whether a `run` will end its command when it is told of the loss.

    Whether a process of another pid namespace lives can't be seen, but whether its pipe has a
    reader.
    """
    alive = "dead" if handle.runner is None else liveness(handle.runner)
    if alive == "unknown":
        return is_read(service.state.runner_pipe(handle.id))
    return alive == "alive"


def _guard_to_wait_for(
    handle: Handle | None, *, has_run: bool, expires: float | None
) -> Process | None:
    """Return the process whose end frees a lease; without a ttl, only one that a `run` ends."""
    if handle is None or (expires is None and not has_run):
        return None
    return handle.guard
