"""Facts that several packages share; words as in the Kubernetes LeaseSpec."""

from __future__ import annotations

from typing import Literal, NamedTuple

Labels = tuple[tuple[str, str], ...]
# Of a resource's properties: a key, a value, and whether it is to have that, or not to.
Where = tuple[tuple[str, str, bool], ...]
# What is answered for a holder that is asked to give something back: that it can be had, unless it
# is in use; that it can't; or nothing, as its script answers itself.
OnReclaim = Literal["release", "keep", "answer"]


class Process(NamedTuple):
    """The name of one process, for good.

    Args:
        boot_id: The kernel's random id of this boot.
        pid_namespace: Inode number of the pid namespace in which ``pid`` has its meaning.
        pid: The process id.
        start_time: Field 22 of ``/proc/<pid>/stat``, in clock ticks since boot.
    """

    boot_id: str
    pid_namespace: int
    pid: int
    start_time: int

    def encode(self) -> str:
        """Write it as one word, for a record; `parse_process` reads it back."""
        return f"{self.boot_id}:{self.pid_namespace}:{self.pid}:{self.start_time}"


def parse_process(text: str) -> Process:
    """Read what `Process.encode` wrote."""
    boot_id, namespace, pid, start = text.split(":")
    return Process(boot_id, int(namespace), int(pid), int(start))


HIGHEST_PRIORITY = 100
Scope = Literal["step", "test"]
HandleState = Literal["acquiring", "held", "released"]
# Who or what ended a hold: a command, the delay that was asked for, the death of a guard or waiter,
# `run` as its command had ended, the end of a ttl, somebody's force, that the resource is gone, or
# a reclaim that its holder was ready for.
ReleasedBy = Literal["command", "delay", "guard", "run", "ttl", "force", "removal", "reclaim"]


class Request(NamedTuple):
    """A request for leases; `reacquire` asks for the same again.

    Args:
        type: The pool's type.
        count: How many resources, all or none.
        name: The one resource that will do; None for any.
        ttl_seconds: The lease ends this long after its last renewal; None for never.
        release_after_seconds: The keeper releases this long after the grant; None for never.
        release_between_seconds: The range from which that is drawn for each acquisition; None for a
            fixed time.
        scope: ``step``, or ``test`` for leases that outlive the step.
        labels: Shown to people beside the holder.
        other_types: Further types. Any of all would do, in order: the first with a free resource.
        priority: The higher goes first, `HIGHEST_PRIORITY` at most, and no less than its negative.
        where: Properties that each resource must have.
        on_reclaim: The answer for the holder when a lease is wanted back.
        needs_all: Of each type, ``count`` resources are wanted at once, instead of one type.
    """

    type: str
    count: int = 1  # type: ignore[assignment]  # rather the contract's word than tuple.count
    name: str | None = None
    ttl_seconds: float | None = None
    release_after_seconds: float | None = None
    scope: Scope = "step"
    labels: Labels = ()
    other_types: tuple[str, ...] = ()
    priority: int = 0
    release_between_seconds: tuple[float, float] | None = None
    where: Where = ()
    on_reclaim: OnReclaim = "keep"
    needs_all: bool = False

    @property
    def types(self) -> tuple[str, ...]:
        """All that would do or are needed, the one it is named after first."""
        return (self.type, *self.other_types)

    @property
    def total(self) -> int:
        """How many resources are wanted in all pools together."""
        return self.count * len(self.types) if self.needs_all else self.count


class Lease(NamedTuple):
    """A holder's claim on one resource.

    Args:
        name: The resource.
        fence: Grows with each grant of the resource; the larger is the newer holder. 0, like
            the next two, where the backend has none; real ones start at 1.
        ticket: The number of its place in the pool's queue.
        grant: The acquisition's number among the pool's grants, in ticket order.
        holder_identity: ``<job>/<build>/<host>/<handle>``.
        acquire_time: Wall clock, seconds since the epoch.
        renew_time: Wall clock, seconds since the epoch.
        lease_duration_seconds: The ttl; None when it doesn't expire.
        lease_transitions: How often the resource went from one holder to another.
        labels: Of the request.
    """

    name: str
    fence: int
    ticket: int
    grant: int
    holder_identity: str
    acquire_time: float
    renew_time: float
    lease_duration_seconds: float | None
    lease_transitions: int
    labels: Labels = ()


class Claimant(NamedTuple):
    """A claimant: the holder of a ticket, as the store needs to know it.

    Args:
        claim_key: Unique per handle; claims and tickets carry it.
        holder_identity: For people.
        request: What is wanted.
        process: Its death makes the ticket void; None if the store has other means.
        holder_pid: For people: the process that will hold the leases, a `run` or a guard; None if
            it isn't known before the grant.
        acquisition: The number of the handle's acquisition; 0 if it isn't known.
    """

    claim_key: str
    holder_identity: str
    request: Request
    process: Process | None = None
    holder_pid: int | None = None
    acquisition: int = 0


class Ticket(NamedTuple):
    """A waiter's place in a pool's queue."""

    number: int
    claimant: Claimant


class Handle(NamedTuple):
    """One request for leases with its outcome: the record behind a handle's path.

    Args:
        id: The last component of the path that scripts see.
        backend: URL that the leases come from.
        request: What was asked for.
        owner: ``<job>/<build>``, or ``<user>@<host>`` outside a job.
        holder_identity: ``<owner>/<host>/<id>``.
        state: ``acquiring``, ``held`` or ``released``.
        acquisition: One more at each acquire or reacquire.
        leases: What it holds now.
        guard: The process whose death releases the handle.
        waiter: The process that is acquiring and has not yet told its caller of the grant; if it
            dies, the grant was never reported.
        runner: The `run` process that renews for itself.
        shared_dir: Where the names of a scope ``test`` handle are listed.
        release_at: When the keeper releases it, seconds of CLOCK_BOOTTIME.
        settings: How to talk to the backend, in the backend's own form.
        lost_replies: Answers of a server that may have carried a grant and never came.
        adopted_claim: The claim key of the lease that it gives back without having acquired it;
            empty if the holder isn't known. None for leases of its own.
        granted_type: If several types would do, the one of its last grant; None before the first.
        lost_reason: Who took its leases by force, and why; empty if that isn't known.
        lost: Its leases went away while it held them.
        cancelled: The process that acquires has been asked to give up.
        served: It was made for a client of `leasectl serve`.
        unconfirmed: Its client has been answered, and may not have got the answer.
        explicit_ttl: The ttl was asked for; else it is the backend's default.
        joined: Its first grant brought the resource into its pool, past the queue.
    """

    id: str
    backend: str
    request: Request
    owner: str
    holder_identity: str
    state: HandleState
    acquisition: int
    leases: tuple[Lease, ...] = ()
    guard: Process | None = None
    waiter: Process | None = None
    runner: Process | None = None
    shared_dir: str | None = None
    release_at: float | None = None
    settings: str = ""
    lost_replies: int = 0
    adopted_claim: str | None = None
    granted_type: str | None = None
    lost_reason: str = ""
    lost: bool = False
    cancelled: bool = False
    served: bool = False
    unconfirmed: bool = False
    explicit_ttl: bool = False
    joined: bool = False

    @property
    def type(self) -> str | None:
        """The type of its leases; None if they are of several, or may become one or the other."""
        return self.granted_type if self.request.other_types else self.request.type

    @property
    def leased_types(self) -> tuple[str, ...]:
        """The types of its leases, in the order of the names; empty if that isn't known yet."""
        if self.request.needs_all:
            return self.request.types
        return () if self.type is None else (self.type,)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple([lease.name for lease in self.leases])

    @property
    def key(self) -> str:
        """What a server knows the acquisition by: ``<handle>/<acquisition>``."""
        return f"{self.id}/{self.acquisition}"

    @property
    def fences(self) -> tuple[str, ...]:
        """The fences in the order of the names; empty where the backend has none."""
        return tuple(str(lease.fence or "") for lease in self.leases)


class ReleaseTarget(NamedTuple):
    """What a release is about, pinned down before any delay.

    Args:
        handle_id: The handle.
        acquisition: The release is void when the handle has moved on from it.
        names: Some of what the handle holds; None for all.
        by: Who or what releases, for the record of events.
    """

    handle_id: str
    acquisition: int
    names: tuple[str, ...] | None = None
    by: ReleasedBy = "command"


def whole(handle: Handle, *, by: ReleasedBy = "command") -> ReleaseTarget:
    """All that a handle's current acquisition holds or waits for."""
    return ReleaseTarget(handle.id, handle.acquisition, by=by)


class Timer(NamedTuple):
    """A release that the keeper is to perform.

    Args:
        target: What to release.
        due_at: When, seconds of CLOCK_BOOTTIME.
    """

    target: ReleaseTarget
    due_at: float
