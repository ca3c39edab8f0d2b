"""A ticket, as the process knows it that waits with it.

How long its etcd lease lasts, what was seen from its position in the queue, what has been told
since, and whether it has become a claim unheard of. All that is only known, never decided here:
etcd decides, by the guards of a transaction.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.contract import TicketExpired
from leasectl.engines.etcd.gateway.requests import KeyValue
from leasectl.engines.etcd.keys import ClaimId, Keys
from leasectl.engines.etcd.queues.look import NO_CHANGE, Change
from leasectl.engines.etcd.queues.pace import GrantWatch, Owed, read_owed
from leasectl.engines.etcd.queues.rank import rise
from leasectl.engines.etcd.queues.view import NO_NEEDS, Needs, QueueView
from leasectl.engines.etcd.records import Free, parse_settings
from leasectl.engines.etcd.waiting.targets import (
    WatchTarget,
    at_the_head,
    behind,
    for_the_pace,
    until_met,
)
from leasectl.engines.facts import NO_SETTINGS
from leasectl.engines.pacing import effective_priority, next_rise
from leasectl.model import Claimant, Request, Ticket
from leasectl.system.clock import Clock


class EtcdTicket:
    """One ticket, from before it is put until it is gone or has become a claim.

    Its waiter's thread has it, but for three methods: `note_sent` is for whoever keeps the etcd
    lease alive, `add_news` and `note_grant` for whoever follows a watch.

    Args:
        claimant: Whose it is; what it asks for.
        keys: Where things are in etcd.
        etcd_lease_id: Of the etcd lease that it is going to be attached to.
        ttl_seconds: Of that etcd lease.
        clock: Where times come from.

    Attributes: written by its own methods only.
        claimant: As given.
        etcd_lease_id: As given.
        ttl_seconds: As given.
        target: What its waiter has to listen for, by what was seen last.
        is_head: Whether it was its turn when it was last seen.
        is_behind: Whether better ones then kept something from it that it could use.
        needs: What had to be read to tell that.
        is_unsure: Whether a claim of it was sent whose answer never came.
        seen: What was seen last.
    """

    def __init__(
        self, claimant: Claimant, keys: Keys, *, etcd_lease_id: int, ttl_seconds: int, clock: Clock
    ) -> None:
        self.claimant = claimant
        self.etcd_lease_id = etcd_lease_id
        self.ttl_seconds = ttl_seconds
        self.target = WatchTarget((), (), 0)
        self.is_head = False
        self.is_behind = False
        self.needs = _needs(is_ranked=claimant.request.priority != 0)
        self.is_unsure = False
        self._keys = keys
        self._clock = clock
        self._made_at = self._sent_at = clock.elapsed()
        self._number: int | None = None
        self._put_at = clock.elapsed()
        self._priority = claimant.request.priority  # that it counts with
        self._settings = NO_SETTINGS
        self.seen: QueueView | None = None
        self._grants = GrantWatch()
        self._counting = 0  # the revision of the last grant after which it saw what is owed
        self._due: tuple[QueueView, tuple[Free, ...]] | None = None  # what there is when it is time
        self._entry: QueueView | None = None  # what was seen as it was put
        self._unused: QueueView | None = None  # what was seen when it came to the head
        self._too_little: QueueView | None = None  # what was seen there last
        self._news: tuple[KeyValue, ...] = ()
        self._reached = 0  # a revision of the store that it knew when it looked last

    @property
    def request(self) -> Request:
        """What it asks for."""
        return self.claimant.request

    @property
    def claim_id(self) -> ClaimId:
        """What it is called once it is a claim."""
        return ClaimId(self.request.type, self.etcd_lease_id)

    @property
    def is_put(self) -> bool:
        """Whether it is known to have been put."""
        return self._number is not None

    @property
    def ticket(self) -> Ticket:
        """What it is called in the queue, once it has been put."""
        assert self._number is not None, "it isn't known yet"
        return Ticket(self._number, self.claimant)

    @property
    def waited(self) -> float:
        """How long ago the request was made, in seconds."""
        return self._clock.elapsed() - self._made_at

    def note_put(self, number: int) -> None:
        """It has been put, and got that number."""
        self._number, self._put_at = number, self._clock.elapsed()

    def note_entry(self, view: QueueView) -> None:
        """That was seen as it was put, with no more than any look reads."""
        needs = NO_NEEDS.and_also(view.needs)
        if needs == NO_NEEDS and not self.request.where:
            self._entry = view
            self.note_view(view)
        else:
            self.needs = needs

    def take_entry(self) -> QueueView | None:
        """What was seen as it was put, for the first who asks; None where one has to look."""
        view, self._entry = self._entry, None
        return view

    # Its etcd lease

    @property
    def sent_at(self) -> float:
        """When the last request was sent that gave the etcd lease its full time, elapsed clock."""
        return self._sent_at

    @property
    def renewed(self) -> float:
        """The same on the wall clock, in seconds."""
        return self._clock.wall() - (self._clock.elapsed() - self._sent_at)

    @property
    def is_overdue(self) -> bool:
        """Whether the etcd lease must have gone by now, for want of keep-alives."""
        return self._clock.elapsed() - self._sent_at >= self.ttl_seconds

    def expired(self) -> TicketExpired:
        """The error for that."""
        return TicketExpired(
            f"lost the queue position, which was not renewed for {self.ttl_seconds}s; try again"
        )

    def note_sent(self, at: float) -> None:
        """Count the etcd lease's time from a request sent then, on the elapsed clock.

        Either it makes the etcd lease, or it was a keep-alive and has been answered.
        """
        self._sent_at = at

    # Its priority

    @property
    def priority_due(self) -> int | None:
        """What it has to count with by now; None where it does."""
        priority = self._effective_priority()
        return priority if priority > self._priority else None

    @property
    def rises_at(self) -> float | None:
        """When it counts with one more, on the elapsed clock; None for never."""
        now = self._clock.elapsed()
        seconds = next_rise(now - self._put_at, self._settings.aging_seconds)
        return None if seconds is None else now + seconds

    def rise_due(self) -> Change:
        """What has it count with what it has to by now, as a look writes it; mostly nothing."""
        priority = self.priority_due
        if priority is None or self.seen is None:
            return NO_CHANGE
        number, seen = self.ticket.number, self.seen
        return Change(*rise(self._keys, self.claim_id, number, priority, seen.rank, seen.settings))

    def _effective_priority(self) -> int:
        waited = self._clock.elapsed() - self._put_at
        return effective_priority(self.request.priority, waited, self._settings.aging_seconds)

    # The pace of its pool

    def note_grant(self, revision: int) -> None:
        """There has been a grant in its pool."""
        self._grants.note(revision, self._clock.elapsed())

    @property
    def is_paced(self) -> bool:
        """Whether the pool had a pace when it was last seen."""
        return self._settings.pace_seconds > 0

    def owed(self, view: QueueView) -> Owed:
        """What the pool's grants owed right after the last that was seen."""
        return read_owed(self._settings, view.pace, view.grants)

    def counted(self, owed: Owed) -> float:
        """How long it has known of that grant as the last, in seconds."""
        return self._grants.seconds(owed.since, self._clock.elapsed())

    def left(self, owed: Owed) -> float:
        """How long it takes until the next grant, as far as it has counted; 0 for no time."""
        return owed.paid_in(self.counted(owed))

    def begin_to_count(self, owed: Owed) -> bool:
        """Whether it is for the first time that it sees what is owed after that grant."""
        is_first, self._counting = self._counting != owed.since, owed.since
        return is_first

    def catch_up(self, owed: Owed, counted_seconds: float) -> None:
        """Somebody else has counted that long since that grant."""
        self._grants.catch_up(owed.since, self._clock.elapsed() - counted_seconds)

    def wait_for_pace(self, view: QueueView, free: tuple[Free, ...]) -> None:
        """Listen for what ends the wait before the time has come; there is enough to take."""
        self.target = for_the_pace(
            self._keys,
            self.request.type,
            self.etcd_lease_id,
            view.revision,
            others=self._kept_by(view),
        )
        self._due, self._too_little = (view, free), None

    def take_due(self) -> tuple[QueueView, tuple[Free, ...]] | None:
        """What it can claim now that the time has come, as it was seen; None where it hasn't."""
        due, self._due = self._due, None
        if due is None or self._grants.last != (owed := self.owed(due[0])).since:
            return None
        return None if self.left(owed) else due

    # Its position

    def begin_look(self) -> None:
        """What it has been told so far is older than what is going to be seen."""
        self._news, self._due = (), None
        seen = 0 if self.seen is None else self.seen.revision
        self._reached = max(seen, self._grants.last)

    def note_looked(self, view: QueueView) -> None:
        """Note a view that was read whole, after `begin_look`."""
        if view.revision < self._reached:  # the store was restored from an older copy
            self._grants.forget()
        self.note_view(view)

    def note_view(self, view: QueueView) -> None:
        """This was just seen."""
        self.seen = view
        self._settings = NO_SETTINGS if view.settings is None else parse_settings(view.settings)
        self._priority = view.priority
        self.needs = view.needs if view.before is None else _needs(is_ranked=view.is_ranked)
        if view.grants is not None:
            self.note_grant(view.grants.mod_revision)

    def wait_behind(self, view: QueueView) -> None:
        """Listen for the end of the ticket before it, which was seen."""
        assert view.before is not None
        self.target = behind(
            self._keys,
            self.request.type,
            self.etcd_lease_id,
            view.before.key,
            view.revision,
            is_paced=self.is_paced,
            for_time=view.is_for_time,
            has_time=view.revision == self._number and view.has_many,
        )
        self.is_head, self.is_behind, self._too_little = False, True, None

    def reach_head(self, view: QueueView) -> None:
        """No ticket keeps it from everything; only who counts with more may get in before it."""
        self.is_head, self._unused = True, view

    def wait_at_head(self, view: QueueView) -> None:
        """Listen for resources, as there were too few to take."""
        self.target = at_the_head(
            self._keys,
            self.request.type,
            self.etcd_lease_id,
            view.revision,
            others=self._kept_by(view),
            is_paced=self.is_paced,
        )
        self._too_little = view

    def wait_until_met(self, view: QueueView) -> None:
        """Listen for other resources in the pool, as what there is could never meet its request."""
        self.target = until_met(
            self._keys, self.request.type, self.etcd_lease_id, view.revision, is_paced=self.is_paced
        )
        self.is_behind, self._too_little, self._due, self._unused = False, None, None, None

    def _kept_by(self, view: QueueView) -> list[str]:
        """The tickets that keep something from it; their end is of interest."""
        others = [each.kv.key for each in view.others] if self.request.name is None else []
        self.is_behind = bool(others)
        return others

    def take_view(self) -> QueueView | None:
        """What was seen as it came to the head, for the first who asks."""
        view, self._unused = self._unused, None
        return view

    # Its claim

    def doubt_claim(self) -> None:
        """A claim of it was sent, and no answer came: it may be a claim by now."""
        self.is_unsure = True

    def settle_claim(self) -> None:
        """What became of that has been found out."""
        self.is_unsure = False

    # What it is told of

    @property
    def news(self) -> tuple[KeyValue, ...]:
        """What it has been told of since this was last taken, or it last looked."""
        return self._news

    def add_news(self, news: Sequence[KeyValue]) -> None:
        """Tell it what has changed: a hint, as all else that a watch says.

        Of two threads that write at a time one may get lost; then what it told of is found by
        looking.
        """
        self._news = (*self._news, *news)

    def guess_view(self) -> QueueView | None:
        """What the head would see now, after what it saw last and has been told since.

        To save the request between a release and the next grant: if there is more to it, the
        guards of the claim don't hold, and one has to look after all.

        Returns:
            None when it can't be told, or when there isn't enough to take.
        """
        request, news, self._news = self.request, self._news, ()
        frees = self._keys.frees(request.type)
        is_about_frees = bool(news) and all(kv.key.startswith(frees) for kv in news)
        if self._too_little is None or request.name is not None or not is_about_frees:
            return None
        guessed = self._too_little.with_freed(news)
        if len(guessed.page) < request.count:
            return None
        return guessed._replace(page=guessed.page[: request.count])


def _needs(*, is_ranked: bool) -> Needs:
    """What the first look reads, and each that finds another ticket before its own."""
    return Needs(better=is_ranked, is_ranked=is_ranked)
