"""The interface of a backend."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from leasectl.engines.contract import LostListener
from leasectl.errors import Cancelled, Interrupted, LeaseError, NoLease
from leasectl.model import Claimant, Lease, Process, ReleasedBy, Request
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.poll import Interrupt, Sleep

if TYPE_CHECKING:
    from leasectl.engines.event_log import EventLog
    from leasectl.engines.notes import Notes
    from leasectl.engines.pool_admin import Members, PoolAdmin
    from leasectl.engines.values import Values

# A turn: one acquisition as a generator: it yields each sleep it needs and is sent what woke it.
Turn = Generator[Sleep, "set[int]", None]


class Withdrawn(Cancelled):
    """The request was taken out of the queue.

    Attributes:
        is_on_purpose: It is on record that somebody did that, and why.
    """

    is_on_purpose = False


def why_given_up(reason: BaseException) -> str:
    """Why a request came to nothing, for people who read of that later.

    Args:
        reason: What ended the wait.
    """
    if isinstance(reason, Interrupted):
        return f"ended by signal {int(reason.signum)}"
    if isinstance(reason, NoLease) and not isinstance(reason, Cancelled):
        return "its time to wait was over"
    return str(reason) if isinstance(reason, LeaseError) else "its process ended it"


class Journal(Protocol):
    """Keeps the handle's record in step with its acquisition.

    On a store that shares the records' database each call is part of the transaction that it
    tells of; elsewhere the calls come right before or right after.
    """

    def enqueuing(self) -> None:
        """The request is about to be put in the queue."""

    def granted(self, leases: Sequence[Lease], *, pool_type: str | None = None) -> None:
        """All that was asked for has been claimed.

        Args:
            leases: What was claimed.
            pool_type: Where several types would do, that of the leases; None for the first.
        """

    def gave_up(self) -> None:
        """The request is no longer in the queue and got nothing."""

    def to_undo(self) -> None:
        """A grant on a server couldn't be undone now; another process has to continue."""


class RemoteJournal(Journal, Protocol):
    """The journal of an acquisition from a server that keeps no record of its own for us.

    Attributes:
        key: ``<handle>/<acquisition>``, the same in every repetition.
    """

    @property
    def key(self) -> str: ...

    def arrived(self, name: str) -> Lease | None:
        """Record a name the moment it arrives; whatever happens from here on, it is given back.

        Returns:
            The lease; None, with nothing recorded, when a release of the same name is under way:
            it could hit the new grant.
        """

    def returning(self, name: str) -> None:
        """A name that had arrived is about to be given back."""

    def returned(self, name: str) -> None:
        """It was given back; the acquisition goes on."""

    def lost_reply(self) -> None:
        """An answer was lost that may have carried a grant."""

    def found(self) -> None:
        """The server recognised a repeated request: what was lost has been found again."""


class Progress(NamedTuple):
    """What a waiter can tell about its wait.

    Args:
        waited_seconds: Since the request was made.
        position: 1 at the head of the queue; None where the backend doesn't tell.
        held: Resources held.
        capacity: Resources there are.
        longest_holder: Who has held for longest, or None.
        longest_held_seconds: For how long that is.
        next_grant_in_seconds: Until the pool's pace allows the next grant; None when it does so
            now, and where that can't be told.
        pace_seconds: Of the pool; 0 for none, and where that isn't told.
        closed: Why what is free can't be had, in words, to who is first; empty for no such reason.
        gives_up_in_seconds: Unless that changes something; None for as long as was asked for.
    """

    waited_seconds: float
    position: int | None = None
    held: int = 0
    capacity: int = 0
    longest_holder: str | None = None
    longest_held_seconds: float = 0.0
    next_grant_in_seconds: float | None = None
    pace_seconds: float = 0.0
    closed: str = ""
    gives_up_in_seconds: float | None = None


class Patience(NamedTuple):
    """How long to wait, and what cuts the wait short or goes on beside it.

    Args:
        wait_seconds: None for no limit, 0 for not at all.
        connect_seconds: For how long a server may fail to answer, as `server_seconds` has it.
        interrupts: Descriptors that end the wait.
        at_first_sleep: Makes further ones, where a wait in this process is seldom needed.
        report: Called with the progress at the start and then every ``report_seconds``.
        report_seconds: How often.
        warn: Called with a line for people, about what they should know of although it goes on.
        watched: At the head of the queue, processes whose end may free something.
        recover: Called when one of those has ended: frees what the dead hold.
        see_to_witness: Called by who has waited behind others for a moment, and again when what it
            returns has ended: has somebody see to it that those others come when they can claim.
            It returns that process; None when it couldn't now. None where nobody has to.
        waits_for_server: A request with a limit waits also for a server that is away. A server of
            ours tells its client instead, which waits.
    """

    wait_seconds: float | None = None
    connect_seconds: float | None = None
    interrupts: tuple[Interrupt, ...] = ()
    at_first_sleep: Callable[[], Sequence[Interrupt]] = tuple
    report: Callable[[Progress], None] | None = None
    report_seconds: float = 60.0
    warn: Callable[[str], None] = lambda _: None
    watched: Callable[[], Sequence[Process]] = tuple
    recover: Callable[[], None] = lambda: None
    see_to_witness: Callable[[], Process | None] | None = None
    waits_for_server: bool = True

    def server_seconds(self, without_limits: float) -> float:
        """Return for how long a server may fail to answer before the request fails.

        That is ``--connect-timeout``, else as long as the request waits.

        Args:
            without_limits: The same for a request that has neither limit.
        """
        if self.connect_seconds is not None:
            return self.connect_seconds
        is_limited = self.wait_seconds is not None and self.waits_for_server
        return math.inf if is_limited else without_limits


class Backend(Protocol):
    """Where leases come from.

    Attributes:
        url: What chose it.
        remote: Its leases live on a server that isn't part of the records' transactions.
    """

    url: str
    remote: bool

    @property
    def pools(self) -> PoolAdmin:
        """Its pools, to be shown and changed.

        Raises:
            NotSupported: They aren't its own.
        """

    @property
    def events(self) -> EventLog:
        """What happened in its pools; if they aren't its own, to the handles of this directory."""

    @property
    def members(self) -> Members:
        """In which pool each name is, and may be; NotSupported as `pools`."""

    @property
    def notes(self) -> Notes:
        """What is noted at the claims in its pools; NotSupported as `pools`."""

    @property
    def values(self) -> Values:
        """What is kept under keys beside its pools; NotSupported as `pools`."""

    def atomic(self) -> AbstractContextManager[object]:
        """Steps inside happen at once, together with the handle's record."""

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        """Wait not much longer than that for what a server is asked inside; None: as usual."""

    def acquire(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> None:
        """Get all that the claimant's request asks for, or nothing; the journal is told of it.

        Raises:
            NoLease: Not before the deadline.
            Cancelled: The request was withdrawn.
            NotFound: No such type or resource.
            InvalidRequest: It can never be had.
        """

    def turn(self, claimant: Claimant, journal: RemoteJournal, patience: Patience) -> Turn:
        """What `acquire` does, for whoever waits for many at once.

        Raises:
            NotSupported: The backend can only block.
        """

    def withdraw(self, claim_key: str, why: str = "") -> None:
        """Take the request that a claim key finds out of the queue, if it is in one.

        Args:
            claim_key: What finds it.
            why: For people, for the record of events.
        """

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterable[str]:
        """Give names back, as far as the claim key still finds them. Twice is once.

        A remote backend yields each as it is done, and raises in the end if one couldn't be. Its
        claim key is the journal's key. No names are all that the key may have been granted, and
        what it had that was ended by force.

        Args:
            claim_key: What finds them.
            names: Which.
            by: Who ends them, for the record of events.
        """

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        """Renew what a claim key finds; returns the names that it still holds.

        Args:
            claim_key: What finds it.
            names: Which those are, as far as is known; some servers can't tell.
            ttl_seconds: The ttl from now on, where there is one; None for that which it has.
        """


class Opening(NamedTuple):
    """What a backend is opened with.

    Args:
        state: Where records are, and the embedded pool.
        settings: How to talk to a server, as `encode_settings` wrote it.
        release_seconds: How long a release may take in all, on a server; None for as long as is
            usual there.
        rest_seconds: For how long a server isn't asked again that hasn't answered.
        lost: Told of leases that went away without having been given back.
        warn: Called with a line for people, about what should be known of although it goes on.
        clock: Where times come from.
        caller: Who makes and changes pools, for the record of events: ``<job>/<build>/<host>``.
    """

    state: State
    settings: str
    release_seconds: float | None
    rest_seconds: float
    lost: LostListener
    warn: Callable[[str], None]
    clock: Clock
    caller: str = ""


class Opener(Protocol):
    """The module that a kind's row names: it opens backends of that kind."""

    def check_url(self, url: str) -> None:
        """Look at a URL of this kind, and only at that.

        Raises:
            InvalidRequest: It can't be right.
        """

    def check_request(self, request: Request, wait_seconds: float | None) -> None:
        """Look at a request, and ask nobody.

        Args:
            request: What is wanted.
            wait_seconds: For how long it may wait; None for no limit.

        Raises:
            InvalidRequest: No backend of this kind could ever grant it.
        """

    def open_backend(self, url: str, opening: Opening) -> Backend:
        """Open the backend that a URL names; no server is asked anything yet."""
