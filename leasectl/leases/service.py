"""The use cases on handles: acquire, release, reacquire, renew."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Generator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from leasectl.backends.contract import Backend, Patience
from leasectl.backends.kinds import claim_key_of, kind_of, kind_of_handle
from leasectl.backends.opening import check_url, open_backend
from leasectl.engines.contract import PoolAdmin
from leasectl.errors import (
    BackendUnreachable,
    Cancelled,
    InvalidRequest,
    LeaseError,
    LeaseLost,
    NotAllowed,
    NotFound,
    StateUnwritable,
)
from leasectl.http.settings import RELEASE_SECONDS
from leasectl.leases.acquire_remote import RemoteAcquire
from leasectl.leases.adoption import Adoption
from leasectl.leases.journal import RecordJournal
from leasectl.leases.keeping import needs_keeper
from leasectl.leases.losses import Losses
from leasectl.leases.recovery import Recovery
from leasectl.leases.release_remote import RemoteRelease
from leasectl.leases.targets import Caller, Targets
from leasectl.model import (
    Claimant,
    Handle,
    Process,
    ReleaseTarget,
    Request,
    Resource,
    whole,
)
from leasectl.state import keeper_process, shared_leases
from leasectl.state.directory import State
from leasectl.state.handles import Handles, new_id, renews_itself
from leasectl.system.clock import Clock
from leasectl.system.poll import Sleep
from leasectl.system.process import is_dead, this_process

if TYPE_CHECKING:
    pass

SHORTEST_TTL_SECONDS = 2.0
LARGEST_COUNT = 1_000_000  # far more than any pool has, and what a record can hold


class Service:
    """The use cases, on one state directory.

    Args:
        state: The opened state directory.
        backend_url: Where new leases come from; a handle remembers its own.
        caller: On whose behalf.
        settings: How to talk to that backend, if it is a server.
        release_seconds: How long a release may take in all, on a server.
        rest_seconds: For how long a server isn't asked again that hasn't answered.
        clock: Where times come from.
    """

    def __init__(
        self,
        state: State,
        *,
        backend_url: str,
        caller: Caller,
        settings: str = "",
        release_seconds: float = RELEASE_SECONDS,
        rest_seconds: float = 0.0,
        clock: Clock | None = None,
    ) -> None:
        self.state = state
        self.handles = Handles(state)
        self.backend_url = backend_url
        self._clock = clock = clock or Clock()
        self._caller = caller
        self._settings = settings
        self._release_seconds = release_seconds
        self._rest_seconds = rest_seconds
        self._backends: dict[tuple[str, str], Backend] = {}
        self._losses = Losses(state, clock=clock)
        self._release_remotely = RemoteRelease(state, clock=clock)
        self._acquire_remotely = RemoteAcquire(state, self.release)
        self.recovery = Recovery(state, self.release, clock=clock)
        adopt = Adoption(
            state,
            self._resources,
            backend_url=backend_url,
            caller=caller,
            settings=settings,
            clock=clock,
        )
        self.targets = Targets(state, caller, self._is_resource, adopt, backend=backend_url)

    @property
    def pools(self) -> PoolAdmin:
        """The pools of the chosen backend; NotSupported when it has none."""
        return self._backend_at(self.backend_url, self._settings).pools

    def acquire(
        self,
        request: Request,
        *,
        patience: Patience,
        guard: Process | None = None,
        followed: bool = False,
    ) -> Handle:
        """Get leases under a new handle.

        Until `announce`, the handle lives only as long as this process does: whoever asked hasn't
        heard of it yet.

        Args:
            request: What is wanted.
            patience: How long to wait.
            guard: The process whose death releases the handle.
            followed: This process is the `run` that a guard will follow; until `announce` names it,
                the keeper watches this process.

        Raises:
            LeaseError: Nothing was had, and nothing has changed.
        """
        handle = self._new_handle(request, new_id(request.type))._replace(
            guard=guard, runner=this_process() if followed else None
        )
        self._backend(handle)  # may take long to load; a keeper with nothing to keep would end
        if needs_keeper(handle):
            keeper_process.ensure(self.state)
        return self._get(handle, again=False, patience=patience)

    def turn(
        self, request: Request, *, handle_id: str, patience: Patience
    ) -> Generator[Sleep, set[int], Handle]:
        """What `acquire` does, as a generator of the naps in between: for one process that waits
        for thousands. Requests have scope ``step``.

        Args:
            request: What is wanted.
            handle_id: The id of the new handle; there must be no record of it.
            patience: How long to wait; whoever drives the generator sees to interrupts.

        Raises:
            NotSupported: The backend can only block.
            LeaseError: As `acquire`.
        """
        handle = self._new_handle(request, handle_id)
        backend = self._backend(handle)
        journal = self._journal(backend, handle, again=False)
        if needs_keeper(handle):
            keeper_process.ensure(self.state)
        try:
            yield from backend.turn(_claimant(handle), journal, self._heedful(patience, handle))
        finally:
            if journal.unsettled:
                self._acquire_remotely.leave_to_keeper(journal)
        self._ensure_kept(journal)
        return journal.handle

    def reacquire(self, handle_id: str, *, patience: Patience) -> Handle:
        """Release what a handle still holds and get the same again, in one step.

        Until `announce`, the handle lives only as long as this process does.

        Raises:
            NotFound: No such handle, or its guard has ended.
            NotFound, InvalidRequest: The request is refused; the handle holds what it held.
            LeaseError: Nothing was had; the handle is released and can be reacquired later.
        """
        handle = self.handles.require(handle_id)
        if is_dead(handle.guard):
            raise NotFound(f"handle {handle_id}: its guard has ended, so it can't hold anything")
        if self._backend(handle).remote:
            self.release(whole(handle))
        if needs_keeper(handle):
            keeper_process.ensure(self.state)
        return self._get(handle, again=True, patience=patience)

    def announce(
        self, handle: Handle, *, guard: Process | None = None, runner: Process | None = None
    ) -> None:
        """Record that whoever asked knows the handle: from now on it outlives this process.

        Args:
            handle: As returned by `acquire` or `reacquire`.
            guard: The guard from now on, instead of the one it had.
            runner: A process that renews for the handle while it lives.

        Raises:
            Cancelled: The handle was released in the meantime.
        """
        guard = guard or handle.guard
        kept = True
        with self.state.transaction():
            if not self.handles.announce(handle, guard=guard, runner=runner):
                raise Cancelled(f"handle {handle.id} was released before it could be used")
            if guard is not None:
                kept = keeper_process.wake(self.state)
        if not kept:
            keeper_process.ensure(self.state)

    def release(self, target: ReleaseTarget) -> tuple[str, ...]:
        """Give back what a handle holds, or take it out of the queue.

        Any number of releases of one acquisition, at once or one after the other, succeed; the
        names are returned to exactly one of them.

        Raises:
            BackendUnreachable: A server didn't take all of it back; `released` is what it did.
            LeaseError: The backend or the state directory failed; nothing has changed.
        """
        handle = self.handles.load(target.handle_id)
        if handle is None:
            return ()
        backend = self._backend(handle)
        if backend.remote:
            released: tuple[str, ...] = ()
            try:
                released = self._release_remotely(backend, target)
            except BackendUnreachable as error:
                released = error.released
                raise
            finally:
                self._unlist(handle, released)
            return released
        with backend.atomic():
            current = self._current(target)
            if current is None:
                return ()
            wanted = current.names if target.names is None else target.names
            freed = _free(backend, current, wanted)
            if len(freed) < len(wanted):
                current = self._current(target)  # some had expired, as the backend has just found
            if current is not None:
                self.handles.drop(current, wanted, now=self._clock.elapsed())
        self._unlist(handle, wanted)
        return freed

    def finish(self, handle: Handle) -> tuple[str, ...]:
        """Release a handle that nobody will ask for again, and forget it.

        One that has been acquired again since is left as it is: it holds something else now.

        Raises:
            LeaseError: As `release`.
        """
        backend = self._backend(handle)
        if backend.remote:
            names = self.release(whole(handle))
            with self.state.transaction():
                self.handles.forget(handle.id, handle.acquisition)
            return names
        with backend.atomic():
            current = self._current(whole(handle))
            freed = _free(backend, current, current.names) if current is not None else ()
            self.handles.forget(handle.id, handle.acquisition)
        self._unlist(handle, handle.names)
        return freed

    def take_back(self, handle: Handle) -> None:
        """Undo a grant that can't be told. A handle that was known before can be reacquired later.

        Raises:
            LeaseError: As `release`.
        """
        if handle.acquisition == 1:
            self.finish(handle)
        else:
            self.release(whole(handle))

    def unlist(self, names: Collection[str]) -> None:
        """Take names that are out of date out of ``$SHARED_DIR/leases``."""
        if names:
            self._take_out(self._caller.require_shared_dir(), names)

    def arm(self, target: ReleaseTarget, delay_seconds: float, *, again: bool = True) -> None:
        """Have the keeper release later; an earlier arming of the same is replaced.

        Nothing happens when the handle no longer holds what was meant.

        Args:
            target: What to release.
            delay_seconds: How long from now.
            again: A `reacquire` of the whole handle is to arm it again.
        """
        keeper_process.ensure(self.state)
        with self.state.transaction():
            handle = self._current(target)
            if handle is None:
                return
            due = self._clock.elapsed() + delay_seconds
            if target.names is None and again:
                self.handles.remember_release_after(handle, delay_seconds)
            for name in target.names or ("",):
                self.handles.arm(handle, due, name)
            kept = keeper_process.wake(self.state)
        if not kept:
            keeper_process.ensure(self.state)

    def leave_to_keeper(self, target: ReleaseTarget) -> bool:
        """Have the keeper go on with a release that failed, if it would else renew what is held.

        Returns:
            Whether it does. If not, the lease ends by itself, or whoever wants it released has to
            ask again.
        """
        handle = self._current(target)
        if handle is None or not renews_itself(handle):
            return False
        self.arm(target, 0.0, again=False)
        return True

    def renew(self, target: ReleaseTarget) -> Handle:
        """One heartbeat for everything a handle holds.

        Raises:
            LeaseLost: A lease of it expired or was taken away.
            NotAllowed: It holds nothing.
        """
        handle = self.handles.require(target.handle_id)
        backend = self._backend(handle)
        with backend.atomic():
            self._note_renewal(target, backend.renew(claim_key_of(handle)))
        return self._require_held(target)

    def renewed(self, target: ReleaseTarget, held: Collection[str]) -> Handle:
        """Record what came of a heartbeat.

        Args:
            target: What it was for.
            held: The names that its owner still holds.

        Raises:
            LeaseLost, NotAllowed: As `renew`.
        """
        self._note_renewal(target, held)
        return self._require_held(target)

    def _note_renewal(self, target: ReleaseTarget, held: Collection[str]) -> None:
        with self.state.transaction():
            current = self._current(target)
            if current is not None and current.state == "held":
                self.handles.renewed(current, self._clock.wall())
                gone = [name for name in current.names if name not in held]
                self._losses.note_gone(current, gone)

    def _require_held(self, target: ReleaseTarget) -> Handle:
        handle = self.handles.require(target.handle_id)
        if handle.lost:
            raise LeaseLost(
                f"handle {handle.id} has lost its lease; get a new one with: "
                f"leasectl reacquire --handle {self.state.names_path(handle.id)}"
            )
        if handle.state != "held" or handle.acquisition != target.acquisition:
            raise NotAllowed(f"handle {handle.id} holds nothing to renew (it is {handle.state})")
        return handle

    def atomic(self) -> AbstractContextManager[object]:
        """Releases inside happen at once, as far as the chosen backend can do that."""
        return self._backend_at(self.backend_url, self._settings).atomic()

    def _get(self, handle: Handle, *, again: bool, patience: Patience) -> Handle:
        backend = self._backend(handle)
        journal = self._journal(backend, handle, again=again)
        claimant = _claimant(handle._replace(acquisition=handle.acquisition + again))
        patience = self._heedful(patience, handle)
        try:
            if backend.remote:
                self._acquire_remotely(backend, claimant, journal, patience)
            else:
                backend.acquire(claimant, journal, patience)
        finally:
            self._unlist(handle, handle.names)  # which a further acquisition gave back
        held = journal.handle
        self._ensure_kept(journal)
        shared_dir = held.shared_dir
        if shared_dir is not None:
            try:
                if backend.remote and held.request.ttl_seconds is not None:
                    # It counts from the last sign of life in the queue, and nobody renews it.
                    held = self.renew(whole(held))
                shared_leases.add(shared_dir, held.names)
            except LeaseError:
                self.release(whole(held))
                with self.state.transaction():
                    journal.gave_up()
                raise
        return held

    def _new_handle(self, request: Request, handle_id: str) -> Handle:
        self._check(request)
        ttl = kind_of(self.backend_url).default_ttl_seconds
        if request.ttl_seconds is None and ttl is not None:
            if request.scope == "test":
                raise InvalidRequest(
                    f"--scope test needs --ttl on {self.backend_url}, where every lease runs out "
                    "and nobody renews it between the steps"
                )
            request = request._replace(ttl_seconds=ttl)
        return Handle(
            id=handle_id,
            backend=self.backend_url,
            request=request,
            owner=self._caller.owner,
            holder_identity=self._caller.identity_of(handle_id),
            state="acquiring",
            acquisition=1,
            waiter=this_process(),
            shared_dir=self._caller.shared_dir if request.scope == "test" else None,
            settings=self._settings,
        )

    def _journal(self, backend: Backend, handle: Handle, *, again: bool) -> RecordJournal:
        return RecordJournal(
            self.state, backend, handle, again=again, waiter=this_process(), clock=self._clock
        )

    def _ensure_kept(self, journal: RecordJournal) -> None:
        if needs_keeper(journal.handle) and not journal.kept:
            keeper_process.ensure(self.state)

    def _heedful(self, patience: Patience, handle: Handle) -> Patience:
        """Patience that at the head of the queue also heeds what the dead hold.

        What is on a server the keeper gives back, and the server tells of it.
        """
        pool_type = handle.request.type
        if not kind_of_handle(handle).shares_transaction:
            return patience
        return patience._replace(
            watched=lambda: self._watched_at_head(pool_type), recover=self.recovery.run
        )

    def _unlist(self, handle: Handle, names: Collection[str]) -> None:
        """Take names that a handle has given back out of its list.

        They are free by now. Should the list not be writable, they are known to be out of date by
        whoever next releases what is listed.
        """
        if handle.shared_dir is not None and names:
            with contextlib.suppress(LeaseError):
                self._take_out(handle.shared_dir, names)

    def _take_out(self, shared_dir: str, names: Collection[str]) -> None:
        """Take names out of a list, but for those that are held anew under that very list."""

        def is_held(name: str) -> bool:
            holder = self.handles.holding(name, prefer=self.backend_url)
            return holder is not None and holder.shared_dir == shared_dir

        shared_leases.remove(shared_dir, names, unless=is_held)

    def _watched_at_head(self, pool_type: str) -> list[Process]:
        """Whose end may free something for the head of a queue: those that were granted a lease
        and have told nobody yet, and the keeper, which frees what other dead held."""
        waiters = [h.waiter for h in self.handles.unannounced(pool_type) if h.waiter is not None]
        # Also one that has nothing to keep yet: whoever gives it something wakes it, and not us.
        keeper = keeper_process.registered(self.state)
        return waiters if keeper is None else [*waiters, keeper]

    def _backend(self, handle: Handle) -> Backend:
        return self._backend_at(handle.backend, handle.settings)

    def _backend_at(self, url: str, settings: str) -> Backend:
        key = (url, settings)
        if key not in self._backends:
            self._backends[key] = open_backend(
                url,
                self.state,
                settings=settings,
                release_seconds=self._release_seconds,
                rest_seconds=self._rest_seconds,
                lost=self._losses.tell,
                clock=self._clock,
            )
        return self._backends[key]

    def _current(self, target: ReleaseTarget) -> Handle | None:
        return self.handles.current(target.handle_id, target.acquisition)

    def _is_resource(self, name: str) -> bool:
        return not kind_of(self.backend_url).has_pools or bool(self._resources([name]))

    def _resources(self, names: Collection[str]) -> list[Resource]:
        pools = self.pools.pools()
        return [each for pool in pools for each in pool.resources if each.name in names]

    def _check(self, request: Request) -> None:
        check_url(self.backend_url)
        if request.count < 1:
            raise InvalidRequest(f"--count {request.count}: ask for at least 1")
        if request.count > LARGEST_COUNT:
            raise InvalidRequest(f"--count {request.count}: ask for at most {LARGEST_COUNT}")
        if request.name is not None and request.count != 1:
            raise InvalidRequest("--name means that one resource; leave out --count")
        ttl = request.ttl_seconds
        if ttl is not None and ttl < SHORTEST_TTL_SECONDS:
            raise InvalidRequest(f"--ttl {ttl:g} is too short; it must be at least 2s")
        if request.scope == "test":
            shared_dir = self._caller.require_shared_dir()
            if not os.path.isdir(shared_dir):
                raise StateUnwritable(f"SHARED_DIR {shared_dir} is not a directory")


def _claimant(handle: Handle) -> Claimant:
    return Claimant(claim_key_of(handle), handle.holder_identity, handle.request, this_process())


def _free(backend: Backend, handle: Handle, names: Sequence[str]) -> tuple[str, ...]:
    """Free what a handle holds of a pool of ours, or take it out of the queue."""
    if handle.state == "acquiring":
        backend.withdraw(handle.id)
        return ()
    return tuple(backend.release(handle.id, names))
