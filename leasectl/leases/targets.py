"""Find the handles and names that a release means.

Where two handles hold the same name, the one on the service's backend is meant.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import claim_key_of, kind_of_handle
from leasectl.errors import (
    BackendUnreachable,
    InvalidRequest,
    LeaseError,
    NotAllowed,
    NotFound,
    NotSupported,
)
from leasectl.leases.journal import remote_lease
from leasectl.leases.paths import handle_at, no_handle_here, read_names
from leasectl.leases.service import ANY_LEASE, Expected, Service, not_ours
from leasectl.model import Handle, Lease, ReleaseTarget, Request, whole
from leasectl.state import shared_leases
from leasectl.state.handles import new_id
from leasectl.system.process import is_dead
from leasectl.text.naming import is_reserved, short_name
from leasectl.text.wording import listed, printable

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource

# The type of the handles of adopted names.
_ADOPTED = "adopted"
_WIDE = "leasectl status --wide"


class Listed(NamedTuple):
    """The meaning of the names in a list.

    Args:
        targets: What to release.
        stale: Names that are out of date.
        foreign: Stale names that others hold by now.
        unknown: Names that aren't resources of this backend, and may be another's. Where only a
            lease's own handle can release it, the names that no handle here has.
    """

    targets: list[ReleaseTarget]
    stale: list[str]
    foreign: list[str]
    unknown: list[str]


def whole_names(service: Service, names: Sequence[str]) -> dict[str, str | None]:
    """Return the whole name of each; a short one (``--00``) stands for the only one that is held.

    It stands for None if all that it could mean are free: there is nothing to release.

    Raises:
        NotFound: No resource has that short name.
        InvalidRequest: Several that are held have.
    """
    if not any(name.startswith("--") for name in names):
        return {name: name for name in names}
    held: dict[str, set[str]] = {}
    free: set[str] = set()
    if service.kind.has_pools:
        for pool in service.pools.pools():
            for each in pool.resources:
                short = short_name(each.name, pool.type)
                if each.lease is None:
                    free.add(short)
                else:
                    held.setdefault(short, set()).add(each.name)
    else:
        for handle in service.handles.active():
            for name in handle.names:
                held.setdefault(short_name(name, handle.request.type), set()).add(name)
    whole: dict[str, str | None] = {}
    for name in names:
        found = sorted(held.get(name, ())) if name.startswith("--") else [name]
        if not found and name not in free:
            raise NotFound(f'no resource "{name}"; see the whole names with: {_WIDE}')
        if len(found) > 1:
            raise InvalidRequest(f'"{name}" can be {listed(found)}; give the whole name')
        whole[name] = found[0] if found else None
    return whole


def targets_at(service: Service, path: str) -> list[ReleaseTarget]:
    """Return the targets of ``--handle PATH``: a handle of ours, or a copied names file.

    An empty path means nothing: that is what ``acquire --optional`` prints without a lease.

    Raises:
        NotFound: No such file or handle.
        NotAllowed: The file is another user's.
    """
    if not path:
        return []
    handle = handle_at(service, path)
    if handle is None:
        try:
            return targets_of_names(service, read_names(path))
        except NotFound as error:
            raise no_handle_here(service, path, "released") from error
    _refuse_work(handle)
    return [whole(handle)]


def targets_of_handles(
    service: Service, paths: Sequence[str]
) -> tuple[list[ReleaseTarget], LeaseError | None]:
    """Return the targets of several paths, and the first error of those that mean none."""
    targets: list[ReleaseTarget] = []
    failed: LeaseError | None = None
    for path in dict.fromkeys(paths):
        try:
            targets += targets_at(service, path)
        except LeaseError as error:
            failed = failed or error
    return targets, failed


def targets_of_names(
    service: Service,
    names: Sequence[str],
    *,
    only_here: bool = False,
    expected: Expected = ANY_LEASE,
) -> list[ReleaseTarget]:
    """Return the targets of bare names: the handles that hold them now; none for free ones.

    Args:
        service: Its caller's names may be released.
        names: Of the resources.
        only_here: On the service's backend; else also on another, if that is where they are.
        expected: What each lease must still be.

    Raises:
        NotFound: No such resource.
        NotAllowed: Another job or build holds one, or a lease isn't the expected one.
    """
    held: list[tuple[Handle, str]] = []
    unheld, holders = [], Holders(service)
    with _alone(service):
        for name in dict.fromkeys(names):
            handle = holders.find(name)
            if only_here and handle is not None and not service.is_here(handle):
                handle = None
            if handle is None:
                if not holders.may_have(name):
                    raise NotFound(f'no resource "{printable(name)}"; list them with: {_WIDE}')
                unheld.append(name)
                continue
            expected.check(next(each for each in handle.leases if each.name == name))
            if not service.caller.is_owner(handle.owner):
                raise not_ours(name, handle.holder_identity, service.caller)
            _refuse_work(handle)
            held.append((handle, name))
        adopted = adopt(service, unheld, foreign=None, expected=expected)
    return _by_handle(held) + [whole(each) for each in adopted]


def targets_of_scope_test(service: Service) -> Listed:
    """Return the meaning of the names in ``$SHARED_DIR/leases``.

    Another holder may have a listed name by now. So a name is only released from a handle that was
    acquired with scope ``test`` under this ``SHARED_DIR``.
    """
    shared_dir = service.caller.require_shared_dir()
    names = shared_leases.listed(shared_dir, limit=service.state.lock_limit)
    held: list[tuple[Handle, str]] = []
    foreign: list[str] = []
    unheld: list[str] = []
    unknown: list[str] = []
    theirs: list[str] = []
    holders = Holders(service)
    with _alone(service):
        for name in dict.fromkeys(names):
            handle = holders.find(name)
            if handle is None:
                can_release = not service.kind.claims_by_identity and holders.may_have(name)
                (unheld if can_release else unknown).append(name)
            elif handle.shared_dir == shared_dir:
                held.append((handle, name))
            else:
                foreign.append(name)
        adopted = adopt(service, unheld, foreign=theirs)
    known = {name for handle in adopted for name in handle.names}
    stale = foreign + [name for name in unheld if name not in known]
    targets = _by_handle(held) + [whole(each) for each in adopted]
    return Listed(targets, stale, foreign + theirs, unknown)


def targets_of_everything(service: Service) -> tuple[list[ReleaseTarget], list[Handle]]:
    """Return targets for what the caller's job and build hold or wait for, and other handles.

    Waiters come first, or they would be granted what the others give back. The second list has
    the handles that only ``--force`` releases: those of other jobs, work that is under way, and
    grants to clients of `leasectl serve`. It leaves out names that another process is about to give
    back.
    """
    own: list[ReleaseTarget] = []
    others: list[Handle] = []
    for each in sorted(service.handles.active(), key=lambda each: each.state != "acquiring"):
        if each.adopted_claim is not None:
            continue
        if each.served or _does_work(each) or not service.caller.is_owner(each.owner):
            others.append(each)
        else:
            own.append(whole(each))
    return own, others


def _alone(service: Service) -> AbstractContextManager[object]:
    """Let one process at a time adopt names: two handles for one name would both release it."""
    asks = service.kind.has_pools and service.kind.remote
    return contextlib.nullcontext() if asks else service.state.transaction()


class Holders:
    """The handles that hold names; the pools of the service's backend are read at most once.

    The ttl of a lease on a server may have run out unnoticed, and the name may have been granted
    again since. If the server can't be reached, the record counts, and the release reports that.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    def find(self, name: str) -> Handle | None:
        """Return the handle that holds a name; of several, the one that its server confirms."""
        service = self._service
        for handle in service.handles.holders(name, prefer=service.is_here):
            kind = kind_of_handle(handle)
            if not (kind.remote and kind.has_pools and service.is_here(handle)):
                return handle  # claim and record change together, or it is another server's affair
            fences = [lease.fence for lease in handle.leases if lease.name == name]
            claims = self._claims
            if claims is None or claims.get(name) == (claim_key_of(handle), *fences):
                return handle
        return None

    def may_have(self, name: str) -> bool:
        """Return whether the backend may have a resource; one without pools might."""
        return not self._service.kind.has_pools or name in self._resources

    @cached_property
    def _claims(self) -> Mapping[str, tuple[str | None, int]] | None:
        """Claim keys and fences by name on the service's backend; None if it doesn't answer."""
        try:
            resources = self._resources
        except BackendUnreachable:
            return None
        return {
            name: (each.claim_key, each.lease.fence)
            for name, each in resources.items()
            if each.lease is not None
        }

    @cached_property
    def _resources(self) -> Mapping[str, Resource]:
        pools = self._service.pools.pools()
        return {each.name: each for pool in pools for each in pool.resources}


def _does_work(handle: Handle) -> bool:
    """Return whether a work's command may run under a handle: its lease ends with the command.

    The process that asked for it may have been killed while its guard still ends the command.
    """
    if handle.state != "held" or not is_reserved(handle.request.type):
        return False
    guard_has_ended = handle.guard is None or is_dead(handle.guard)
    return handle.runner is None or not (is_dead(handle.runner) and guard_has_ended)


def _refuse_work(handle: Handle) -> None:
    if not _does_work(handle):
        return
    who, how = "", ""
    if handle.runner is not None and not is_dead(handle.runner):
        who, how = f", pid {handle.runner.pid}", f"; to end the command: kill {handle.runner.pid}"
    elif handle.runner is not None and handle.guard is not None:
        who, how = f", pid {handle.runner.pid}", f"; pid {handle.guard.pid} is ending it"
    raise NotAllowed(
        f"handle {handle.id} belongs to leasectl once{who}, which releases it "
        f"when its command ends{how}"
    )


def _by_handle(held: Sequence[tuple[Handle, str]]) -> list[ReleaseTarget]:
    """Return one target for each handle: what is released together shares one time limit.

    All the names of a handle mean the handle itself: a copy of its names file means the same.
    """
    found: dict[str, tuple[Handle, list[str]]] = {}
    for handle, name in held:
        found.setdefault(handle.id, (handle, []))[1].append(name)
    return [
        whole(handle)._replace(names=None if set(names) == set(handle.names) else tuple(names))
        for handle, names in found.values()
    ]


def adopt(
    service: Service,
    names: Sequence[str],
    *,
    foreign: list[str] | None,
    expected: Expected = ANY_LEASE,
) -> Sequence[Handle]:
    """Create handles for names that no handle here has, if the backend would release them.

    A server that releases by name alone doesn't check who asks. From a shared pool, a name is
    adopted only if the caller's own job and build hold it.

    Args:
        service: On the backend where the names are held.
        names: Of the resources.
        foreign: Takes those that another job or build holds; None where that is an error.
        expected: What each lease must still be.

    Raises:
        NotAllowed: Another job or build holds one, or a lease isn't the expected one; nothing is
            adopted.
        NotSupported: Something is expected of a lease whose holder the backend doesn't tell.
    """
    kind = service.kind
    if not names or not kind.remote:
        return ()  # only our handles can hold anything of ours
    if kind.claims_by_identity:
        raise unknown_here(service, names)
    if not kind.has_pools:
        if expected != ANY_LEASE:
            raise NotSupported(
                f"{kind.title} doesn't tell who holds {printable(listed(names))}; leave out "
                "--holder and --fence"
            )
        now = service.clock.wall()
        adopter = _adopter(service, "", len(names))
        leases = [remote_lease(adopter, name, now) for name in names]
        return (_record(service, adopter, leases),)
    found: dict[str, list[Lease]] = {}
    for each in service.resources(names):
        if each.lease is None or each.claim_key is None:
            continue
        expected.check(each.lease)
        identity = each.lease.holder_identity
        if identity.rsplit("/", 2)[0] == service.caller.owner:
            found.setdefault(each.claim_key, []).append(each.lease)
        elif foreign is None:
            raise not_ours(each.name, identity, service.caller)
        else:
            foreign.append(each.name)
    return [
        _record(service, _adopter(service, claim_key, len(leases)), leases)
        for claim_key, leases in found.items()
    ]


def unknown_here(service: Service, names: Sequence[str]) -> LeaseError:
    """Return the error for names that no handle here holds and that the backend can't take back."""
    if service.kind.claims_by_identity:
        return NotAllowed(
            f"no handle in {service.state.directory} holds "
            f"{printable(listed(names))}, and {service.backend_url} needs the handle; "
            "release it with the LEASECTL_STATE_DIR that it was acquired with"
        )
    return NotFound(
        f"no resource {printable(', '.join(names))}; it stays listed in "
        "SHARED_DIR. If it belongs to another backend, name that with --backend"
    )


def _adopter(service: Service, claim_key: str, count: int) -> Handle:
    """Return a handle that adopts another holder's claims, or claims of an unknown holder."""
    handle_id = new_id(_ADOPTED)
    return Handle(
        id=handle_id,
        backend=service.backend_url,
        request=Request(_ADOPTED, count),
        owner=service.caller.owner,
        holder_identity=service.caller.identity_of(handle_id),
        state="held",
        acquisition=1,
        shared_dir=service.caller.shared_dir,
        settings=service.settings,
        adopted_claim=claim_key,
    )


def _record(service: Service, handle: Handle, leases: Sequence[Lease]) -> Handle:
    with service.state.transaction():
        service.handles.create(handle, remote=True)
        for lease in leases:
            service.handles.arrived(handle, lease)
    return service.handles.require(handle.id)
