"""The embedded pool: tables in the state directory's database, no server, no polling.

A waiter sleeps on its own named pipe and on its predecessor's process. Whoever changes what it
waits for opens that pipe inside the transaction (`State.wake`). Whether a waiter is dead is asked
of its process, under the lock: a pipe without a reader proves nothing either way.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from typing import Callable, NamedTuple

from leasectl.engines import refusals
from leasectl.engines.contract import LostListener, TicketGone
from leasectl.model import Claimant, Lease, Process, Ticket, parse_process
from leasectl.state.database import errors_of, unlink
from leasectl.state.directory import State
from leasectl.state.handles import encode_labels
from leasectl.state.pipes import tidy
from leasectl.system.clock import Clock
from leasectl.system.named_pipe import NamedPipe
from leasectl.system.process import is_dead, this_process
from leasectl.system.process_watch import ProcessWatch

_MOST_IDLE = 32


class LocalEngine:
    """The pools of one state directory.

    Args:
        state: Where they are kept.
        clock: Where times come from.
        lost: Told, inside the transaction, of claims that expired or were taken by force.
    """

    undoes = True

    def __init__(self, state: State, *, lost: LostListener, clock: Clock) -> None:
        self._state = state
        self._lost = lost
        self._clock = clock
        self._idle: list[PipeWaiter] = []
        self._waits_before = 0
        state.on_close.append(self._remove_idle)

    def atomic(self) -> AbstractContextManager[sqlite3.Connection]:
        return self._state.transaction()

    def limited(self, until: float | None) -> AbstractContextManager[object]:
        return nullcontext()

    def has_queue(self, pool_type: str) -> bool:
        return bool(self._state.query("SELECT 1 FROM ticket WHERE type = ? LIMIT 1", pool_type))

    def waiter(self, claimant: Claimant) -> PipeWaiter:
        return self._idle.pop() if self._idle else PipeWaiter(self._state, self._put_aside)

    def _put_aside(self, pipe: PipeWaiter) -> bool:
        """Keep a waiter's pipe for the next one, in a process that waits more than once.

        A named pipe takes longer to make than all the rest of an acquisition. Most processes
        never need a second, and end without tidying up. A server may have thousands at once.
        """
        kept = self._waits_before > 0 and len(self._idle) < _MOST_IDLE
        self._waits_before += 1
        if kept:
            self._idle.append(pipe)
        return kept

    def _remove_idle(self) -> None:
        while self._idle:
            self._idle.pop().remove()

    def enqueue(self, claimant: Claimant, waiter: PipeWaiter) -> Ticket:
        request = claimant.request
        number = self._possible(claimant).last_ticket + 1
        db = self._state.db
        db.execute("UPDATE pool SET last_ticket = ? WHERE type = ?", (number, request.type))
        db.execute(
            "INSERT INTO ticket VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
            (
                request.type,
                number,
                claimant.claim_key,
                claimant.holder_identity,
                request.count,
                self._clock.wall(),
                claimant.process.encode() if claimant.process else None,
                waiter.name,
            ),
        )
        if number % _TICKETS_PER_TIDYING == 0:
            tidy(self._state)
        return Ticket(number, claimant)

    def predecessor(self, ticket: Ticket) -> Ticket | None:
        request = ticket.claimant.request
        while True:
            rows = self._state.query(
                "SELECT number, owner, holder_identity, process FROM ticket "
                "WHERE type = ? AND number <= ? ORDER BY number DESC LIMIT 2",
                request.type,
                ticket.number,
            )
            if not rows or rows[0][:2] != (ticket.number, ticket.claimant.claim_key):
                raise TicketGone
            if len(rows) == 1:
                return None
            number, claim_key, identity, process = rows[1]
            claimant = Claimant(
                claim_key, identity, request, None if process is None else parse_process(process)
            )
            if not is_dead(claimant.process):
                return Ticket(number, claimant)
            self.remove_dead_ticket(request.type, number)

    def claim(self, ticket: Ticket) -> tuple[Lease, ...] | None:
        claimant = ticket.claimant
        request = claimant.request
        grant = self._possible(claimant).last_grant + 1
        self.expire(request.type)
        rows = self._free_resources(claimant)
        if len(rows) < request.count:
            return None
        db = self._state.db
        (fence,) = db.execute("SELECT fence FROM meta").fetchone()
        db.execute("UPDATE meta SET fence = ?", (fence + len(rows),))
        db.execute("UPDATE pool SET last_grant = ? WHERE type = ?", (grant, request.type))
        now = self._clock.wall()
        leases = tuple(
            Lease(
                name=name,
                fence=fence + position,
                ticket=ticket.number,
                grant=grant,
                holder_identity=claimant.holder_identity,
                acquire_time=now,
                renew_time=now,
                lease_duration_seconds=request.ttl_seconds,
                lease_transitions=transitions
                + (last_holder is not None and last_holder != claimant.holder_identity),
                labels=request.labels,
            )
            for position, (name, transitions, last_holder) in enumerate(rows, start=1)
        )
        for lease in leases:
            self._write_claim(claimant.claim_key, lease)
        self.take_ticket_away(request.type, ticket.number)
        return leases

    def next_expiry(self, pool_type: str) -> float | None:
        (row,) = self._state.query(
            "SELECT MIN(expires_at) FROM resource WHERE type = ? AND expires_at IS NOT NULL",
            pool_type,
        )
        return None if row[0] is None else float(row[0])

    def dequeue(self, ticket: Ticket) -> None:
        self.take_ticket_away(
            ticket.claimant.request.type, ticket.number, ticket.claimant.claim_key
        )

    def withdraw(self, claim_key: str) -> None:
        for pool_type, number, pipe in self._state.query(
            "SELECT type, number, pipe FROM ticket WHERE owner = ?", claim_key
        ):
            self.take_ticket_away(pool_type, number)
            self._wake([(pipe,)])

    def free(self, claim_key: str, names: Sequence[str] | None = None) -> tuple[str, ...]:
        freed = self._claims(claim_key, names)
        self._state.db.executemany(_FREE, [(name,) for name, _ in freed])
        for pool_type in {kind for _, kind in freed}:
            self.wake_head(pool_type)
        return tuple(name for name, _ in freed)

    def renew(self, claim_key: str) -> tuple[str, ...]:
        self._claims(claim_key, None)
        self._state.db.execute(
            "UPDATE resource SET renew_time = ?, expires_at = ? + lease_duration_seconds "
            "WHERE owner = ?",
            (self._clock.wall(), self._clock.elapsed(), claim_key),
        )
        rows = self._state.query(
            "SELECT name FROM resource WHERE owner = ? ORDER BY fence", claim_key
        )
        return tuple(name for (name,) in rows)

    def capacity(self, pool_type: str) -> int:
        """How many resources a pool has; NotFound when there is none of that type."""
        return self._pool(pool_type).capacity

    def _pool(self, pool_type: str) -> _PoolRow:
        rows = self._state.query(
            "SELECT capacity, last_ticket, last_grant FROM pool WHERE type = ?", pool_type
        )
        if not rows:
            known = [name for (name,) in self._state.query("SELECT type FROM pool")]
            raise refusals.no_pool(pool_type, known)
        return _PoolRow(*rows[0])

    def _possible(self, claimant: Claimant) -> _PoolRow:
        """The pool that could satisfy a request; raises for what none ever could."""
        request = claimant.request
        pool = self._pool(request.type)
        if request.count > pool.capacity:
            raise refusals.too_few(request.type, pool.capacity, request.count)
        if request.name is not None and not self._state.query(
            "SELECT 1 FROM resource WHERE name = ? AND type = ?", request.name, request.type
        ):
            raise refusals.no_resource(request.type, request.name)
        return pool

    def _free_resources(self, claimant: Claimant) -> list[tuple[str, int, str | None]]:
        request = claimant.request
        select = "SELECT name, lease_transitions, holder_identity FROM resource WHERE "
        if request.name is not None:
            return self._state.query(
                select + "name = ? AND type = ? AND owner IS NULL", request.name, request.type
            )
        # The fence of the last grant is also the order in which they were last acquired.
        return self._state.query(
            select + "type = ? AND owner IS NULL ORDER BY fence, name LIMIT ?",
            request.type,
            request.count,
        )

    def _write_claim(self, claim_key: str, lease: Lease) -> None:
        duration = lease.lease_duration_seconds
        self._state.db.execute(
            "UPDATE resource SET owner = ?, holder_identity = ?, fence = ?, "
            "lease_transitions = ?, ticket = ?, grant_number = ?, acquire_time = ?, "
            "renew_time = ?, lease_duration_seconds = ?, expires_at = ?, labels = ? "
            "WHERE name = ?",
            (
                claim_key,
                lease.holder_identity,
                lease.fence,
                lease.lease_transitions,
                lease.ticket,
                lease.grant,
                lease.acquire_time,
                lease.renew_time,
                duration,
                None if duration is None else self._clock.elapsed() + duration,
                encode_labels(lease.labels),
                lease.name,
            ),
        )

    def expire(self, pool_type: str) -> None:
        """Free the claims of a pool whose time is over; inside a transaction."""
        self._expire_rows(
            self._state.query(
                "SELECT name, owner FROM resource WHERE type = ? AND expires_at <= ?",
                pool_type,
                self._clock.elapsed(),
            )
        )

    def _claims(self, claim_key: str, names: Sequence[str] | None) -> list[tuple[str, str]]:
        """The claims (name, type) that are an owner's still, after expiry; of some names or all."""
        select = "SELECT name, type, expires_at FROM resource WHERE owner = ?"
        if names is None:
            rows = self._state.query(select, claim_key)
        else:
            rows = [
                r for n in names for r in self._state.query(select + " AND name = ?", claim_key, n)
            ]
        now = self._clock.elapsed()
        over = [
            name for name, _, expires_at in rows if expires_at is not None and expires_at <= now
        ]
        self._expire_rows([(name, claim_key) for name in over])
        return [(name, pool_type) for name, pool_type, _ in rows if name not in over]

    def _expire_rows(self, rows: Sequence[tuple[str, str]]) -> None:
        for name, claim_key in rows:
            (pool_type,) = self._state.db.execute(
                "SELECT type FROM resource WHERE name = ?", (name,)
            ).fetchone()
            self._state.db.execute(_FREE, (name,))
            self.wake_head(pool_type)
            self._lost(claim_key, [name])

    def take_ticket_away(self, pool_type: str, number: int, claim_key: str | None = None) -> None:
        """Delete a ticket and wake the one behind it; inside a transaction."""
        deleted = self._state.db.execute(
            "DELETE FROM ticket WHERE type = ? AND number = ? AND owner = coalesce(?, owner)",
            (pool_type, number, claim_key),
        )
        if deleted.rowcount:
            behind = self._state.query(
                "SELECT pipe FROM ticket WHERE type = ? AND number > ? ORDER BY number LIMIT 1",
                pool_type,
                number,
            )
            self._wake(behind)

    def remove_dead_ticket(self, pool_type: str, number: int) -> None:
        """Take away what a dead waiter left: its ticket, its pipe; inside a transaction."""
        ((claim_key, pipe),) = self._state.query(
            "SELECT owner, pipe FROM ticket WHERE type = ? AND number = ?", pool_type, number
        )
        self.take_ticket_away(pool_type, number)
        unlink(self._state.waiter_pipe(pipe))
        self._lost(claim_key, ())

    def wake_head(self, pool_type: str) -> None:
        """Wake the waiter at the head of a pool's queue; inside a transaction."""
        self._wake(
            self._state.query(
                "SELECT pipe FROM ticket WHERE type = ? ORDER BY number LIMIT 1", pool_type
            )
        )

    def wake_all(self, pool_type: str) -> None:
        """Wake all waiters of a pool; inside a transaction."""
        self._wake(self._state.query("SELECT pipe FROM ticket WHERE type = ?", pool_type))

    def _wake(self, pipes: Sequence[tuple[str]]) -> None:
        for (name,) in pipes:
            self._state.wake(self._state.waiter_pipe(name))


# Often enough that what the killed leave stays bounded, seldom enough to cost nothing.
_TICKETS_PER_TIDYING = 64
_FREE = "UPDATE resource SET owner = NULL, expires_at = NULL WHERE name = ?"


class _PoolRow(NamedTuple):
    """A pool, and the last numbers that it has given."""

    capacity: int
    last_ticket: int
    last_grant: int


class PipeWaiter:
    """A waiter on the embedded pool.

    Args:
        state: The state directory.
        put_aside: Offered the waiter when it is closed; returns whether it is kept for another.

    Attributes:
        name: Of its named pipe.
    """

    def __init__(self, state: State, put_aside: Callable[[PipeWaiter], bool]) -> None:
        self.name = f"waiter-{os.urandom(8).hex()}"
        self._path = state.waiter_pipe(self.name)
        self._pipe: NamedPipe | None = None
        self._watch = ProcessWatch()
        self._put_aside = put_aside
        self._is_open = False

    @property
    def has_place(self) -> bool:
        return True

    def open(self) -> None:
        if self._is_open:
            return
        with errors_of(self._path):
            if self._pipe is None:
                self._pipe = NamedPipe(self._path)
            else:
                self._pipe.renew()  # of what may have woken it too late
        self._is_open = True

    def listen(
        self, *, predecessor: Ticket | None, processes: Sequence[Process]
    ) -> tuple[frozenset[int], bool]:
        before_me = predecessor.claimant.process if predecessor else None
        others = [*processes, before_me] if before_me else processes
        # Not ourselves: in a process with thousands of waiters that would be a pidfd for each.
        self._watch.update([each for each in others if each != this_process()])
        assert self._pipe is not None, "open() comes first"
        return frozenset((self._pipe.fd, *self._watch.fds())), self._watch.any_ended

    def heard(self, woken: Set[int]) -> bool:
        if self._pipe is not None and self._pipe.fd in woken:
            self._pipe.renew()
        ended = not woken.isdisjoint(self._watch.fds())
        self._watch.heard(woken)
        return ended

    def close(self) -> None:
        self._watch.close()
        self._is_open = False
        if self._pipe is not None and not self._put_aside(self):
            self.remove()

    def remove(self) -> None:
        """Remove the pipe."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
