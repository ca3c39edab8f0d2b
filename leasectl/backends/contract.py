"""What a backend is given, and what an acquisition is made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple, Protocol

from leasectl.errors import Cancelled, Interrupted, InvalidRequest, LeaseError, NoLease
from leasectl.model import Lease, Process
from leasectl.system.poll import Interrupt, Sleep

# A turn: one acquisition as a generator: it yields each sleep it needs and is sent what woke it.
Turn = Generator[Sleep, "set[int]", None]


class Withdrawn(Cancelled):
    """The request was taken out of the queue.

    Attributes:
        is_on_purpose: Its record says that it was withdrawn, and why.
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
        return "not granted within -w"
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

    def until(self, start: float) -> float | None:
        """Return when a request that was made at ``start`` gives up, on the same clock."""
        return None if self.wait_seconds is None else start + self.wait_seconds

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
            raise InvalidRequest(
                "--scope test, the default of lease__acquire, needs SHARED_DIR, which is not set; "
                "set it, or acquire with --scope step"
            )
        return self.shared_dir


NOBODY = Caller("", "")
