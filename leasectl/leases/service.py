"""What every verb on leases works on: a state directory, the chosen backend, the caller."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from leasectl.backends.contract import Backend
from leasectl.backends.kinds import kind_of_handle
from leasectl.backends.opening import open_backend
from leasectl.leases.caller import Caller
from leasectl.leases.losses import Losses
from leasectl.model import Handle, ReleaseTarget
from leasectl.state.directory import State
from leasectl.state.handles import Handles
from leasectl.system.clock import Clock
from leasectl.typed.hints import TYPE_CHECKING, Callable

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.members import Members
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import PoolAdmin
    from leasectl.engines.values import Values


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
        state, events = State.open(self.state.directory), self.state.events
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

    @property
    def pools(self) -> PoolAdmin:
        """The pools of the chosen backend; NotSupported when it has none."""
        return self.backend_at(self.backend_url, self.settings).pools

    @property
    def events(self) -> EventLog:
        """What happened on the chosen backend; NotSupported when nobody writes that down."""
        return self.backend_at(self.backend_url, self.settings).events

    @property
    def members(self) -> Members:
        """In which pool each name is, and may be; NotSupported where it has no pools."""
        return self.backend_at(self.backend_url, self.settings).members

    @property
    def notes(self) -> Notes:
        """What is noted at the claims in its pools; NotSupported likewise."""
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
        """Have what backends tell people be a list meanwhile; what is in it in the end is told."""
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
