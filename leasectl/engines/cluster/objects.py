"""Objects of a cluster store: the facts in them, and what a driver does with them.

A store keeps objects, each with a version. A write is guarded by the version that was seen; of two
writers that saw the same version, one succeeds. Lists are of one instant, and watches continue from
there. Nothing else is needed of a store. A claim is part of the one object of its resource.

A store may have two more powers. One that `unites` changes several objects in one write, all or
none, with the events that tell of it. In one that `ends`, a ticket or a claim ends by itself when
nobody keeps it alive, and lists and watches say so; its object stays for whoever tells of that.

A driver (`engines.kubernetes`, `engines.etcd`) encodes the facts, and finds lost answers: it tries
a write again, and afterwards compares what is there with what was to be written.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeVar, Union

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.rules.membership import Member, Pools
from leasectl.engines.rules.possible import Want
from leasectl.errors import BackendUnreachable, LeaseError, NotFound
from leasectl.model import Labels, Lease, Process
from leasectl.system.clock import rfc3339

if TYPE_CHECKING:
    from leasectl.state.event import Event

Kind = Literal["resource", "ticket", "pool", "belonging", "values", "content"]
# It grants; it isn't complete; it is to be deleted if nobody uses it; it is deleted in part.
PoolState = Literal["open", "making", "closing", "gone"]

Event_co = TypeVar("Event_co", covariant=True)

# Of a ticket whose request has no ttl, and of one that can't be read.
WAITER_TTL_SECONDS = 60.0


class Identity(NamedTuple):
    """Which object, as it was at which write.

    Args:
        name: Of the object, as its store knows it.
        uid: Of this very object, not of one of the same name before or after it.
        version: Of its last write. Versions grow with each write of the store.
    """

    name: str
    uid: str = ""
    version: int = 0


class Claim(NamedTuple):
    """A hold on a resource.

    Args:
        claim_key: What it is found by, with its state id; empty for one that isn't of leasectl.
        ticket: The object of the ticket that it was made of; empty for none.
        place: The number of that ticket; in a claim that is about to be united with others, 0 for
            that of its write.
        grant: Of the acquisition.
        fence: Of this resource in it.
        holder_identity: Who holds, for people.
        acquire_time: Wall clock of the holder, seconds since the epoch.
        renew_time: The same, of the last renewal.
        renewed: The same as it is written, to be compared.
        ttl_seconds: None for never.
        transitions: How often the resource went from one holder to another.
        labels: Of the request, safe to show.
        holder_pid: As the claimant said.
        release_after_seconds: As the claimant said, too.
        ended: Who has ended it by force, and why, while it is kept for its holder; else empty.
        note: What is noted at it; None for nothing.
        note_by: What is different for each writer of that note.
        left: Tickets that had become claims before it, and were still there.
        life: Where claims end by themselves: what is kept alive for this one; empty for nothing.
        is_over: Where claims end by themselves: this one has ended.
    """

    claim_key: str
    ticket: str
    place: int
    grant: int
    fence: int
    holder_identity: str
    acquire_time: float
    renew_time: float
    renewed: str
    ttl_seconds: float | None
    transitions: int
    labels: Labels = ()
    holder_pid: int | None = None
    release_after_seconds: float | None = None
    ended: str = ""
    note: str | None = None
    note_by: str = ""
    left: tuple[str, ...] = ()
    life: str = ""
    is_over: bool = False

    @property
    def mark(self) -> str:
        """What is different after each renewal, and for each holder."""
        return f"{self.claim_key} {self.fence} {self.holder_identity} {self.renewed}"

    def lease(self, name: str) -> Lease:
        """What its holder knows of it."""
        return Lease(
            name=name,
            fence=self.fence,
            ticket=self.place,
            grant=self.grant,
            holder_identity=self.holder_identity,
            acquire_time=self.acquire_time,
            renew_time=self.renew_time,
            lease_duration_seconds=self.ttl_seconds,
            lease_transitions=self.transitions,
            labels=self.labels,
        )


class ResourceObject(NamedTuple):
    """A resource, or a name that is only expected.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        member: What is so of the name: its pool, and more.
        claim: Its claim; None if it isn't held.
        fence: Of its last claim; 0 for none so far.
        last_holder: The holder of that claim; None for none so far.
        last_tickets: Of one that was given back, as `had_by`.
        transitions: How often it went from one holder to another by then.
        grace_seconds: So long after it came to the default pool it isn't granted; None for at once.
        came: What is different each time that it comes there.
        joined: What is different each time that it joins its pool.
        entering: A process may be about to put it into a pool (`entering`).
        made: A word that each change of its membership replaces.
        freed: A word that each release replaces.
        changed: A word that a write replaces which is to change nothing else.
    """

    id: Identity
    raw: Any
    member: Member
    claim: Claim | None = None
    fence: int = 0
    last_holder: str | None = None
    transitions: int = 0
    grace_seconds: float | None = None
    came: str = ""
    joined: str = ""
    last_tickets: tuple[str, ...] = ()
    entering: str = ""
    made: str = ""
    freed: str = ""
    changed: str = ""

    @property
    def name(self) -> str:
        return self.member.name

    @property
    def had_by(self) -> tuple[str, ...]:
        """The ticket that has become its claim, or the last one, and those left before that."""
        claim = self.claim
        return self.last_tickets if claim is None else (claim.ticket, *claim.left)


class TicketObject(NamedTuple):
    """A place in a queue.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        pool: The type of its pool.
        place: Its number: the version with which it was made.
        order: The place that it ranks by instead: that of a ticket of the same request in another
            pool, which was put first; 0 for its own.
        is_parked: Others may pass it, while its request waits for another pool.
        claim_key: Of who waits, with its state id.
        holder_identity: Who waits, for people.
        ttl_seconds: After so long without a renewal it is dead.
        renewed: When it was renewed last, as it is written.
        want: What it could use.
        count: How many of that.
        priority: As asked for.
        counts_as: With what it has gained by waiting, as its owner says.
        since: Wall clock of that, in seconds.
        pid: The process that waits.
        labels: Of the request, safe to show.
        process: That process by its name for good; None if it isn't known.
        life: Where tickets end by themselves: what is kept alive for this one.
        is_over: Where tickets end by themselves: this one has ended.
    """

    id: Identity
    raw: Any
    pool: str
    place: int
    order: int = 0
    is_parked: bool = False
    claim_key: str = ""
    holder_identity: str = ""
    ttl_seconds: float = WAITER_TTL_SECONDS
    renewed: str = ""
    want: Want = Want()
    count: int = 0  # type: ignore[assignment]  # as in Request
    priority: int = 0
    counts_as: int = 0
    since: float = 0.0
    pid: int | None = None
    labels: Labels = ()
    process: Process | None = None
    life: str = ""
    is_over: bool = False

    @property
    def mark(self) -> str:
        """What is different after each renewal."""
        return f"{self.claim_key} {self.renewed}"


class PoolObject(NamedTuple):
    """A pool itself.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        type: Its type.
        settings: How it grants.
        state: Whether anything can be had in it, and if not why.
        word: What differs each time that its creation or deletion begins.
        level: What its grants owed the pace right after the last of them, in grants.
        last_grant: What is different after each grant under a pace; empty for none.
        changed: What is different after each change by which it may meet less.
        coming: Names may be to move here from other pools with their release.
        epoch: What is different each time that its cluster was found to be a restored one.
        floor: The largest version that was seen before that.
        made: A word of its creator.
    """

    id: Identity
    raw: Any
    type: str
    settings: PoolSettings = NO_SETTINGS
    state: PoolState = "open"
    word: str = ""
    level: float = 0.0
    last_grant: str = ""
    changed: str = ""
    coming: bool = False
    epoch: str = ""
    floor: int = 0
    made: str = ""


class BelongingObject(NamedTuple):
    """The default pool, and patterns of names with their pools.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        pools: What it says; without the types, which are those of other objects.
        pending: What it is about to say (`belonging`); None for nothing else.
        floor: The largest version that was seen before the cluster was restored: no fence of a pool
            that is made later is below.
        epoch: As `PoolObject` has it.
        made: A word that each write replaces.
    """

    id: Identity
    raw: Any
    pools: Pools
    pending: Pools | None = None
    floor: int = 0
    epoch: str = ""
    made: str = ""


class Said(NamedTuple):
    """What is kept under a key.

    Args:
        content: That.
        version: What tells it from what was or will be kept there.
        written_at: Wall clock of its writer, in seconds since the epoch.
        until: When it is over, by the wall clock of a reader; None for never.
    """

    content: bytes
    version: int
    written_at: float
    until: float | None = None


class ValuesObject(NamedTuple):
    """All that is small and kept of a subject.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        space: Whose it is.
        subject: Of what.
        said: By kind and word, as "/" is between them.
        contents: The words of those contents that there are, or may be, of this subject, and when
            they are over: 0.0 for those that are to go.
        made: A word that each write replaces.
    """

    id: Identity
    raw: Any
    space: str
    subject: str
    said: Mapping[str, Said]
    contents: Mapping[str, float | None]
    made: str = ""


class ContentObject(NamedTuple):
    """A content, which may be large.

    Args:
        id: Its object.
        raw: As its driver stores it; nothing else reads it.
        key: Under which it is kept.
        said: It.
    """

    id: Identity
    raw: Any
    key: str
    said: Said


class Unreadable(NamedTuple):
    """An object among ours that leasectl hasn't written so.

    Args:
        id: Which.
        raw: As its driver stores it.
        kind: Which kind its label says.
        why: What is wrong with it, for people.
    """

    id: Identity
    raw: Any
    kind: str
    why: str


Found = Union[
    ResourceObject,
    TicketObject,
    PoolObject,
    BelongingObject,
    ValuesObject,
    ContentObject,
    Unreadable,
]


def as_resource(found: Found | None) -> ResourceObject | None:
    """Return an object if it is a resource."""
    return found if isinstance(found, ResourceObject) else None


def as_pool(found: Found | None) -> PoolObject | None:
    """Return an object if it is a pool."""
    return found if isinstance(found, PoolObject) else None


def is_same(claim: Claim, other: Claim) -> bool:
    """Return whether two are the same claim, however often renewed."""
    return (claim.claim_key, claim.fence) == (other.claim_key, other.fence)


def by_fence(resource: ResourceObject) -> tuple[int, str]:
    """Return a sort key for claimed resources, in the order of their fences."""
    return (resource.claim.fence if resource.claim else 0, resource.name)


def new_word() -> str:
    """Return a word by which a writer knows its write again."""
    return os.urandom(8).hex()


def stamp(wall_seconds: float, *, after: str = "") -> str:
    """Return a time with six digits of a second, which differs from the one before it.

    Args:
        wall_seconds: Wall clock.
        after: What was written last: a renewal has to change it.
    """
    text = rfc3339(wall_seconds)
    if text == after:
        text = rfc3339(wall_seconds + 0.000_002)
    assert text is not None
    return text


# What a driver does


class Selection(NamedTuple):
    """Which objects a list or a watch is about; all conditions count.

    Args:
        pool: Those of a pool.
        kinds: Those of some kinds; empty for all.
        claim: Those with a claim key, with its state id.
        space: The values of a space.
        moves_to: The resources whose release takes them to a pool.
        entering: The resources that may be about to enter a pool.
        names: Those of these names; one, unless the store `unites`.
    """

    pool: str | None = None
    kinds: tuple[Kind, ...] = ()
    claim: str = ""
    space: str | None = None
    moves_to: str | None = None
    entering: bool = False
    names: tuple[str, ...] = ()


class Seen(NamedTuple):
    """Objects as they were at one instant.

    Args:
        items: Them.
        version: That instant.
        has_more_tickets: Not of all: there are tickets that aren't among them.
    """

    items: tuple[Found, ...]
    version: int
    has_more_tickets: bool = False


class Written(NamedTuple):
    """What became of a write.

    Args:
        is_done: It was carried out; or what was to go had gone before.
        object: As it is after the write; None where it has gone, or the write was refused.
        found: Where it was refused, since another writer was faster: what is there instead; None
            where nothing is.
        pool: Of a new ticket: its pool as it is with that, if the same request has told of it.
    """

    is_done: bool
    object: Found | None = None
    found: Found | None = None
    pool: Seen | None = None

    @property
    def resource(self) -> ResourceObject | None:
        """The object after the write, if it is a resource."""
        return as_resource(self.object)


# How often a step is tried anew at once, as other writers were faster.
MOST_TRIES = 20
NOTHING: Mapping[str, Found | None] = MappingProxyType({})


class Told(NamedTuple):
    """What a write is told of.

    Args:
        events: One or several, in their order; their numbers don't count. A ticket without a number
            is the one that is made or granted with it.
        about: Which resources they tell of; none for the pool.
        title: What it is called in a store's own words; empty for the last event's kind.
    """

    events: tuple[Event, ...]
    about: tuple[Identity, ...] = ()
    title: str = ""


class Change(NamedTuple):
    """What a write makes of one object.

    Args:
        seen: As it was seen; None where it isn't there.
        new: As it is to be; None for gone.
        told: What is told if this write is carried out.
    """

    seen: Found | None
    new: Found | None
    told: Sequence[Told] = ()


def too_fast(what: str) -> BackendUnreachable:
    """Return the error for an object that other writers keep changing."""
    return BackendUnreachable(f"{what} changes faster than it is read; try again")


class Happened(NamedTuple):
    """What a watch tells.

    Args:
        what: An object is there, or isn't (or isn't selected any more); or a ticket, or the claim
            of a resource if it has one, has ended by itself; or nothing has happened to what is
            selected, up to a version.
        id: Which object, with the version of that write.
        object: As it is; None for one that isn't ours, or that is gone, or that wasn't written.
    """

    what: Literal["there", "gone", "over", "nothing"]
    id: Identity
    object: Found | None = None


class Watch(Protocol[Event_co]):
    """A context manager; inside, one thread iterates over what happens.

    It never ends by itself: it raises `WatchEnded`, also when it is cut, or `LeaseError`.
    """

    def __enter__(self) -> Iterator[Event_co]: ...

    def __exit__(self, *reason: object) -> None: ...

    def cut(self) -> None:
        """End it, from any thread and at any time: before it has begun, too."""


class Objects(Protocol):
    """The objects of one place: a namespace, a prefix. Threads may share it.

    Attributes:
        largest_content: Bytes that a value of the kind `CONTENT` may have.
        unites: Several objects are changed in one write, with the events that tell of it.
        ends: Tickets and claims end by themselves.
        few_next: So many of a queue follow their pool, to move on with a claim and not with the end
            of a ticket.
        few_before: So does who comes when no more than about so many are before it.
    """

    largest_content: int
    unites: bool
    ends: bool
    few_next: int
    few_before: int

    def limited(self, until: float | None) -> AbstractContextManager[None]:
        """Inside, no request takes much longer than until then, elapsed clock."""

    # Names

    def name_of(self, kind: Kind, *words: str) -> str:
        """Return the name of the object of a resource, a pool, a subject or a content."""

    def new_ticket_name(self, pool_type: str) -> str:
        """Return a name for the object of a new ticket, which can't be guessed."""

    def new_life(self) -> str:
        """Return what a ticket or a claim is kept alive by; empty where they don't end."""

    # Reading; each read is consistent

    def read(self, name: str) -> Found | None:
        """Return an object as it is now; `Unreadable` if it isn't ours, None if it isn't there."""

    def list(self, which: Selection) -> Seen:
        """Return all objects that are selected, as they are now."""

    def glance(self, pool_type: str, count: int) -> Seen | None:
        """Return a pool for who asks for so many of it, and perhaps not all resources in it.

        These are those that were free for the longest time, where nobody waits there, that many are
        free, and of all others it is sure that they are held. Where somebody waits, all resources
        are among it, and no tickets. None if the pool has to be listed.
        """

    def watch(self, which: Selection, since: int) -> Watch[Happened]:
        """Return what happens to those after a version; nothing is asked before it is entered."""

    # Writing; a write is guarded, repeated until it is answered, and found if its answer is lost

    def write(self, change: Change) -> Written:
        """Carry out a change, if its object is still as it was seen.

        Where an answer was lost, what is there tells whether it was (`changes.is_carried_out`).

        Raises:
            NotAllowed: There is an object of a new one's name that isn't of leasectl.
            CorruptState: There is one that was, before it was edited.
        """

    def write_together(
        self,
        changes: Sequence[Change],
        *,
        still: Mapping[str, Found | None] = NOTHING,
        unqueued: str | None = None,
        told: Sequence[Told] = (),
    ) -> tuple[Found | None, ...] | None:
        """Carry out several changes at once, where the store unites them.

        Args:
            changes: Of an object each. A ticket goes if it is still the same, however written.
            still: What has to be as it was seen as well, by the names of objects.
            unqueued: The pool in which no ticket may be; None for any.
            told: What is told of all of them, beside what is told of each.

        Returns:
            The objects as they are then, in the same order; None where one wasn't as it was seen.
        """

    def remove(self, found: Found, told: Sequence[Told] = ()) -> None:
        """Remove an object, also if it was written since; leave a later one of its name.

        Args:
            found: Which.
            told: What is told if this call did it.
        """

    def tell(self, told: Sequence[Told]) -> None:
        """Tell of what was done by several writes."""

    def keep_alive(self, found: TicketObject | ResourceObject) -> bool:
        """Give a ticket or a claim its full time again, where they end; tell whether it lives."""

    # What people are told

    def check(self) -> None:
        """Raise `NoNamespace` if the place isn't there, as far as that can be told at once."""

    def why_missing(self, name: str, resources: int) -> NotFound | None:
        """Return why a pool can't be read that has resources or an object; None if it has not."""

    def why_unreadable(self, name: str) -> LeaseError:
        """Return what to do about an object that isn't what its name says."""

    def is_forbidden(self, error: BaseException) -> bool:
        """Return whether an error says that we may not do this, but others may."""
