"""What is said of names in the embedded pools, and where it can't be so, for `doctor`.

A command of a version before, which knows nothing of memberships, may leave such things behind; the
next look at the pool puts most of them right.
"""

from __future__ import annotations

from leasectl.engines.local import member_rows
from leasectl.engines.membership import Member
from leasectl.state.directory import State
from leasectl.state.rows import CLOSED_MARK, IS_SPECIAL


def closed_for_nothing(state: State) -> list[str]:
    """Free resources that nobody may have, although nothing is said against it."""
    return _names(
        state,
        f"SELECT name FROM resource WHERE owner = '{CLOSED_MARK}' AND name NOT IN "
        f"(SELECT name FROM member WHERE {IS_SPECIAL})",
    )


def open_though_closed(state: State) -> list[str]:
    """Free resources that anybody may have, although they are cordoned, to go, or held back."""
    return _names(
        state,
        "SELECT resource.name FROM member CROSS JOIN resource ON resource.name = member.name "
        f"WHERE ({IS_SPECIAL}) AND owner IS NULL AND "
        "(cordoned OR leaves OR moves_to IS NOT NULL OR held_back_until IS NOT NULL)",
    )


def going_nowhere(state: State) -> list[str]:
    """Names whose release is to take them to a pool that isn't there."""
    return _names(state, "SELECT name FROM member WHERE moves_to NOT IN (SELECT type FROM pool)")


def left_over(state: State) -> list[str]:
    """Names in no pool of which more is said than where they belong."""
    return _names(
        state,
        "SELECT name FROM member WHERE name NOT IN (SELECT name FROM resource) "
        "AND (expected IS NULL OR by_default OR joined OR properties <> '' OR name IN "
        f"(SELECT name FROM member WHERE {IS_SPECIAL}))",
    )


def count_in_pools(state: State) -> int:
    """How many names there are in all pools."""
    return int(state.query("SELECT count(*) FROM resource")[0][0])


def said_of(state: State) -> tuple[Member, ...]:
    """Names of which more is said than that they are in a pool, in order."""
    return member_rows.known(member_rows.read_said(state))


def _names(state: State, sql: str) -> list[str]:
    return [row["name"] for row in state.query(f"{sql} ORDER BY 1")]
