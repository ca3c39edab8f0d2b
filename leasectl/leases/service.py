"""What the verbs need: state directory, backend and caller; and what to do about lost leases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from leasectl.backends.contract import Backend
from leasectl.backends.kinds import claim_key_of, kind_of_handle, release_key_of
from leasectl.backends.opening import open_backend
from leasectl.errors import InvalidRequest, LeaseError, LeaseLost, NotAllowed, NotSupported
from leasectl.model import Handle, Lease, ReleaseTarget
from leasectl.state import shared_leases
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.state.timers import GivingBack
from leasectl.system.clock import Clock
from leasectl.system.process import is_dead
from leasectl.text.naming import as_given

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import Members, PoolAdmin
    from leasectl.engines.values import Values


# `run` and `once` set it for their command: the handles whose commands it runs under.
AROUND = "LEASECTL_AROUND"


def handles_around(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the ids of the handles whose commands a process runs under, outermost first."""
    return tuple(environ.get(AROUND, "").split())


class Caller(NamedTuple):
    """The job and process that make requests.

    Args:
        owner: ``<job>/<build>`` in a job, else ``<user>@<host>``.
        host: This machine's name.
        shared_dir: The folder that lists names of scope ``test``; None if it isn't set.
        around: The ids of the handles whose commands this process runs under.
        build_url: The address of the build, for people; empty for none.
    """

    owner: str
    host: str
    shared_dir: str | None = None
    around: tuple[str, ...] = ()
    build_url: str = ""

    @property
    def identity(self) -> str:
        """Return the identity for changes without a handle: ``<owner>/<host>``."""
        return f"{self.owner}/{self.host}"

    def identity_of(self, handle_id: str) -> str:
        """Return the identity of a handle's holder: ``<owner>/<host>/<handle>``."""
        return f"{self.owner}/{self.host}/{handle_id}"

    def is_owner(self, owner: str) -> bool:
        """Return whether a lease belongs to the caller's job and build.

        Outside a job, the host has to be the same: the state directory is private to one user. The
        user's name may differ, since scripts give an arbitrary uid a passwd entry while they run.
        """
        outside = f"@{self.host}"
        return owner == self.owner or (owner.endswith(outside) and self.owner.endswith(outside))

    def require_shared_dir(self) -> str:
        """Return the path of ``SHARED_DIR``, or raise InvalidRequest."""
        if not self.shared_dir:
            raise InvalidRequest("scope test needs SHARED_DIR, which is not set; or use scope step")
        return self.shared_dir


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
                f"{lease.name} is held by {as_given(identity)}{fence}, which is not "
                "the lease that was named; nothing was released"
            )


ANY_LEASE = Expected()


def not_ours(name: str, holder_identity: str, caller: Caller) -> NotAllowed:
    """Return the error for a name that another job or build holds."""
    return NotAllowed(
        f'"{name}" is held by {as_given(holder_identity)}, which is another job or build than '
        f"{as_given(caller.owner)}; to end its lease all the same: "
        f"leasectl release --names {name} --force"
    )


def has_lost(handle: Handle, state: State) -> LeaseLost:
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
                self._forget_dead_waiter(handle)

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
        from leasectl.leases.record_events import RecordEvents

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
            self._unlist(*self._to_unlist.pop())

    def _unlist(self, shared_dir: str, names: frozenset[str]) -> None:
        def is_held(name: str) -> bool:
            holder = self._handles.holding(name, prefer=lambda _: True)
            return holder is not None and holder.shared_dir == shared_dir

        with contextlib.suppress(LeaseError):  # it will be recognised as out of date
            shared_leases.remove(shared_dir, names, unless=is_held)

    def _drop_lost(self, handle: Handle, names: Sequence[str]) -> None:
        if not names:
            return
        taken_back = self._drop_taken_back(handle, names)
        names = [name for name in names if name not in taken_back]
        left = self._handles.current(handle.id, handle.acquisition) if taken_back else handle
        if names and left is not None:
            self._note_event(left, names)
            self._handles.drop(left, names, now=self._clock.elapsed(), lost=True)
        self._state.wake(self._state.runner_pipe(handle.id))

    def _note_event(self, handle: Handle, names: Sequence[str]) -> None:
        """Write an event of lost leases, on a backend whose pools write none."""
        kind = kind_of_handle(handle)
        if kind.remote and not kind.has_pools:
            from leasectl.leases.record_events import IS_GONE, RecordEvents

            RecordEvents(self._state, self._clock).lost(handle, names, reason=IS_GONE)

    def _drop_taken_back(self, handle: Handle, names: Sequence[str]) -> frozenset[str]:
        """Drop the names that were ready to be taken back, which is no loss; return them."""
        from leasectl.state.uses import Uses

        taken_back = Uses(self._state).ready(handle).intersection(names)
        if taken_back:
            self._handles.drop(handle, sorted(taken_back), now=self._clock.elapsed())
            self._to_unlist += [(handle.shared_dir, taken_back)] if handle.shared_dir else []
        return taken_back

    def _forget_dead_waiter(self, handle: Handle) -> None:
        if handle.acquisition == 1:
            self._handles.forget(handle.id, 1)  # its path was never printed
        else:
            self._handles.release(handle, now=self._clock.elapsed())


class Service:
    """The context of the verbs; each verb is a function in a module of its name.

    Args:
        state: The opened state directory.
        backend_url: Where new leases come from; a handle remembers its own.
        caller: Who makes the requests.
        settings: How to talk to that backend, if it is a server.
        release_seconds: How long a release may take in all, on a server; None for the server's
            usual limit.
        rest_seconds: How long to leave a server alone that hasn't answered.
        warn: Called with a line for people about a problem that stops nothing.
        clock: Where times come from.

    Attributes:
        handles: The records of the state directory.
        losses: Updates the records after leases were lost.
        release_seconds: As given.
    """

    def __init__(
        self,
        state: State,
        *,
        backend_url: str,
        caller: Caller,
        settings: str = "",
        release_seconds: float | None = None,
        rest_seconds: float = 0.0,
        warn: Callable[[str], None] = lambda _: None,
        clock: Clock | None = None,
    ) -> None:
        self.state = state
        self.handles = Handles(state)
        self.backend_url = backend_url
        self.caller = caller
        self.settings = settings
        self.clock = clock or Clock()
        self.losses = Losses(state, clock=self.clock)
        self.release_seconds = release_seconds
        self._rest_seconds = rest_seconds
        self._warn = state.events.warn = warn
        self._withheld: list[str] | None = None
        self._backends: dict[tuple[str, str], Backend] = {}

    def for_another_thread(self) -> Service:
        """Return a copy for the thread that calls this, which opens the state directory again."""
        state, events = self.state.open_again(), self.state.events
        state.events.kept_seconds = events.kept_seconds
        state.events.kept_number = events.kept_number
        return Service(
            state,
            backend_url=self.backend_url,
            caller=self.caller,
            settings=self.settings,
            release_seconds=self.release_seconds,
            rest_seconds=self._rest_seconds,
            warn=self._warn,
            clock=self.clock,
        )

    def at_backend_of(self, handle: Handle) -> Service:
        """Return a copy for the backend that a handle's leases come from."""
        return Service(
            self.state,
            backend_url=handle.backend,
            caller=self.caller,
            settings=handle.settings,
            release_seconds=self.release_seconds,
            rest_seconds=self._rest_seconds,
            warn=self.warn,
            clock=self.clock,
        )

    @property
    def pools(self) -> PoolAdmin:
        """Return the pools of the chosen backend; NotSupported if it has none."""
        return self.backend_at(self.backend_url, self.settings).pools

    @property
    def events(self) -> EventLog:
        """Return the events of the backend; NotSupported if it records none."""
        return self.backend_at(self.backend_url, self.settings).events

    @property
    def members(self) -> Members:
        """Return the membership of names in pools; NotSupported if the backend has no pools."""
        return self.backend_at(self.backend_url, self.settings).members

    @property
    def notes(self) -> Notes:
        """Return the notes at the claims in its pools; NotSupported if it has none."""
        return self.backend_at(self.backend_url, self.settings).notes

    @property
    def values(self) -> Values:
        """Return the values beside the pools of the chosen backend; NotSupported if it has none."""
        return self.backend_at(self.backend_url, self.settings).values

    def atomic(self) -> AbstractContextManager[object]:
        """Do the steps inside at once, as far as the chosen backend can."""
        return self.backend_at(self.backend_url, self.settings).atomic()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """Limit how long the requests inside wait for the chosen backend."""
        return self.backend_at(self.backend_url, self.settings).limited(until)

    def backend_of(self, handle: Handle) -> Backend:
        """Return the backend that a handle's leases come from, whichever is chosen now."""
        return self.backend_at(handle.backend, handle.settings)

    def is_here(self, handle: Handle) -> bool:
        """Return whether a handle's leases come from the chosen backend.

        Raises:
            CorruptState: Its record names a backend that doesn't exist.
        """
        if kind_of_handle(handle).placed_by is None:
            return handle.backend == self.backend_url
        from leasectl.backends.places import place_of

        place = place_of(handle.backend, handle.settings)
        return place == place_of(self.backend_url, self.settings)

    def warn(self, line: str) -> None:
        """Print a line about a problem that stops nothing."""
        if self._withheld is None:
            self._warn(line)
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
            self._backends[key] = open_backend(
                url,
                self.state,
                settings=settings,
                release_seconds=self.release_seconds,
                rest_seconds=self._rest_seconds,
                lost=self.losses.tell,
                warn=self.warn,
                clock=self.clock,
                caller=self.caller.identity,
            )
        return self._backends[key]
