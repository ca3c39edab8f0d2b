"""What the verbs need: state directory, backend, caller; lost leases; lists of scope ``test``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import (
    Backend,
    Context,
    HasSides,
    Kind,
    claim_key_of,
    kind_of_handle,
    place_of,
    release_key_of,
)
from leasectl.errors import LeaseError, LeaseLost, NotAllowed, NotSupported
from leasectl.http.settings import encode_settings
from leasectl.leases.record_events import IS_GONE, RecordEvents
from leasectl.model import Handle, Lease, ReleaseTarget
from leasectl.state import shared_leases
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.timers import GivingBack
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead
from leasectl.text.naming import as_given

if TYPE_CHECKING:
    from leasectl.engines.facts import Resource
    from leasectl.engines.pool_admin import Sides

# `run` and `once` set it for their command: the handles whose commands it runs under.
AROUND = "LEASECTL_AROUND"


def handles_around(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the handles whose commands a process runs under, outermost first."""
    return tuple(environ.get(AROUND, "").split())


class Expected(NamedTuple):
    """What a lease must still be to be released by name.

    Args:
        holder: Its holder: the whole identity, ``<job>/<build>``, or the handle's id; None for any.
        fence: Its fence; None for any.
    """

    holder: str | None = None
    fence: int | None = None

    def check(self, lease: Lease) -> None:
        """Refuse a lease that isn't the expected one.

        Raises:
            NotAllowed: Another holder has it, or it was granted again.
            NotSupported: A fence is expected, and the backend has none.
        """
        identity = lease.holder_identity
        if self.fence is not None and not lease.fence:
            raise NotSupported(f"--fence: the backend of {lease.name} has no fences; use --holder")
        owner, _, handle = identity.rpartition("/")
        owner = owner.rpartition("/")[0]
        forms = (None, identity, handle, owner, as_given(identity), as_given(owner))
        is_holder = self.holder in forms
        if not is_holder or self.fence not in (None, lease.fence):
            fence = f" with fence {lease.fence}" if lease.fence else ""
            raise NotAllowed(
                f"{lease.name} is held by {as_given(identity)}{fence}, which isn't what --holder "
                "or --fence say; nothing was released"
            )


ANY_LEASE = Expected()


def not_ours(name: str, holder_identity: str, caller: Caller) -> NotAllowed:
    """Return the error for a name that another job or build holds."""
    return NotAllowed(
        f'"{name}" is held by {as_given(holder_identity)}, not by your job and build '
        f"({as_given(caller.owner)}); to release it anyway, add --force"
    )


def lost_error(handle: Handle, state: State) -> LeaseLost:
    """Return the error for a handle that lost a lease which it held."""
    why = f" ({handle.lost_reason})" if handle.lost_reason else ""
    return LeaseLost(
        f"handle {handle.id} has lost its lease{why}; get a new one with: "
        f"leasectl reacquire --handle {state.names_path(handle.id)}"
    )


class Losses:
    """Updates the handles of one state directory after leases were lost.

    Args:
        state: The opened state directory.
        clock: Where times come from.
    """

    def __init__(self, state: State, *, clock: Clock) -> None:
        self._state = state
        self._handles = Handles(state)
        self._clock = clock
        self._to_unlist: list[tuple[str, frozenset[str]]] = []

    def tell(self, owner: str, names: Sequence[str]) -> None:
        """Record that a store has removed claims, or the tickets of a dead process."""
        with self._state.transaction():
            handle = self._handles.load(owner.partition("/")[0])
            if handle is None or claim_key_of(handle) != owner:
                return  # of another state directory, or an earlier acquisition
            if handle.state == "held":
                self._drop_lost(handle, names)
            elif handle.state == "acquiring" and not kind_of_handle(handle).remote:
                if handle.acquisition == 1:
                    self._handles.forget(handle.id, 1)  # its path was never printed
                else:
                    self._handles.release(handle, now=self._clock.elapsed())

    def note_gone(self, handle: Handle, names: Sequence[str]) -> None:
        """Record, in a transaction, that a handle no longer holds some names.

        A name is lost, unless a process is just releasing it, or has tried to and doesn't know the
        outcome.
        """
        names = [name for name in names if name in handle.names]  # or recorded already
        giving_back = GivingBack(self._state, release_key_of(handle))
        releasing = {name: giving_back.processes(name) for name in names}
        self._drop_lost(handle, [name for name in names if not releasing[name]])
        left = self._handles.current(handle.id, handle.acquisition)
        returned = [
            name for name in names if releasing[name] and all(map(is_dead, releasing[name]))
        ]
        giving_back.forget_dead(returned)
        if left is None or not returned:
            return
        if left.lost_reason:  # taken by force meanwhile, as the record says
            self._drop_lost(left, returned)
            return
        RecordEvents(self._state, self._clock).released(left, returned, by="command")
        self._handles.drop(left, returned, now=self._clock.elapsed())

    def note_there(self, handle: Handle, names: Sequence[str]) -> None:
        """Record, in a transaction, that a handle still holds some names, as its server says.

        An earlier release with an unknown outcome is forgotten. If the name goes away later, it is
        lost.
        """
        if kind_of_handle(handle).remote:
            GivingBack(self._state, release_key_of(handle)).forget_dead(names)

    def unlist(self) -> None:
        """Remove taken back names from their list of scope ``test``; outside a transaction."""
        while self._to_unlist and not self._state.is_changing:
            with contextlib.suppress(LeaseError):  # the next release finds the list out of date
                _take_out(self._state, *self._to_unlist.pop(), prefer=lambda _: True)

    def _drop_lost(self, handle: Handle, names: Sequence[str]) -> None:
        if not names:
            return
        taken_back = self._drop_taken_back(handle, names)
        names = [name for name in names if name not in taken_back]
        left = self._handles.current(handle.id, handle.acquisition) if taken_back else handle
        if names and left is not None:
            kind = kind_of_handle(left)
            if kind.remote and not kind.has_pools:  # pools write the event themselves
                RecordEvents(self._state, self._clock).lost(left, names, reason=IS_GONE)
            self._handles.drop(left, names, now=self._clock.elapsed(), lost=True)
        self._state.wake(self._state.runner_pipe(handle.id))

    def _drop_taken_back(self, handle: Handle, names: Sequence[str]) -> frozenset[str]:
        """Drop the names that were ready to be taken back, which is no loss; return them."""
        from leasectl.state.uses import Uses

        taken_back = Uses(self._state).ready(handle).intersection(names)
        if taken_back:
            self._handles.drop(handle, sorted(taken_back), now=self._clock.elapsed())
            self._to_unlist += [(handle.shared_dir, taken_back)] if handle.shared_dir else []
        return taken_back


class Service(HasSides):
    """The context of the verbs; each verb is a function in a module of its name.

    Args:
        state: The opened state directory.
        context: The backend of new leases, its settings and the caller; a handle remembers its own
            backend and settings.

    Attributes:
        context: As given.
        handles: The records of the state directory.
        losses: Updates the records after leases were lost.
    """

    def __init__(self, state: State, context: Context) -> None:
        self.state = state
        self.context = context
        self.backend_url = context.url
        self.caller = context.caller
        self.clock = context.clock
        self.handles = Handles(state)
        self.losses = Losses(state, clock=self.clock)
        state.events.warn = context.warn
        self._withheld: list[str] | None = None
        self._backends: dict[tuple[str, str], Backend] = {}

    def for_another_thread(self) -> Service:
        """Return a copy for the thread that calls this, which opens the state directory again."""
        state, events = self.state.open_again(), self.state.events
        state.events.kept_seconds = events.kept_seconds
        state.events.kept_number = events.kept_number
        return Service(state, self.context)

    def close(self) -> None:
        """Close the backends and the state directory."""
        while self._backends:
            self._backends.popitem()[1].close()
        self.state.close()

    def at_backend_of(self, handle: Handle) -> Service:
        """Return a copy for the backend that a handle's leases come from."""
        return Service(
            self.state, self.context.at(handle.backend, handle.settings)._replace(warn=self.warn)
        )

    @cached_property
    def kind(self) -> Kind:
        """Return the class of the chosen backend."""
        return self.context.kind

    @property
    def settings(self) -> str:
        """Return how to talk to the chosen backend, as records have it."""
        return encode_settings(self.context.settings)

    @property
    def sides(self) -> Sides:
        return self.backend

    @property
    def backend(self) -> Backend:
        """Return the chosen backend, opened."""
        return self.backend_at(self.backend_url, self.settings)

    def atomic(self) -> AbstractContextManager[object]:
        """Do the steps inside at once, as far as the chosen backend can."""
        return self.backend.atomic()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """Limit how long the requests inside wait for the chosen backend."""
        return self.backend.limited(until)

    def backend_of(self, handle: Handle) -> Backend:
        """Return the backend that a handle's leases come from, whichever is chosen now."""
        return self.backend_at(handle.backend, handle.settings)

    def kind_of(self, handle: Handle) -> Kind:
        """Return the class of a handle's backend."""
        return self.kind if handle.backend == self.backend_url else kind_of_handle(handle)

    def is_here(self, handle: Handle) -> bool:
        """Return whether a handle's leases come from the chosen backend.

        Raises:
            CorruptState: Its record names a backend that doesn't exist.
        """
        place = place_of(handle.backend, handle.settings)
        return place == place_of(self.backend_url, self.settings)

    def resources(self, names: Collection[str]) -> list[Resource]:
        """Return the resources of some names in the chosen backend's pools."""
        return [
            each for pool in self.pools.pools() for each in pool.resources if each.name in names
        ]

    def warn(self, line: str) -> None:
        """Print a line about a problem that stops nothing."""
        if self._withheld is None:
            self.context.warn(line)
        else:
            self._withheld.append(line)

    @contextmanager
    def withholding(self) -> Iterator[list[str]]:
        """Collect the backends' warnings in a list, and print those that are left at the end."""
        withheld: list[str] = []
        self._withheld = withheld
        try:
            yield withheld
        finally:
            self._withheld = None
            for line in withheld:
                self.warn(line)

    def current(self, target: ReleaseTarget) -> Handle | None:
        """Return the handle of a target, unless it was released or acquired again since."""
        return self.handles.current(target.handle_id, target.acquisition)

    def backend_at(self, url: str, settings: str) -> Backend:
        """Return the backend of a URL, with settings as `encode_settings` wrote them."""
        key = (url, settings)
        if key not in self._backends:
            context = self.context.at(url, settings)._replace(warn=self.warn)
            context.kind.check_url(url)
            self._backends[key] = context.kind.open(context, self.state, self.losses.tell)
        return self._backends[key]


# Scope ``test``: ``$SHARED_DIR/leases`` lists leases for later steps. The list only says what a
# later step should release. A name that is granted again under the same list stays in it. A name
# that couldn't be removed from it is recognised as out of date at the next release.


def enlist(service: Service, handle: Handle) -> None:
    """List the names of a handle, if it has scope ``test``.

    Raises:
        StateUnwritable: The list can't be written.
    """
    if handle.shared_dir is not None:
        limit = service.state.lock_limit
        shared_leases.add(handle.shared_dir, handle.names, limit=limit)


def unlist(service: Service, handle: Handle, names: Collection[str]) -> None:
    """Remove names that a handle has given back from its list, if that can be written."""
    if handle.shared_dir is not None and names:
        with contextlib.suppress(LeaseError):
            _take_out(service.state, handle.shared_dir, names, prefer=service.is_here)


def unlist_stale(service: Service, names: Collection[str]) -> None:
    """Remove names that are out of date from the caller's list.

    Raises:
        StateUnwritable: The list can't be written.
    """
    if names:
        shared_dir = service.caller.require_shared_dir()
        _take_out(service.state, shared_dir, names, prefer=service.is_here)


def _take_out(
    state: State,
    shared_dir: str,
    names: Collection[str],
    *,
    prefer: Callable[[Handle], bool],
) -> None:
    def is_held(name: str) -> bool:
        holder = Handles(state).holding(name, prefer=prefer)
        return holder is not None and holder.shared_dir == shared_dir

    shared_leases.remove(shared_dir, names, unless=is_held, limit=state.lock_limit)
