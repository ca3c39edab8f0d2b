"""Decide in which pool a name is: pure functions for every engine.

A store keeps one fact for each name, reads it, has one of these say what is to become of it, and
writes that in one step, guarded by what it has read. Of two who want the same name in different
pools the second reads what the first has written, and is told which pool that is.

Who says where a name belongs, the stronger first: an expectation of that very name, one of a
pattern, of patterns the longest; somebody who adds it to a pool, or who joins; and the pool that
takes whatever nobody else claims (`Pools.default`), from which anybody of those takes it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from leasectl.engines import refusals
from leasectl.model import Process
from leasectl.text.naming import is_reserved

Properties = tuple[tuple[str, str], ...]


class Lifetime(NamedTuple):
    """How long a name stays in its pool, if not for good.

    Args:
        process: Until this ends; None for one that a ttl tells.
        ttl_seconds: For so long after the last time that it joined; None likewise.
    """

    process: Process | None = None
    ttl_seconds: float | None = None


class Cordon(NamedTuple):
    """Why a name takes no new holder.

    Args:
        by: The identity of whoever cordoned it.
        at: When that was, wall clock, seconds since the epoch.
        reason: As it was given; may be empty.
    """

    by: str
    at: float
    reason: str = ""


def read_cordon(value: Any) -> Cordon | None:
    """Read a cordon as stores and JSON keep it: the values of its fields in order, or null.

    Raises:
        ValueError, TypeError: It is something else.
    """
    if value is None:
        return None
    by, at, reason = value
    return Cordon(str(by), float(at), str(reason))


class Member(NamedTuple):
    """What there is to know of one name.

    Args:
        name: The name.
        pool: The type of the pool that it is in; None for none.
        expected: Where it belongs, as said of this very name; None where that isn't said.
        by_default: It is in its pool only because nobody has claimed it.
        holder: The identity of who holds it; None when nobody does.
        cordoned: It takes no new holder.
        moves_to: The pool that its release takes it to; None for where it is.
        leaves: Its release takes it out of its pool.
        lifetime: How long it stays; None for good.
        joined: How often it has joined its pool; its lifetime counts from the last time on.
        properties: What it is, sorted by their keys.
        cordon: Who cordoned it, when and why; None where that isn't known.
    """

    name: str
    pool: str | None = None
    expected: str | None = None
    by_default: bool = False
    holder: str | None = None
    cordoned: bool = False
    moves_to: str | None = None
    leaves: bool = False
    lifetime: Lifetime | None = None
    joined: int = 0
    properties: Properties = ()
    cordon: Cordon | None = None

    @property
    def is_known(self) -> bool:
        """Tell whether there is anything to say of it."""
        return self.pool is not None or self.expected is not None

    @property
    def takes_holders(self) -> bool:
        """Tell whether somebody may claim it, as far as its membership goes."""
        return self.pool is not None and not (self.cordoned or self.moves_to or self.leaves)


class Pools(NamedTuple):
    """What there is beside the names.

    Args:
        types: Of all pools.
        default: The type of the pool that takes whatever nobody else claims; None for none.
        grace_seconds: For how long nobody gets what came there by default: somebody may claim it.
        patterns: The types that names belong to which a pattern matches.
    """

    types: frozenset[str]
    default: str | None = None
    grace_seconds: float = 0.0
    patterns: Mapping[str, str] = {}


def belongs_to(member: Member, pools: Pools) -> str | None:
    """The type of the pool that a name is to be in; None where anybody may say."""
    if member.expected is not None:
        return member.expected
    longest = matching_pattern(member.name, pools)
    return None if longest is None else pools.patterns[longest]


def matching_pattern(name: str, pools: Pools) -> str | None:
    """The pattern that says where a name belongs: the longest that matches; None for none.

    Names that work is done under are nobody's to say: `once` makes and takes them away itself.
    """
    if is_reserved(name) or not pools.patterns:
        return None
    from fnmatch import fnmatchcase  # which few need

    matching = [each for each in pools.patterns if fnmatchcase(name, each)]
    return max(matching, key=lambda each: (len(each), each), default=None)


def add(member: Member, to: str, pools: Pools) -> Member:
    """What becomes of a name that somebody adds to a pool: it is there from now on.

    One that was to leave with its release stays, and is free with that.

    Raises:
        NotFound: There is no such pool.
        NotAllowed: It belongs to another pool, or is in one.
    """
    _check_pool(to, pools)
    _check_belongs(member, to, pools)
    if member.pool == to:
        return member._replace(leaves=False)
    if member.pool is not None and (not member.by_default or member.holder is not None):
        raise refusals.in_another_pool(member.name, member.pool, to, is_held=bool(member.holder))
    by_default = to == pools.default and belongs_to(member, pools) is None
    return _put(member, to)._replace(by_default=by_default)


def join(member: Member, to: str, pools: Pools, *, lifetime: Lifetime | None) -> Member:
    """What becomes of a name that comes by itself: as `add`, as long as it lives, and no default.

    Who is there already stays for as long as it now says, also if it was to leave.

    Raises:
        NotFound, NotAllowed: As `add`.
    """
    joined = add(member, to, pools)
    times = joined.joined + 1
    return joined._replace(lifetime=lifetime, joined=times, by_default=False, leaves=False)


def leave(member: Member, pool: str) -> Member:
    """What becomes of a name that goes: at once if it is free, else with its release.

    Raises:
        NotFound: It isn't in that pool.
    """
    _check_in(member, pool)
    if member.holder is not None:
        return member._replace(leaves=True, moves_to=None, lifetime=None)
    return _out(member)


def remove(member: Member, pool: str, *, force: bool) -> Member:
    """What becomes of a name that somebody takes out; whoever holds it loses it.

    Raises:
        NotFound: It isn't in that pool.
        NotAllowed: It is held, and isn't to go by force.
    """
    _check_in(member, pool)
    if member.holder is not None and not force:
        raise refusals.resource_held(member.name, member.holder)
    return _out(member)


def move(member: Member, to: str, pools: Pools, *, when_free: bool) -> Member:
    """What becomes of a name that is to be in another pool.

    Raises:
        NotFound: There is no such pool, or the name is in none.
        NotAllowed: It belongs to another pool, or is held, and isn't to wait for its release.
    """
    _check_pool(to, pools)
    if member.pool is None:
        raise refusals.in_no_pool(member.name, to)
    _check_belongs(member, to, pools)
    if member.pool == to:
        return member._replace(moves_to=None, by_default=False)
    if member.holder is None:
        return _put(member, to)
    if not when_free:
        raise refusals.held_and_to_move(member.name, member.holder)
    return member._replace(moves_to=to, leaves=False)  # who was to leave is wanted there


def expect(member: Member, to: str, pools: Pools) -> Member:
    """Return a name that is expected in a pool from now on.

    A name that came to the default pool by default moves to its own: at once if it is free, else
    with its release. That replaces a move that only a pattern has scheduled.

    Raises:
        NotFound: The pool doesn't exist.
        NotAllowed: The name is in another pool, is to move to one, or is expected in one.
    """
    _check_pool(to, pools)
    if member.expected is not None and member.expected != to:
        raise refusals.belongs_elsewhere(member.name, member.expected)
    expected = member._replace(expected=to)
    if member.pool is None or member.moves_to == to:
        return expected
    is_by_pattern = member.by_default and member.moves_to == belongs_to(member, pools)
    if member.moves_to is not None and not is_by_pattern:
        raise refusals.to_move_elsewhere(member.name, member.pool, member.moves_to)
    if member.pool == to:
        return expected._replace(by_default=False, moves_to=None)
    if not member.by_default:
        raise refusals.in_another_pool(member.name, member.pool, to, is_held=bool(member.holder))
    return _go(expected, to)


def _go(member: Member, to: str) -> Member:
    """Put an unclaimed name into the pool where it belongs, at once or with its release."""
    if member.holder is None:
        return _put(member, to)
    return member if member.leaves else member._replace(moves_to=to)


def claimed_by_pattern(member: Member, pools: Pools) -> Member:
    """What becomes of a name as patterns are new: what nobody had claimed goes where it belongs.

    Where somebody holds it, that is done by its release.
    """
    to = belongs_to(member, pools)
    if not member.by_default or to not in pools.types:
        return member
    if to == member.pool:
        return member._replace(by_default=False)
    return _go(member, to)


def expect_nothing(member: Member) -> Member:
    """What becomes of a name of which nobody says any more where it belongs: it stays."""
    return member._replace(expected=None)


def cordon(member: Member, *, is_cordoned: bool, why: Cordon | None = None) -> Member:
    """Return a name that takes no new holder from now on, or takes one again.

    A cordon with a reason replaces an earlier one; one without a reason keeps it.

    Args:
        member: The name.
        is_cordoned: Whether it is to be cordoned.
        why: Who cordons it, and the reason.

    Raises:
        NotFound: It is in no pool.
    """
    if member.pool is None:
        raise refusals.in_no_pool(member.name)
    if not is_cordoned:
        why = None
    elif member.cordoned and not (why and why.reason):
        why = member.cordon
    return member._replace(cordoned=is_cordoned, cordon=why)


def after_release(member: Member) -> Member:
    """What becomes of a name whose holder has gone."""
    free = member._replace(holder=None)
    if free.leaves:
        return _out(free)
    return free if free.moves_to is None else _put(free, free.moves_to)


def after_lifetime(member: Member) -> Member:
    """What becomes of a name whose time in its pool is over."""
    return member if member.pool is None else leave(member, member.pool)


def check_unheld(members: Iterable[Member]) -> None:
    """Refuse to have somebody hold names at once of which somebody holds one.

    Raises:
        NotAllowed: Somebody does.
    """
    for each in members:
        if each.holder is not None:
            raise refusals.held_by_another(each.name, each.holder)


def stays_after_all(before: Member, after: Member) -> bool:
    """Tell whether a name stays in its pool that was to move to another with its release."""
    is_off = before.moves_to is not None and after.moves_to is None
    return is_off and after.pool == before.pool and not after.leaves


def leaves_no_more(before: Member, after: Member) -> bool:
    """Tell whether a name that was to leave stays, as it has joined again.

    One that joins as held is to leave until its handle is announced: nobody has called that off.
    """
    is_off = before.leaves and not after.leaves and after.pool == before.pool
    return is_off and after.joined != before.joined


def pools_with_less(before: Member, after: Member) -> tuple[str, ...]:
    """The pools that may meet less by now, as this has become of a name, or something else."""
    gone = before.takes_holders and not (after.takes_holders and after.pool == before.pool)
    changed = after.properties != before.properties
    found = (before.pool if gone else None, after.pool if changed else None)
    return tuple(each for each in dict.fromkeys(found) if each is not None)


def set_default(pools: Pools, pool_type: str | None, grace_seconds: float) -> Pools:
    """What becomes of the default pool: another, or none.

    Raises:
        NotFound: There is no such pool.
    """
    if pool_type is None:
        return pools._replace(default=None, grace_seconds=0.0)
    _check_pool(pool_type, pools)
    return pools._replace(default=pool_type, grace_seconds=grace_seconds)


def expect_pattern(pools: Pools, pattern: str, to: str | None) -> Pools:
    """What becomes of the patterns as one says where names belong, or None: says it no more.

    Raises:
        NotFound: There is no such pool, or no such pattern.
        NotAllowed: It says another pool.
    """
    patterns = dict(pools.patterns)
    if to is None:
        if pattern not in patterns:
            raise refusals.no_pattern(pattern)
        del patterns[pattern]
        return pools._replace(patterns=patterns)
    _check_pool(to, pools)
    if patterns.setdefault(pattern, to) != to:
        raise refusals.pattern_taken(pattern, patterns[pattern])
    return pools._replace(patterns=patterns)


def _put(member: Member, pool: str) -> Member:
    """In a pool, with what is said of the name and not of its membership."""
    return member._replace(pool=pool, by_default=False, moves_to=None, leaves=False, lifetime=None)


def _out(member: Member) -> Member:
    """In no pool; what is expected of the name stays."""
    return Member(member.name, expected=member.expected)


def _check_pool(pool_type: str, pools: Pools) -> None:
    if pool_type not in pools.types:
        raise refusals.no_pool(pool_type, sorted(pools.types))


def _check_in(member: Member, pool: str) -> None:
    if member.pool != pool:
        raise refusals.no_resource(pool, member.name, is_in=member.pool)


def _check_belongs(member: Member, to: str, pools: Pools) -> None:
    expected = belongs_to(member, pools)
    if expected is not None and expected != to:
        raise refusals.belongs_elsewhere(member.name, expected)
