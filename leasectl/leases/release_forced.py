"""Release by force: end leases that another job, or another process, holds and may be using.

Their holder is told at once. What it had is granted anew when its `run` has ended the command and
said so, and no later than the time that its last renewal gave it; without a `run` and without a ttl
at once, and then the fence alone tells the newer holder from the older. The queue is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.backends.kinds import claim_key_of, kind_of
from leasectl.engines.facts import Resource
from leasectl.errors import InvalidRequest, NotAllowed, NotFound, NotSupported
from leasectl.leases.service import Service
from leasectl.model import Handle, Process
from leasectl.state.amendments import explain_loss
from leasectl.system.named_pipe import is_read
from leasectl.system.process import liveness
from leasectl.text.printable import printable
from leasectl.typed.tuples import NamedTuple

_LONGEST_REASON = 200


class Forced(NamedTuple):
    """A lease that was ended, just now or before.

    Args:
        name: Of the resource.
        holder_identity: Whose it was.
        has_run: A `run` of this state directory ends its command first; None where another state
            directory knows.
        free_in_seconds: When it is free at the latest; None when only `run` says, 0 for at once.
        ended_before: Who had ended it already, and why, while it is kept still; else None.
    """

    name: str
    holder_identity: str
    has_run: bool | None
    free_in_seconds: float | None
    ended_before: str | None = None


def check_reason(reason: str) -> str:
    """Return a reason that may be shown on anybody's terminal.

    Raises:
        InvalidRequest: It isn't one printable line of 200 characters at most.
    """
    if not reason.isprintable() or len(reason) > _LONGEST_REASON:
        raise InvalidRequest("--reason: write one printable line, of 200 characters at most")
    return reason


def release_by_force(service: Service, names: Sequence[str], *, reason: str) -> list[Forced]:
    """End whatever leases there are on some resources.

    Args:
        service: On the backend that they come from.
        names: Of the resources; of those that are free nothing is said.
        reason: Why, as `check_reason` returned it; may be empty.

    Returns:
        The leases that were ended by this call, and those that had been and are still kept.

    Raises:
        NotFound: No such resource; then none is released.
        NotAllowed: Who holds one didn't get it from leasectl; likewise.
        NotSupported: The backend has no pools of its own.
    """
    kind = kind_of(service.backend_url)
    if not kind.has_pools:
        why = (
            "knows nothing of holders; leave it out, and choose the names well"
            if kind.releases_by_name or kind.grants_nothing
            else "takes a lease back only from the handle that has it; release that, where it is"
        )
        raise NotSupported(f"--force is not supported by {kind.title}, which {why}")
    by_whom = f"released by force by {service.caller.owner}"
    text = f"{by_whom}: {reason}" if reason else by_whom
    forced: list[Forced] = []
    with service.atomic():
        for resource in _resources(service, names):
            forced += _end(service, resource, text)
    return forced


def _resources(service: Service, names: Sequence[str]) -> list[Resource]:
    pools = service.pools.pools(expiries=True)
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
                f'{name} is held by "{holder}", who didn\'t get it from leasectl, and has to '
                "give it up there; see where with: leasectl doctor"
            )
    return [found[name] for name in dict.fromkeys(names)]


def _end(service: Service, resource: Resource, text: str) -> list[Forced]:
    claim_key, lease = resource.claim_key, resource.lease
    if claim_key is None or lease is None:
        return []
    handle = service.handles.load(claim_key.partition("/")[0])
    if handle is not None and claim_key_of(handle) != claim_key:
        handle = None  # it has moved on
    has_run = handle is not None and _is_followed(service, handle)
    guard = _guard_to_wait_for(handle, has_run=has_run, expires=lease.lease_duration_seconds)
    names = service.pools.end_early(claim_key, [resource.name], guard=guard, reason=text)
    if names and handle is not None:
        with service.state.transaction():
            # Who wants it by force once more has to know whether its run still ends the command.
            explain_loss(service.state, handle, text, runner=handle.runner)
    left = resource.expires_in_seconds if lease.lease_duration_seconds is not None else None
    known = has_run if handle is not None else None
    if not names and resource.ended is not None:
        return [Forced(resource.name, lease.holder_identity, known, left, resource.ended)]
    if left is None and guard is None:
        left = 0.0
    return [Forced(name, lease.holder_identity, known, left) for name in names]


def _is_followed(service: Service, handle: Handle) -> bool:
    """Tell whether a `run` is there that ends its command when it is told of a loss.

    Whether one of another pid namespace lives can't be seen, but whether anybody listens.
    """
    alive = "dead" if handle.runner is None else liveness(handle.runner)
    if alive == "unknown":
        return is_read(service.state.runner_pipe(handle.id))
    return alive == "alive"


def _guard_to_wait_for(
    handle: Handle | None, *, has_run: bool, expires: float | None
) -> Process | None:
    """Whose end frees a lease; without a ttl only if a `run` is there to bring it about."""
    if handle is None or (expires is None and not has_run):
        return None
    return handle.guard
