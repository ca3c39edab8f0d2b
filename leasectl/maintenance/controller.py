"""Carry out what `lifecycle` says, one request at a time, while it leads.

It does one thing at a time, each of a few seconds at most: keeps its lead, ends what is over, looks
at the node that is due first, or does one request of a drain. So an end waits for one other thing
at most, however many nodes there are. What fails is not tried again: the node is looked at again.

It remembers nothing that it couldn't find out again: since when other's leases are unchanged, and
how far drains have come. It may be killed at any time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from typing import NamedTuple, Protocol

from leasectl.errors import BackendUnreachable, InvalidRequest
from leasectl.maintenance.api_cluster import Cluster
from leasectl.maintenance.drain import DrainOptions, NodeDrain
from leasectl.maintenance.facts import LeaseWrite, NodeWrite, Observed, Seen, Step, Us
from leasectl.maintenance.leadership import LEASE_NAME, Leadership
from leasectl.maintenance.lifecycle import next_step
from leasectl.maintenance.objects import Json, parse_lease, parse_node, wanted_of
from leasectl.system.backoff import Backoff
from leasectl.system.clock import Clock, earliest
from leasectl.system.poll import Sleep
from leasectl.text.wording import printable

# So long a request may take: a leader begins none that it couldn't see done.
REQUEST_SECONDS = 5.0
# A clock that jumps is noticed after so long; changes are heard of at once.
_LONGEST_REST_SECONDS = 10.0
_SAY_AGAIN_SECONDS = 60.0
_BACKOFF = Backoff(first_seconds=0.1, longest_seconds=3.0, chance=0.5)
# The API server takes no longer name.
_LONGEST_NAME = 253
# What stands for the name of a node in that of its lease.
NODE = "{node}"
# RFC 1123, as the API server wants it of names of nodes and Leases.
_SUBDOMAIN = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")

Reconciling = Generator[Sleep, "set[int]", None]


class Changes(Protocol):
    """What has changed at nodes and leases."""

    fd: int

    def take(self) -> set[str]:
        """Return the names of the nodes that have changed since the last call.

        `LEASE_NAME` among them says that the leader has changed, or that there is none any more.
        """
        ...


class Settings(NamedTuple):
    """What is to be the same for all replicas, and after a restart.

    Args:
        us: Who we are.
        lease_name: What the lease of a node is called; ``{node}`` in it stands for the node's name.
        drain: What may be evicted.
    """

    us: Us
    lease_name: str = NODE
    drain: DrainOptions = DrainOptions()

    def lease_of(self, node: str) -> str:
        """The name of a node's lease."""
        return self.lease_name.replace(NODE, node)

    def has_no_lease(self, node: str) -> str:
        """Why a node can have none, in words; empty where it can."""
        length = len(self.lease_of(node))
        if length <= _LONGEST_NAME:
            return ""
        return (
            f"the name of its Lease would have {length} characters; at most {_LONGEST_NAME} are "
            "allowed; use a shorter --lease-name"
        )

    def node_of(self, lease: str) -> str:
        """The node of a lease; empty for one that is no node's."""
        before, _, after = self.lease_name.partition(NODE)
        if not (lease.startswith(before) and lease.endswith(after)):
            return ""
        return lease[len(before) : len(lease) - len(after)]


def check_node(text: str) -> str:
    """Return the name of a node, or raise InvalidRequest when none can have it."""
    if len(text) > _LONGEST_NAME or not _SUBDOMAIN.fullmatch(text):
        raise InvalidRequest(
            f'invalid node name "{printable(text)}"; list the nodes with: kubectl get nodes'
        )
    return text


def parse_settings(lease_name: str, identity: str) -> Settings:
    """Return the settings that name the Leases and their holder.

    Raises:
        InvalidRequest: One of them is invalid.
    """
    if lease_name.count(NODE) != 1:
        raise InvalidRequest(
            f'invalid --lease-name "{printable(lease_name)}"; it must contain {NODE} once'
        )
    example = lease_name.replace(NODE, "node")
    if len(example) > _LONGEST_NAME or not _SUBDOMAIN.fullmatch(example):
        raise InvalidRequest(
            f'invalid --lease-name "{printable(lease_name)}"; use lower-case letters, digits, "-" '
            f'and "." around {NODE}'
        )
    if not identity.strip() or not identity.isprintable():
        raise InvalidRequest(f'invalid --identity "{printable(identity)}"; use printable text')
    return Settings(Us(identity), lease_name)


class Controller:
    """Reconciles the nodes of one cluster, while it leads.

    Args:
        cluster: Which.
        changes: What has changed there.
        settings: How.
        leadership: Whether it leads.
        clock: Where times come from.
        say: Called with a line for people, of what is done.
        warn: The same, of what goes wrong.
    """

    def __init__(
        self,
        cluster: Cluster,
        changes: Changes,
        settings: Settings,
        leadership: Leadership,
        *,
        clock: Clock,
        say: Callable[[str], None],
        warn: Callable[[str], None],
    ) -> None:
        self._cluster = cluster
        self._changes = changes
        self._settings = settings
        self._leadership = leadership
        self._clock = clock
        self._say = say
        self._warn = warn
        self._observed = Observed()
        self._due: dict[str, float] = {}  # when to look at a node, on the elapsed clock
        self._over: dict[str, float] = {}  # when the maintenance of one is over, the same
        self._failures: dict[str, int] = {}
        # When to retry a look that failed after it had written the Lease, on the elapsed clock:
        # that change mustn't cause the next look, or it would write the Lease without a pause.
        self._retry_at: dict[str, float] = {}
        self._drains: dict[str, _Running] = {}
        self._looked_last = False
        self._leader = ""
        self._reign = 0
        self._is_away = False  # the server, as was said
        self._said_at: dict[str, float] = {}  # what goes wrong, on the elapsed clock

    def run(self) -> Reconciling:
        """Go on for ever; yields each sleep."""
        while True:
            now = self._clock.elapsed()
            for name in self._changes.take():
                if name != LEASE_NAME:
                    self._due[name] = max(now, self._retry_at.get(name, now))
                elif not self._leadership.has_seconds(0):
                    self._leadership.due_at = now
            self._turn(now)
            # Also where more is due at once: whoever sleeps for it hears of signals then.
            yield Sleep(frozenset([self._changes.fd]), self._next_at())

    def _turn(self, now: float) -> None:
        """Do what is due first, if anything is."""
        if self._leadership.due_at <= now:
            self._lead()
            return
        if not self._leadership.has_seconds(REQUEST_SECONDS):
            return
        over = [name for name, at in self._over.items() if at <= now and self._due[name] <= now]
        if over:
            self._look(min(over, key=lambda each: self._over[each]))
            return
        # Looks and drains take turns, for neither to keep the other waiting.
        self._looked_last = not self._looked_last and self._look_at_first(now)
        if not self._looked_last and not self._drain(now):
            self._look_at_first(now)

    def _look_at_first(self, now: float) -> bool:
        """Look at the node that is due first, if one is; returns whether one was."""
        name = min(self._due, key=lambda each: self._due[each], default=None)
        if name is None or self._due[name] > now:
            return False
        self._look(name)
        return True

    def _next_at(self) -> float | None:
        if not self._leadership.has_seconds(REQUEST_SECONDS):
            return self._leadership.due_at
        now = self._clock.elapsed()
        drains = (each.drain.due_at for each in self._drains.values() if now < each.until)
        return earliest(self._leadership.due_at, *self._due.values(), *drains)

    def _lead(self) -> None:
        try:
            self._leadership.turn()
        except BackendUnreachable as error:
            self._note_trouble(error)
            self._is_away = True
            return
        if self._is_away:
            self._is_away = False
            self._said_at.clear()
            self._warn("the server answers again")
        if self._leadership.leader != self._leader:
            self._leader = self._leadership.leader
            leads = self._leadership.has_seconds(0)
            self._say("leading" if leads else f"standing by; {printable(self._leader)} leads")
        if self._leadership.reign != self._reign:
            # What they go by may have been seen to, ended and begun anew by another.
            self._reign = self._leadership.reign
            self._drains.clear()

    # --- one node

    def _look(self, name: str) -> None:
        """Look at a node, and do what follows."""
        try:
            succeeded = self._look_and_do(name)
        except BackendUnreachable as error:
            self._note_trouble(error)
            succeeded = False
        if succeeded:
            self._failures.pop(name, None)
            self._retry_at.pop(name, None)
            return
        failures = self._failures[name] = self._failures.get(name, 0) + 1
        self._due[name] = self._clock.elapsed() + _BACKOFF.pause(failures)
        if name in self._retry_at:
            self._retry_at[name] = self._due[name]

    def _look_and_do(self, name: str) -> bool:
        """The same; returns whether all of it was done. Sets when to look again."""
        said = self._cluster.node(name)
        if said is None:
            for known in (self._due, self._over, self._drains):
                known.pop(name, None)
            return True
        lease = self._cluster.lease(self._settings.lease_of(name))
        seen = self._seen(name, said, lease)
        step = next_step(self._settings.us, seen)
        self._set_drain(name, seen, step)
        self._set_due(name, step, seen.now)
        return self._carry_out(name, said, lease, step)

    def _seen(self, name: str, said: Json, lease_said: Json | None) -> Seen:
        lease = None
        if lease_said is not None:
            now = self._clock.elapsed()
            lease = self._observed.observe(name, parse_lease(lease_said), now)
        running = self._drains.get(name)
        drain = None if running is None else running.drain.drain
        wanted = wanted_of(said)
        if wanted is not None and self._settings.has_no_lease(name):
            wanted = wanted._replace(seconds=None)  # the status says that no window can begin
        return Seen(parse_node(said), wanted, lease, drain, self._clock.wall())

    def _set_drain(self, name: str, seen: Seen, step: Step) -> None:
        """Start, continue or stop the drain of a node."""
        acquired_at = None if seen.lease is None else seen.lease.acquired_at
        if not step.drains or acquired_at is None or step.over_at is None:
            self._drains.pop(name, None)
            return
        running = self._drains.get(name)
        if running is None:
            drain = NodeDrain(self._cluster, name, self._settings.drain, self._say)
        else:
            drain = running.drain
        until = self._clock.elapsed() + step.over_at - seen.now
        self._drains[name] = _Running(drain, acquired_at, until)

    def _set_due(self, name: str, step: Step, wall: float) -> None:
        now = self._clock.elapsed()
        self._due.pop(name, None)
        self._over.pop(name, None)
        if step.look_at is not None:
            self._due[name] = now + min(max(0.0, step.look_at - wall), _LONGEST_REST_SECONDS)
            if step.over_at is not None:
                self._over[name] = now + step.over_at - wall

    def _carry_out(self, name: str, said: Json, lease: Json | None, step: Step) -> bool:
        """Do the writes of a step, up to the first that fails."""
        for write in step.writes:
            if not self._leadership.has_seconds(REQUEST_SECONDS):
                return False
            if isinstance(write, LeaseWrite):
                lease_name = self._settings.lease_of(name)
                self._retry_at[name] = self._clock.elapsed()
                lease = self._cluster.write_lease(lease_name, lease, write.lease, node=name)
                if lease is None:
                    return False
            elif not self._cluster.write_node(said, write):
                return False
            else:
                self._say(f"{name}: {_line_of(write, step)}")
                if write.status == "invalid" and (why := self._settings.has_no_lease(name)):
                    self._warn(f"{name}: {why}")
        return True

    # --- drains

    def _drain(self, now: float) -> bool:
        """Do one request of the drain that is due first; return whether there was one.

        A drain that was begun goes on: its list of pods is soon out of date.
        """
        due = [
            (not each.drain.is_under_way, each.drain.due_at, name)
            for name, each in self._drains.items()
            if each.drain.due_at <= now < each.until
        ]
        if not due:
            return False
        *_, name = min(due)
        drain, acquired_at, _ = self._drains[name]
        try:
            if drain.turn(now, self._clock.wall() - acquired_at):
                self._due[name] = now
        except BackendUnreachable as error:
            self._note_trouble(error)
        return True

    def _note_trouble(self, error: BackendUnreachable) -> None:
        """Say what is wrong; the same only once in a while, and nothing more of a server away."""
        now, text = self._clock.elapsed(), str(error)
        recent = {what: at for what, at in self._said_at.items() if now - at < _SAY_AGAIN_SECONDS}
        if text not in recent and not (self._is_away and recent):
            recent[text] = now
            self._warn(f"{text}; trying again")
        self._said_at = recent


class _Running(NamedTuple):
    """The drain of a node.

    Args:
        drain: It.
        acquired_at: Since when its lease has been ours, in seconds since the epoch.
        until: When its time is over, on the elapsed clock.
    """

    drain: NodeDrain
    acquired_at: float
    until: float


def _line_of(write: NodeWrite, step: Step) -> str:
    """Return the line for a new status, with the reason if the status doesn't give it."""
    status = write.status or "no status"
    return status if step.drains else f"{status} ({step.why})"
