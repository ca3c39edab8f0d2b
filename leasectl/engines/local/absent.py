"""Tickets and claims that end without their owner."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from leasectl.engines.rules.events import WAITER_DIED
from leasectl.model import Process, parse_process
from leasectl.state.database import unlink
from leasectl.state.directory import State
from leasectl.state.pipes import tidy
from leasectl.state.reads import snapshot
from leasectl.state.rows import encode_process, insert, parse_optional_process
from leasectl.system.process import DeadProcesses, is_dead

if TYPE_CHECKING:
    from leasectl.engines.local.queues import LocalQueues, Waiting
    from leasectl.engines.local.store import LocalStore


def suspend(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Let others pass a ticket, and wake its waiter, which takes that back if it still can."""
    queues.suspend(pool_type, ticket)
    queues.wake([ticket.pipe])


# The nearest first.
_BEFORE = (
    "SELECT number, process FROM ticket LEFT JOIN suspended "
    "USING (type, number) WHERE type = ? AND number < ? AND suspended.number IS NULL "
    "ORDER BY number DESC"
)
_PASS = (
    "INSERT OR REPLACE INTO suspended (type, number) "
    "SELECT type, number FROM ticket WHERE type = ? AND number >= ? AND number < ?"
)
_PASSED = (
    "SELECT type, number, process FROM suspended JOIN ticket USING (type, number) "
    "ORDER BY type, number DESC"
)
# Few, since all other processes wait for the lock meanwhile.
REMOVED_AT_ONCE = 128
_REMOVED_SINGLY = 16
_WAITS_IN_ONE = "SELECT 1 FROM handle WHERE id = ? AND types IS NULL"
_IS_THERE = "SELECT 1 FROM ticket WHERE type = ? AND number = ? AND pipe = ?"


def remove_dead(queues: LocalQueues, pool_type: str, ticket: Waiting) -> None:
    """Remove what a dead waiter left: its ticket, its tickets in other queues, its pipes.

    Args:
        queues: Of all pools.
        pool_type: Of the queue in which the ticket is.
        ticket: The ticket.
    """
    if queues.state.query(_WAITS_IN_ONE, ticket.claim_key):
        found = [(pool_type, ticket.number, ticket.pipe)]
    else:
        # All of them: their record goes too, and without it the others would never be found.
        # There is no index: of thousands who are dead each would have all the others looked at.
        found = queues.tickets_of(ticket.claim_key)
    for its_type, its_number, pipe in found:
        queues.take_away(its_type, its_number, why=WAITER_DIED)
        unlink(queues.state.waiter_pipe(pipe))
    if found:
        queues.lost(ticket.claim_key, ())


def get_past(queues: LocalQueues, pool_type: str, dead: Waiting, number: int, *, nth: int) -> None:
    """Keep a dead waiter from holding others back: remove it, or let others pass it.

    After the first few, all dead waiters before a ticket are passed at once, up to the first living
    one. To remove what each has left takes as long as a grant, and there may be thousands:
    `remove_passed` does that, in parts.

    Args:
        queues: Of all pools.
        pool_type: Of the queue.
        dead: Its ticket.
        number: Of the ticket that is behind it.
        nth: How many of them were found in this transaction, this one included.
    """
    if nth == _REMOVED_SINGLY and not dead.is_ranked:
        _pass_dead(queues, pool_type, number)
    else:
        remove_dead(queues, pool_type, dead)


def _pass_dead(queues: LocalQueues, pool_type: str, number: int) -> None:
    state, are_dead, first_dead = queues.state, DeadProcesses(), None
    for each, process in state.query(_BEFORE, pool_type, number):
        if process is None or process not in are_dead:
            break
        first_dead = each
    if first_dead is None:
        return
    (first,) = queues.up_to(pool_type, first_dead)[:1]
    state.db.execute(_PASS, (pool_type, first_dead, number))
    # Those who watched one of them, or were to be woken by one.
    queues.call(queues.kept_back_by(pool_type, first))


def dead_passed(state: State) -> list[tuple[str, int]]:
    """Return some tickets of dead waiters that others pass, as types and numbers.

    As many as can be removed at once; also outside a transaction.
    """
    are_dead, dead = DeadProcesses(), []
    for pool_type, number, process in state.query(_PASSED):
        if process is not None and process in are_dead:
            dead.append((pool_type, number))
            if len(dead) == REMOVED_AT_ONCE:
                break
    return dead


def remove_passed(queues: LocalQueues, dead: Iterable[tuple[str, int]]) -> None:
    """Remove the waiters that `dead_passed` has found."""
    for pool_type, number in dead:
        for each in queues.up_to(pool_type, number)[:1]:
            # Else it was removed with another ticket of its claim key.
            if each.number == number and each.suspended and each.is_dead:
                remove_dead(queues, pool_type, each)


def tidy_up(queues: LocalQueues) -> None:
    """Remove some of what killed waiters have left."""
    remove_passed(queues, dead_passed(queues.state))
    tidy(queues.state)


def dead_ones(queues: LocalQueues, pool_type: str) -> list[Waiting]:
    """Return the tickets of dead waiters in a queue; also outside a transaction."""
    with closing(queues.in_order(pool_type)) as tickets:
        waiting = list(tickets)  # before the look at the processes
    are_dead = DeadProcesses()
    return [each for each in waiting if each.process is not None and each.process in are_dead]


def remove_dead_ones(queues: LocalQueues, pool_type: str, dead: Iterable[Waiting]) -> None:
    """Remove dead waiters, except those that have gone since they were found."""
    for each in dead:
        if queues.state.query(_IS_THERE, pool_type, each.number, each.pipe):
            remove_dead(queues, pool_type, each)


class LocalEarlyEnds:
    """The claims of one state directory that were ended by force.

    Args:
        store: The pools of the claims.
    """

    def __init__(self, store: LocalStore) -> None:
        self._state = store.state
        self._store = store

    def end(
        self,
        claim_key: str,
        names: Sequence[str],
        *,
        guard: Process | None,
        reason: str,
        at_once: bool,
    ) -> tuple[str, ...]:
        """End valid claims; return which. See `PoolAdmin.end_early`."""
        claims = self._store.claims(claim_key, names)
        self._store.note_end("lost", claims, by="force", reason=reason)
        for row in claims:
            if not at_once and (row["expires_at"] is not None or guard is not None):
                self._keep(claim_key, row["name"], row["type"], guard=guard, reason=reason)
            else:
                self._store.free(claim_key, [row["name"]], by="force")
        return tuple(row["name"] for row in claims)

    def free_at_once(
        self, claim_key: str, names: Sequence[str], *, expiring: bool
    ) -> tuple[str, ...]:
        """Free claims that were ended before, even if they are still used; return their names.

        Args:
            claim_key: Of the claims.
            names: Of the resources.
            expiring: Also those with a ttl.
        """
        expires = self._of(claim_key)
        freed = tuple(n for n in names if n in expires and (expiring or not expires[n]))
        self._free(claim_key, freed)
        return freed

    def give_up(self, claim_key: str) -> None:
        """Free what a holder has lost by force: it has done with it."""
        self._free(claim_key, list(self._of(claim_key)))

    def guards(self, pool_type: str | None = None) -> list[Process]:
        """Return the processes whose end frees something that was ended, in one pool or in all."""
        return [_last_of(row) for row in self._guarded(pool_type)]

    def free_what_the_dead_had(self, pool_type: str | None = None) -> bool:
        """Free ended claims whose guards have ended since; return whether there was any."""
        dead = [row for row in self._guarded(pool_type) if is_dead(_last_of(row))]
        for row in dead:
            self._free(row["claim_key"], [row["name"]])
        return bool(dead)

    def _guarded(self, pool_type: str | None) -> list[sqlite3.Row]:
        return self._state.query(
            "SELECT ended.name, claim_key, ended.guard, runner FROM ended "
            "LEFT JOIN handle ON handle.id = claim_key "
            "WHERE ended.guard IS NOT NULL AND ended.type = coalesce(?, ended.type)",
            pool_type,
        )

    def _keep(
        self, claim_key: str, name: str, pool_type: str, *, guard: Process | None, reason: str
    ) -> None:
        self._state.db.execute("UPDATE resource SET is_ended = 1 WHERE name = ?", (name,))
        row = {
            "name": name,
            "type": pool_type,
            "claim_key": claim_key,
            "guard": encode_process(guard),
            "reason": reason,
        }
        insert(self._state.db, "ended", row, replace=True)
        self._store.queues.wake_for(pool_type, [name])  # so that it waits for the right end

    def _of(self, claim_key: str) -> dict[str, bool]:
        """Return the ended claims of a claim key, and whether each expires."""
        rows = self._state.query(
            "SELECT ended.name, expires_at FROM ended JOIN resource ON resource.name = ended.name "
            "WHERE claim_key = ? AND owner = claim_key AND is_ended",
            claim_key,
        )
        return {row["name"]: row["expires_at"] is not None for row in rows}

    def _free(self, claim_key: str, names: Sequence[str]) -> None:
        self._store.free(claim_key, names, by="force", is_ended=True)
        self._state.db.executemany("DELETE FROM ended WHERE name = ?", [(name,) for name in names])


def _last_of(row: sqlite3.Row) -> Process:
    """The process whose end frees what was ended: `run`, which ends the tree, or else the guard."""
    runner = parse_optional_process(row["runner"])
    return parse_process(row["guard"]) if runner is None or is_dead(runner) else runner


def remove_what_is_over(store: LocalStore, pool_types: Iterable[str]) -> None:
    """Free what has expired and remove dead waiters, each pool in a transaction.

    Args:
        store: The pools.
        pool_types: Which of them.

    Raises:
        StateUnwritable: The disk is full or read-only.
    """
    if store.state.names_files.are_changing:
        with store.state.transaction():  # its start repairs what killed writers left
            pass
    early_ends = store.early_ends
    for each in pool_types:
        with snapshot(store.state):
            dead = dead_ones(store.queues, each)
            expiry = store.next_expiry(each)
            is_over = expiry is not None and expiry <= store.clock.elapsed()
            is_over = is_over or any(map(is_dead, early_ends.guards(each)))
            if not is_over and store.is_any_special():
                is_over = store.memberships().is_any_over(each)
        if is_over:
            with store.state.transaction():
                store.expire(each)
                early_ends.free_what_the_dead_had(each)
        while dead:  # in parts, or living processes would wait for all of it
            some, dead = dead[-REMOVED_AT_ONCE:], dead[:-REMOVED_AT_ONCE]
            with store.state.transaction():
                remove_dead_ones(store.queues, each, reversed(some))
    tidy(store.state)
