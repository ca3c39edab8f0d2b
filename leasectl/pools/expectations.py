"""Expect names and patterns in pools, on any store."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines import refusals
from leasectl.engines.pool_admin import Members, Updated
from leasectl.engines.rules import membership
from leasectl.engines.rules.membership import Member, Pools
from leasectl.errors import NotFound

_NOBODY = Updated((), ())


def expect(
    members: Members, pool_type: str, names: Sequence[str], patterns: Sequence[str]
) -> Updated:
    """Expect names, and all names that match patterns, in a pool.

    Names that came to the default pool by default move: free ones at once, held ones with their
    release. On a store without transactions these are several steps; a repetition does the rest.

    Returns:
        The given names, then those that the patterns move.

    Raises:
        NotFound: The pool doesn't exist.
        NotAllowed: A name is in another pool, is to move to one, or is expected in one.
    """
    _with_patterns(members.belonging(), patterns, pool_type)  # refuse before anything changes
    named = moved = _NOBODY
    if names:
        named = members.update(names, lambda m, p: membership.expect(m, pool_type, p))
    if patterns:
        members.change_belonging(lambda pools: _with_patterns(pools, patterns, pool_type))
        moved = _move_unclaimed(members)
    return Updated((*named.before, *moved.before), (*named.after, *moved.after))


def drop(members: Members, pool_type: str, names: Sequence[str], patterns: Sequence[str]) -> None:
    """Delete expectations of a pool; resources that are in a pool stay there.

    Raises:
        NotFound: One of them isn't expected there.
    """

    def dropped(member: Member, _: Pools) -> Member:
        if member.expected != pool_type:
            raise NotFound(
                f'"{member.name}" is not expected in pool "{pool_type}"; see: leasectl pool '
                "expect --list"
            )
        return membership.expect_nothing(member)

    known = members.belonging().patterns
    for each in patterns:
        if known.get(each) != pool_type:
            raise refusals.no_pattern(each)
    if names:
        members.update(names, dropped)
    if patterns:
        members.change_belonging(lambda pools: _with_patterns(pools, patterns, None))


def _move_unclaimed(members: Members) -> Updated:
    """Move names that came to a pool by default to the pools where they belong."""
    pools = members.belonging()
    known = members.members()
    going = [each.name for each in known if membership.claimed_by_pattern(each, pools) != each]
    return members.update(going, membership.claimed_by_pattern) if going else _NOBODY


def _with_patterns(pools: Pools, patterns: Sequence[str], to: str | None) -> Pools:
    for each in patterns:
        pools = membership.expect_pattern(pools, each, to)
    return pools
