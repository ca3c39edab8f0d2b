"""The facts in our Lease objects.

What a claim consists of is one annotation, and that is what counts: the fields of the LeaseSpec are
written beside it with the API's own meaning, for people and for other programs. A Lease that has a
holder there and no claim is somebody else's, for as long as it says, and never ours to take before.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple, Union

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.engines.membership import Member, Pools
from leasectl.engines.possible import Want
from leasectl.model import Labels, Lease, Process

Json = Mapping[str, Any]
Kind = Literal["resource", "ticket", "pool", "belonging", "values", "content"]
# It grants; it isn't complete; it is to be deleted if nobody uses it; it is deleted in part.
PoolState = Literal["open", "making", "closing", "gone"]

DOMAIN = "leasectl.dev/"
# Labels.
KIND = DOMAIN + "kind"
POOL = DOMAIN + "pool"
CLAIM_LABEL = DOMAIN + "claim"
ENTERING = DOMAIN + "entering"
MOVES_TO = DOMAIN + "moves-to"
SPACE = DOMAIN + "space"
# Annotations.
NAME = DOMAIN + "name"
TYPE = DOMAIN + "type"
CLAIM = DOMAIN + "claim"
ENDED = DOMAIN + "ended"
NOTE = DOMAIN + "note"
LAST = DOMAIN + "last"
FREED = DOMAIN + "freed"
MEMBER = DOMAIN + "member"
TICKET = DOMAIN + "ticket"
PLACE = DOMAIN + "place"
COUNTS_AS = DOMAIN + "counts-as"
SETTINGS = DOMAIN + "settings"
PACE = DOMAIN + "pace"
CHANGED = DOMAIN + "changed"
COMING = DOMAIN + "coming"
EPOCH = DOMAIN + "epoch"
STATE = DOMAIN + "state"
BELONGING = DOMAIN + "belonging"
# Expectations of a manifest: kubectl writes them, and leasectl moves them into BELONGING.
EXPECT = DOMAIN + "expect"
BY = DOMAIN + "by"
KEPT = DOMAIN + "kept"
SUBJECT = DOMAIN + "subject"
# Of what is kept of a subject, each by its kind.
VALUE_DOMAIN = "value." + DOMAIN

# Of a ticket that doesn't say how long it lasts.
USUAL_TTL_SECONDS = 60.0


class Identity(NamedTuple):
    """Which object, as it was at which write.

    Args:
        name: Of the object.
        uid: Of this very object, not of one of the same name before or after it.
        version: The resourceVersion of its last write: they grow with each write of the cluster.
    """

    name: str
    uid: str
    version: int


class Claim(NamedTuple):
    """A hold on a resource.

    Args:
        claim_key: What it is found by, with its state id; empty for one that isn't of leasectl.
        ticket: The object of the ticket that it was made of; empty for none.
        place: The number of that ticket.
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
        release_after_seconds: Likewise.
        ended: Who has ended it by force, and why, while it is kept for its holder; else empty.
        note: What is noted at it; None for nothing.
        left: Tickets that had become claims before it, and were still there.
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
    left: tuple[str, ...] = ()

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
        raw: That, as the server has it.
        member: What is so of the name: its pool, and more.
        claim: Who holds it; None for nobody.
        fence: Of its last claim; 0 for none so far.
        last_holder: Who had that; None likewise.
        last_tickets: Of one that was given back, as `had_by`.
        transitions: How often it went from one holder to another by then.
        grace_seconds: So long after it came to the default pool nobody gets it; None for at once.
        came: What is different each time that it comes there.
        joined: What is different each time that it joins its pool.
        entering: Somebody may be about to put it into a pool (`entering`).
    """

    id: Identity
    raw: Json
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
        raw: That, as the server has it.
        pool: The type of its pool.
        place: Its number: the resourceVersion with which it was made.
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
    """

    id: Identity
    raw: Json
    pool: str
    place: int
    claim_key: str = ""
    holder_identity: str = ""
    ttl_seconds: float = USUAL_TTL_SECONDS
    renewed: str = ""
    want: Want = Want()
    count: int = 0  # type: ignore[assignment]  # as in Request
    priority: int = 0
    counts_as: int = 0
    since: float = 0.0
    pid: int | None = None
    labels: Labels = ()
    process: Process | None = None

    @property
    def mark(self) -> str:
        """What is different after each renewal."""
        return f"{self.claim_key} {self.renewed}"


class PoolObject(NamedTuple):
    """A pool itself.

    Args:
        id: Its object.
        raw: That, as the server has it.
        type: Its type.
        settings: How it grants.
        state: Whether anything can be had in it, and if not why.
        word: What is different each time that somebody begins to make or to delete it.
        level: What its grants owed the pace right after the last of them, in grants.
        last_grant: What is different after each grant under a pace; empty for none.
        changed: What is different after each change by which it may meet less.
        coming: Names may be to move here from other pools as soon as nobody holds them.
        epoch: What is different each time that its cluster was found to be a restored one.
        floor: The largest resourceVersion that was seen before that.
    """

    id: Identity
    raw: Json
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


class BelongingObject(NamedTuple):
    """Where names belong of which nobody says more.

    Args:
        id: Its object.
        raw: That, as the server has it.
        pools: What it says; without the types, which are those of other objects.
        pending: What it is about to say (`belonging`); None for nothing else.
        floor: The largest resourceVersion that was seen before the cluster was restored: no fence
            of a pool that is made later is below.
    """

    id: Identity
    raw: Json
    pools: Pools
    pending: Pools | None = None
    floor: int = 0


class Said(NamedTuple):
    """What is kept under a key.

    Args:
        content: That.
        version: What tells it from what was or will be kept there.
        written_at: Wall clock of whoever wrote it, in seconds since the epoch.
        until: When it is over, by the wall clock of whoever looks; None for never.
    """

    content: bytes
    version: int
    written_at: float
    until: float | None = None


class ValuesObject(NamedTuple):
    """All that is small and kept of a subject.

    Args:
        id: Its object.
        raw: That, as the server has it.
        space: Whose it is.
        subject: Of what.
        said: By kind and word, as "/" is between them.
        contents: The words of those contents that there are, or may be, of this subject, and when
            they are over: 0.0 for those that are to go.
    """

    id: Identity
    raw: Json
    space: str
    subject: str
    said: Mapping[str, Said]
    contents: Mapping[str, float | None]


class ContentObject(NamedTuple):
    """A content, which may be large.

    Args:
        id: Its object.
        raw: That, as the server has it.
        key: Under which it is kept.
        said: It.
    """

    id: Identity
    raw: Json
    key: str
    said: Said


class Unreadable(NamedTuple):
    """An object with our label that nobody of ours has written so.

    Args:
        id: Which.
        raw: As the server has it.
        kind: Which kind its label says.
        why: What is wrong with it, for people.
    """

    id: Identity
    raw: Json
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
