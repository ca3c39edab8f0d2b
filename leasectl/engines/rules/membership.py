"""Decide in which pool a name is: pure functions for every engine.

A store keeps one fact for each name. It reads it, lets one of these functions decide what becomes
of it, and writes that in one step, guarded by what it has read. If two processes want the same name
in different pools, the second reads what the first has written, and is told that pool.

What decides where a name is, the stronger first: an expectation of the name itself; one of a
pattern, the longest first; a process that adds the name to a pool, or joins with it; and the
default pool, which takes all other names (`Pools.default`), and from which all of these take them
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from leasectl.engines import refusals
from leasectl.model import Process
from leasectl.text.naming import is_reserved

Properties = tuple[tuple[str, str], ...]
# What a change of a membership does to a clock that belongs to it.
Clock = Literal["stopped", "kept", "started"]


class Lifetime(NamedTuple):
    """How long a name stays in its pool, if not for good.

    Args:
        process: Until this ends; None for a lifetime with a ttl.
        ttl_seconds: How long after it joined last; None for a lifetime with a process.
    """

    process: Process | None = None
    ttl_seconds: float | None = None


class Cordon(NamedTuple):
    """Why a name takes no new holder.

    Args:
        by: The identity of the process that cordoned it.
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
    """All facts about one name.

    Args:
        name: The name.
        pool: The type of the pool that it is in; None for none.
        expected: The expected pool of the name itself; None for none.
        by_default: It is in its pool only because no other pool claims it.
        holder: The identity of its holder; None if it is free.
        cordoned: It takes no new holder.
        moves_to: The pool that it moves to with its release; None if it stays.
        leaves: It leaves its pool with its release.
        lifetime: How long it stays; None for good.
        joined: How often it has joined its pool; its lifetime counts from the last time on.
        properties: Its properties, sorted by key.
        cordon: Who cordoned it, when and why; None if that isn't known.
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
        """Whether its membership allows a claim."""
        return self.pool is not None and not (self.cordoned or self.moves_to or self.leaves)


class Pools(NamedTuple):
    """The pools, and the expectations of patterns.

    Args:
        types: Of all pools.
        default: The type of the default pool; None for none.
        grace_seconds: How long a name that came there by default isn't granted, as another pool may
            claim it.
        patterns: The expected pools of names that match a pattern.
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
    """Return the pattern that decides where a name is expected: the longest match; None for none.

    Names of `once` have none: it creates and removes them itself.
    """
    if is_reserved(name) or not pools.patterns:
        return None
    from fnmatch import fnmatchcase  # which few need

    matching = [each for each in pools.patterns if fnmatchcase(name, each)]
    return max(matching, key=lambda each: (len(each), each), default=None)


def add(member: Member, to: str, pools: Pools) -> Member:
    """Return a name after it was added to a pool: it is there from now on.

    A name that was to leave with its release stays, and is free then.

    Raises:
        NotFound: There is no such pool.
        NotAllowed: It is expected in another pool, or is in one.
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
    """Return a name after it was removed from its pool; its holder loses it.

    Raises:
        NotFound: It isn't in that pool.
        NotAllowed: It is held, and the removal isn't by force.
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
    """Return a name after patterns have changed: it moves to its new expected pool.

    If it is held, it moves with its release.
    """
    to = belongs_to(member, pools)
    if not member.by_default or to not in pools.types:
        return member
    if to == member.pool:
        return member._replace(by_default=False)
    return _go(member, to)


def expect_nothing(member: Member) -> Member:
    """Return a name without its expected pool: it stays where it is."""
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


def lifetime_clock(before: Member, after: Member) -> Clock:
    """Return what becomes of the clock of a lifetime: each join starts it anew."""
    if after.lifetime is None:
        return "stopped"
    return "kept" if after.joined == before.joined else "started"


def grace_clock(before: Member, after: Member) -> Clock:
    """Return what becomes of the clock of the grace: it starts as a name comes by default."""
    if not after.by_default:
        return "stopped"
    return "kept" if before.by_default else "started"


def check_unheld(members: Iterable[Member]) -> None:
    """Refuse to claim names at once if one of them is held.

    Raises:
        NotAllowed: One is held.
    """
    for each in members:
        if each.holder is not None:
            raise refusals.held_by_another(each.name, each.holder)


def stays_after_all(before: Member, after: Member) -> bool:
    """Tell whether a name stays in its pool that was to move to another with its release."""
    is_off = before.moves_to is not None and after.moves_to is None
    return is_off and after.pool == before.pool and not after.leaves


def leaves_no_more(before: Member, after: Member) -> bool:
    """Return whether a name that was to leave stays, as it has joined again.

    A name that joins as held leaves with its release until its handle is announced.
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
