"""Find the handles and names that a release means."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.kinds import claim_key_of, kind_of_handle
from leasectl.errors import (
    BackendUnreachable,
    CorruptState,
    InvalidRequest,
    LeaseError,
    NotAllowed,
    NotFound,
    NotSupported,
)
from leasectl.leases.journal import remote_lease
from leasectl.leases.service import ANY_LEASE, Expected, Service, not_ours
from leasectl.model import Handle, Lease, Process, ReleaseTarget, Request, whole
from leasectl.state import shared_leases
from leasectl.state.handles import new_id
from leasectl.system.process import is_dead
from leasectl.text.naming import is_name, is_reserved, short_name
from leasectl.text.wording import listed, printable

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource


_TOO_LONG = 1 << 20  # a names file, in bytes


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


def whole_names(service: Service, names: Sequence[str]) -> list[str]:
    """Return whole names; a short one (``--00``) stands for the only one that is held.

    If all that it could stand for are free, it is any of them: there is nothing to release.

    Raises:
        NotFound: No resource has that short name.
        InvalidRequest: Several that are held have.
    """
    if not any(name.startswith("--") for name in names):
        return list(names)
    held: dict[str, set[str]] = {}
    free: dict[str, str] = {}
    if service.kind.has_pools:
        for pool in service.pools.pools():
            for each in pool.resources:
                short = short_name(each.name, pool.type)
                if each.lease is None:
                    free[short] = each.name
                else:
                    held.setdefault(short, set()).add(each.name)
    else:
        for handle in service.handles.active():
            for name in handle.names:
                held.setdefault(short_name(name, handle.request.type), set()).add(name)
    return [_only(held, free, name) if name.startswith("--") else name for name in names]


def _only(held: Mapping[str, Collection[str]], free: Mapping[str, str], short: str) -> str:
    found = sorted(held.get(short) or ([free[short]] if short in free else ()))
    if not found:
        raise NotFound(f'no resource "{short}"; see the whole names with: {_WIDE}')
    if len(found) > 1:
        raise InvalidRequest(f'"{short}" can be {listed(found)}; give the whole name')
    return found[0]


_WIDE = "leasectl status --wide"


class Targets:
    """Finds the leases that a caller means.

    Args:
        service: On the state directory and backend; its caller's names may be released. Where two
            handles hold the same name, the one on this backend is meant.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._handles = service.handles
        # Claim keys and fences by name on the service's backend; None before they were asked for.
        self._claims: dict[str, tuple[str | None, int]] | None = None

    def of_path(self, path: str) -> list[ReleaseTarget]:
        """Return the targets of ``--handle PATH``: a handle of ours, or a copied names file.

        An empty path means nothing: that is what ``acquire --optional`` prints without a lease.

        Raises:
            NotFound: No such file or handle.
            NotAllowed: The file is another user's.
        """
        if not path:
            return []
        handle = self.handle_at(path)
        if handle is not None:
            _refuse_work(handle)
        return [whole(handle)] if handle else self.of_names(read_names(path))

    def handle_at(self, path: str) -> Handle | None:
        """Return the handle of a path or a bare id; None for a path outside our directory.

        Raises:
            NotFound: It should be one of ours, and there is no such handle.
        """
        folder, name = os.path.split(path)
        if folder and os.path.realpath(folder) != os.path.realpath(
            self._service.state.path("handles")
        ):
            return None
        try:
            return self._handles.require(name)
        except NotFound:
            if not folder and os.path.lexists(name):
                return None  # a bare name of a file
            self._check_not_lost(name)
            raise

    def _check_not_lost(self, handle_id: str) -> None:
        """Raise CorruptState if the names file of an unknown handle shows a lost record."""
        state = self._service.state
        path = state.names_path(handle_id)
        if not is_name(handle_id) or not os.path.isfile(path):
            return
        names: list[str] = []
        with state.transaction():  # no process is writing or removing such a file now
            if self._handles.load(handle_id) is None:
                with contextlib.suppress(LeaseError):
                    names = read_names(path)
        if names:
            raise CorruptState(
                f"{path} lists {listed(names)}, but {state.path('state.db')} has no "
                f"record of it{self._after_a_loss(path, names)}"
            )

    def _after_a_loss(self, path: str, names: Sequence[str]) -> str:
        """Explain how the record of some names may have been lost, and what to do about it."""
        service = self._service

        is_ours = not service.kind.remote
        if is_ours and not any(is_resource(service, name) for name in names):
            return (
                ", nor of any such resource: the database was lost, and its pools with it; if no "
                "job here still uses what they held, make them anew with: leasectl pool apply "
                f"-f FILE, and remove {path}"
            )
        return (
            ": its log was lost, or somebody put a copy there; see who holds what with leasectl "
            f"status, and give it back with: leasectl release --names {','.join(names)}"
        )

    def of_names(
        self,
        names: Sequence[str],
        *,
        only_here: bool = False,
        expected: Expected = ANY_LEASE,
    ) -> list[ReleaseTarget]:
        """Return the targets of bare names: the handles that hold them now; none for free ones.

        Args:
            names: Of the resources.
            only_here: On the service's backend; else also on another, if that is where they are.
            expected: What each lease must still be.

        Raises:
            NotFound: No such resource.
            NotAllowed: Another job or build holds one, or a lease isn't the expected one.
        """
        with self._alone():
            return self._of_names(names, only_here=only_here, expected=expected)

    def _alone(self) -> AbstractContextManager[object]:
        """Let one process at a time adopt names: two handles for one name would both release it."""
        kind = self._service.kind
        asks = kind.has_pools and kind.remote
        return contextlib.nullcontext() if asks else self._service.state.transaction()

    def _of_names(
        self, names: Sequence[str], *, only_here: bool, expected: Expected
    ) -> list[ReleaseTarget]:
        held: list[tuple[Handle, str]] = []
        unheld = []
        for name in dict.fromkeys(names):
            handle = self._holder(name)
            if only_here and handle is not None and not self._service.is_here(handle):
                handle = None
            if handle is not None:
                expected.check(next(each for each in handle.leases if each.name == name))
            if handle is None:
                self._require_resource(name)
                unheld.append(name)
            elif not self._service.caller.is_owner(handle.owner):
                raise not_ours(name, handle.holder_identity, self._service.caller)
            else:
                _refuse_work(handle)
                held.append((handle, name))
        return _by_handle(held) + [whole(each) for each in self._adopt_some(unheld, None, expected)]

    def of_scope_test(self) -> Listed:
        """Return the meaning of the names in ``$SHARED_DIR/leases``.

        Another holder may have a listed name by now. So a name is only released from a handle that
        was acquired with scope ``test`` under this ``SHARED_DIR``.
        """
        shared_dir = self._service.caller.require_shared_dir()
        names = shared_leases.listed(shared_dir, limit=self._service.state.lock_limit)
        with self._alone():
            return self._of_list(shared_dir, names)

    def _of_list(self, shared_dir: str, names: Sequence[str]) -> Listed:
        held: list[tuple[Handle, str]] = []
        foreign: list[str] = []
        unheld: list[str] = []
        unknown: list[str] = []
        for name in dict.fromkeys(names):
            handle = self._holder(name)
            if handle is None:
                (unheld if self._may_be_released(name) else unknown).append(name)
            elif handle.shared_dir == shared_dir:
                held.append((handle, name))
            else:
                foreign.append(name)
        theirs: list[str] = []
        adopted = self._adopt_some(unheld, theirs)
        known = {name for handle in adopted for name in handle.names}
        stale = foreign + [name for name in unheld if name not in known]
        targets = _by_handle(held) + [whole(each) for each in adopted]
        return Listed(targets, stale, foreign + theirs, unknown)

    def _holder(self, name: str) -> Handle | None:
        """Return the handle that holds a name; of several, the one that its server confirms."""
        for handle in self._handles.holders(name, prefer=self._service.is_here):
            if self._is_good(handle, name):
                return handle
        return None

    def _is_good(self, handle: Handle, name: str) -> bool:
        """Return whether the pool has a recorded lease with the same fence.

        The ttl of a lease on a server may have run out unnoticed, and the name may have been
        granted again since. If the server can't be reached, the record counts, and the release
        reports that.
        """
        kind = kind_of_handle(handle)
        if not (kind.remote and kind.has_pools and self._service.is_here(handle)):
            return True  # claim and record change together, or it is another server's affair
        if self._claims is None:
            try:
                pools = self._service.pools.pools()
            except BackendUnreachable:
                return True
            self._claims = {
                each.name: (each.claim_key, each.lease.fence)
                for pool in pools
                for each in pool.resources
                if each.lease is not None
            }
        fences = [lease.fence for lease in handle.leases if lease.name == name]
        return self._claims.get(name) == (claim_key_of(handle), *fences)

    def of_everything(self) -> tuple[list[ReleaseTarget], list[Handle]]:
        """Return targets for what the caller's job and build hold or wait for, and other handles.

        Waiters come first, or they would be granted what the others give back. The second list has
        the handles that only ``--force`` releases: those of other jobs, work that is under way, and
        grants to clients of `leasectl serve`. It leaves out names that another process is about to
        give back.
        """
        own: list[ReleaseTarget] = []
        others: list[Handle] = []
        for each in sorted(self._handles.active(), key=lambda each: each.state != "acquiring"):
            if each.adopted_claim is not None:
                continue
            if each.served or _does_work(each) or not self._service.caller.is_owner(each.owner):
                others.append(each)
            else:
                own.append(whole(each))
        return own, others

    def _may_be_released(self, name: str) -> bool:
        """Return whether a backend may take back a name that no handle here holds."""
        kind = self._service.kind

        return not kind.claims_by_identity and is_resource(self._service, name)

    def _adopt_some(
        self, names: Sequence[str], foreign: list[str] | None, expected: Expected = ANY_LEASE
    ) -> Sequence[Handle]:
        if not names:
            return ()

        return adopt(self._service, names, foreign=foreign, expected=expected)

    def _require_resource(self, name: str) -> None:
        if not is_resource(self._service, name):
            raise NotFound(
                f'no resource "{printable(name)}"; list them with: leasectl status --wide'
            )


def _does_work(handle: Handle) -> bool:
    """Return whether a work's command may run under a handle: its lease ends with the command.

    The process that asked for it may have been killed while its guard still ends the command.
    """
    if handle.state != "held" or not is_reserved(handle.request.type):
        return False
    return handle.runner is None or not (is_dead(handle.runner) and _has_ended(handle.guard))


def _has_ended(guard: Process | None) -> bool:
    return guard is None or is_dead(guard)


def _refuse_work(handle: Handle) -> None:
    if not _does_work(handle):
        return
    who, how = "", ""
    if handle.runner is not None and not is_dead(handle.runner):
        who, how = f", pid {handle.runner.pid}", f"; to end that: kill {handle.runner.pid}"
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
    return [_target(*each) for each in found.values()]


def _target(handle: Handle, names: Sequence[str]) -> ReleaseTarget:
    is_all = frozenset(names) == frozenset(handle.names)
    return whole(handle) if is_all else whole(handle)._replace(names=tuple(names))


def read_names(path: str) -> list[str]:
    """Read a names file that was copied somewhere.

    Raises:
        NotFound: There is no such file, or it isn't a regular file.
        NotAllowed: It is another user's, or not readable.
        CorruptState: It holds something else than names.
    """
    shown = printable(path, longest=200)
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except PermissionError:
        raise NotAllowed(f"handle {shown} belongs to another user and can't be read") from None
    except (OSError, ValueError):
        raise NotFound(
            f"no handle {shown}; list the held ones with: leasectl status --wide"
        ) from None
    try:
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise NotFound(f"{shown} is not a handle: not a regular file")
        if found.st_uid != os.geteuid():
            raise NotAllowed(f"handle {shown} belongs to user {found.st_uid}")
        text = os.read(fd, _TOO_LONG)
    finally:
        os.close(fd)
    names = text.decode("utf-8", "replace").split("\n")
    names = names[:-1] if names[-1] == "" else names
    if len(text) == _TOO_LONG or not all(map(is_name, names)):
        raise CorruptState(
            f"{shown} is not a handle: it contains something other than resource names"
        )
    return names


# The type of the handles of adopted names.
ADOPTED = "adopted"


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
    if not kind.remote:
        return ()  # only our handles can hold anything
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
    for each in _resources(service, names):
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


def is_resource(service: Service, name: str) -> bool:
    """Return whether a backend may have a resource of that name; one without pools might."""
    return not service.kind.has_pools or bool(_resources(service, [name]))


def _resources(service: Service, names: Collection[str]) -> list[Resource]:
    pools = service.pools.pools()
    return [each for pool in pools for each in pool.resources if each.name in names]


def _adopter(service: Service, claim_key: str, count: int) -> Handle:
    """Return a handle that adopts another holder's claims, or claims of an unknown holder."""
    handle_id = new_id(ADOPTED)
    return Handle(
        id=handle_id,
        backend=service.backend_url,
        request=Request(ADOPTED, count),
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
