"""What verbs work on: state directory, backend, caller; losses."""

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


# By it `run` and `once` tell their command which handles' commands it runs under.
AROUND = "LEASECTL_AROUND"


def handles_around(environ: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the handles whose commands a process runs under, outermost first."""
    return tuple(environ.get(AROUND, "").split())


class Caller(NamedTuple):
    """On whose behalf requests are made.

    Args:
        owner: ``<job>/<build>`` in a job, else ``<user>@<host>``.
        host: This machine's name.
        shared_dir: Where names of scope ``test`` are listed, or None.
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
        """The identity for changes without a handle: ``<owner>/<host>``."""
        return f"{self.owner}/{self.host}"

    def identity_of(self, handle_id: str) -> str:
        """The identity of a handle's holder: ``<owner>/<host>/<handle>``."""
        return f"{self.owner}/{self.host}/{handle_id}"

    def is_owner(self, owner: str) -> bool:
        """Tell whether a lease's job and build are the caller's.

        Outside a job the state directory, private to one user, and the host say as much. The
        user's name may have changed: scripts give an arbitrary uid a passwd entry half-way.
        """
        outside = f"@{self.host}"
        return owner == self.owner or (owner.endswith(outside) and self.owner.endswith(outside))

    def require_shared_dir(self) -> str:
        """The path of ``SHARED_DIR``, or InvalidRequest."""
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
    """The error for a name that another job or build holds."""
    return NotAllowed(
        f'"{name}" is held by {as_given(holder_identity)}, which is another job or build than '
        f"{as_given(caller.owner)}; to end its lease all the same: "
        f"leasectl release --names {name} --force"
    )


def has_lost(handle: Handle, state: State) -> LeaseLost:
    """The error for a handle that lost a lease which it held."""
    why = f" ({handle.lost_reason})" if handle.lost_reason else ""
    return LeaseLost(
        f"handle {handle.id} has lost its lease{why}; get a new one with: "
        f"leasectl reacquire --handle {state.names_path(handle.id)}"
    )


class Losses:
    """Keeps the handles of one state directory in step with what was lost.

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
        """Told by a store of claims that went away, and of tickets of the dead."""
        with self._state.transaction():
            handle = self._handles.load(owner.partition("/")[0])
            if handle is None or claim_key_of(handle) != owner:
                return  # of another state directory, or an earlier acquisition
            if handle.state == "held":
                self._drop_lost(handle, names)
            elif handle.state == "acquiring" and not kind_of_handle(handle).remote:
                self._forget_dead_waiter(handle)

    def note_gone(self, handle: Handle, names: Sequence[str]) -> None:
        """Note, in a transaction, that a handle doesn't hold some names any more.

        They have been lost, unless they are just being given back, or somebody has tried that and
        doesn't know what came of it.
        """
        names = [name for name in names if name in handle.names]  # others may have noticed first
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
        if left.lost_reason:  # somebody has taken it by force meanwhile, as is on record already
            self._drop_lost(left, returned)
            return
        from leasectl.leases.record_events import RecordEvents

        RecordEvents(self._state, self._clock).released(left, returned, by="command")
        self._handles.drop(left, returned, now=self._clock.elapsed())

    def note_there(self, handle: Handle, names: Sequence[str]) -> None:
        """Note, in a transaction, that a handle holds some names still, as its server says.

        What somebody has tried to give back, and nobody knew whether that worked, is lost if it
        goes away after all.
        """
        if kind_of_handle(handle).remote:
            GivingBack(self._state, release_key_of(handle)).forget_dead(names)

    def unlist(self) -> None:
        """Take what was taken back out of its list of scope ``test``; outside of a transaction."""
        while self._to_unlist and not self._state.is_changing:
            self._unlist(*self._to_unlist.pop())

    def _unlist(self, shared_dir: str, names: frozenset[str]) -> None:
        def is_held(name: str) -> bool:
            holder = self._handles.holding(name, prefer=lambda _: True)
            return holder is not None and holder.shared_dir == shared_dir

        with contextlib.suppress(LeaseError):  # it is known then to be out of date
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
        """Write an event of ended leases where no pool of ours writes one."""
        kind = kind_of_handle(handle)
        if kind.remote and not kind.has_pools:
            from leasectl.leases.record_events import IS_GONE, RecordEvents

            RecordEvents(self._state, self._clock).lost(handle, names, reason=IS_GONE)

    def _drop_taken_back(self, handle: Handle, names: Sequence[str]) -> frozenset[str]:
        """Drop what was ready to be taken back, which is no loss; returns which."""
        from leasectl.state.uses import Uses

        taken_back = Uses(self._state).ready(handle).intersection(names)
        if taken_back:
            self._handles.drop(handle, sorted(taken_back), now=self._clock.elapsed())
            self._to_unlist += [(handle.shared_dir, taken_back)] if handle.shared_dir else []
        return taken_back

    def _forget_dead_waiter(self, handle: Handle) -> None:
        if handle.acquisition == 1:
            self._handles.forget(handle.id, 1)  # nobody has ever heard of it
        else:
            self._handles.release(handle, now=self._clock.elapsed())


class Service:
    """The ground that the verbs stand on; each is a function in a module of its name.

    Args:
        state: The opened state directory.
        backend_url: Where new leases come from; a handle remembers its own.
        caller: On whose behalf.
        settings: How to talk to that backend, if it is a server.
        release_seconds: How long a release may take in all, on a server; None for as long as is
            usual there.
        rest_seconds: For how long a server isn't asked again that hasn't answered.
        warn: Called with a line for people, about what should be known of although it goes on.
        clock: Where times come from.

    Attributes:
        handles: The records of the state directory.
        losses: Keeps them in step with what was lost.
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
        """The same, with the state directory opened by the thread that calls this and uses it."""
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
        """The same, on the backend that a handle's leases come from."""
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
        """The pools of the chosen backend; NotSupported when it has none."""
        return self.backend_at(self.backend_url, self.settings).pools

    @property
    def events(self) -> EventLog:
        """The events of the backend; NotSupported if it records none."""
        return self.backend_at(self.backend_url, self.settings).events

    @property
    def members(self) -> Members:
        """In which pool each name is, and may be; NotSupported where it has no pools."""
        return self.backend_at(self.backend_url, self.settings).members

    @property
    def notes(self) -> Notes:
        """The notes at the claims in its pools; NotSupported if it has none."""
        return self.backend_at(self.backend_url, self.settings).notes

    @property
    def values(self) -> Values:
        """What is kept beside the pools of the chosen backend; NotSupported when it has none."""
        return self.backend_at(self.backend_url, self.settings).values

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once, as far as the chosen backend can do that."""
        return self.backend_at(self.backend_url, self.settings).atomic()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """The chosen backend isn't waited for much longer than that, for what is asked inside."""
        return self.backend_at(self.backend_url, self.settings).limited(until)

    def backend_of(self, handle: Handle) -> Backend:
        """The backend that a handle's leases come from, whichever is chosen now."""
        return self.backend_at(handle.backend, handle.settings)

    def is_here(self, handle: Handle) -> bool:
        """Tell whether a handle's leases are where the chosen backend has its own.

        Raises:
            CorruptState: Its record doesn't say so in any way that is known.
        """
        if kind_of_handle(handle).placed_by is None:
            return handle.backend == self.backend_url
        from leasectl.backends.places import place_of

        place = place_of(handle.backend, handle.settings)
        return place == place_of(self.backend_url, self.settings)

    def warn(self, line: str) -> None:
        """Tell people what they should know of although it goes on."""
        if self._withheld is None:
            self._warn(line)
        else:
            self._withheld.append(line)

    @contextmanager
    def withholding(self) -> Iterator[list[str]]:
        """Collect the backends' warnings in a list, and print what is left in it at the end."""
        withheld: list[str] = []
        self._withheld = withheld
        try:
            yield withheld
        finally:
            self._withheld = None
            for line in withheld:
                self.warn(line)

    def current(self, target: ReleaseTarget) -> Handle | None:
        """The handle that is meant, if it hasn't been released nor has moved on since."""
        return self.handles.current(target.handle_id, target.acquisition)

    def backend_at(self, url: str, settings: str) -> Backend:
        """The backend of a URL, with settings as `encode_settings` wrote them."""
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
