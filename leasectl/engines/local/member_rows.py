"""Rows of members, and their audit."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence

from leasectl.engines.rules.membership import Cordon, Lifetime, Member, Properties, read_cordon
from leasectl.model import Process
from leasectl.state.directory import State
from leasectl.state.rows import IS_FREE, IS_SPECIAL, encode_process, insert, parse_optional_process

_IS_CLOSED = "(cordoned OR leaves OR moves_to IS NOT NULL)"
_COLUMNS = (
    "named.name, type, owner, closed, is_ended, holder_identity, expires_at, expected, by_default, "
    "cordoned, moves_to, leaves, process, ttl_seconds, ends_at, joined, held_back_until, "
    "properties, cordon"
)
_OF = (
    f"SELECT {_COLUMNS} FROM %s AS named LEFT JOIN resource ON resource.name = named.name "
    "LEFT JOIN member ON member.name = named.name"
)
_OF_NAME = _OF % "(SELECT ? AS name)"
_OF_ALL = _OF % "(SELECT name FROM resource UNION SELECT name FROM member)" + " ORDER BY named.name"
_OF_SAID = _OF % "(SELECT name FROM member)" + " ORDER BY named.name"
_OF_POOL = (
    f"SELECT {_COLUMNS} FROM resource AS named LEFT JOIN member ON member.name = named.name "
    "WHERE type = ? ORDER BY named.name"
)
_SPECIAL = (  # the few members first, and then their resources
    f"SELECT {_COLUMNS} FROM member AS named CROSS JOIN resource ON resource.name = named.name "
    f"WHERE ({IS_SPECIAL})"
)
# Free, and wrongly open or closed; or its release has left something undone.
_IS_AMISS = (
    f"{IS_FREE} AND ({_IS_CLOSED} OR held_back_until IS NOT NULL OR expires_at IS NOT NULL) OR "
    "closed AND (leaves OR moves_to IS NOT NULL OR "
    "(NOT cordoned AND held_back_until IS NULL) OR "
    "expires_at IS NOT CASE WHEN cordoned THEN NULL ELSE held_back_until END)"
)
_IS_DUE = (
    f"(ends_at <= :now OR held_back_until <= :now OR ({_IS_AMISS}) "
    "OR (type <> :type AND expires_at <= :now))"
)
_DUE = (
    f"{_SPECIAL.replace(_COLUMNS, f'{_COLUMNS}, {_IS_DUE} IS TRUE AS is_due')} "
    f"AND :type IN (type, moves_to) AND (process IS NOT NULL OR {_IS_DUE})"
)
_NEXT_TIMES = (
    _SPECIAL.replace(
        _COLUMNS,
        "min(CASE WHEN type = :type THEN ends_at END), "
        "min(CASE WHEN type <> :type AND moves_to = :type THEN expires_at END)",
    )
    + " AND :type IN (type, moves_to)"
)


def read(state: State, name: str) -> sqlite3.Row:
    """Return the row of a name, which `member_of` reads."""
    return state.query(_OF_NAME, name)[0]


def read_all(state: State) -> list[sqlite3.Row]:
    """Return the rows of all known names."""
    return state.query(_OF_ALL)


def read_said(state: State) -> list[sqlite3.Row]:
    """Return the rows of all names with more facts than their pool."""
    return state.query(_OF_SAID)


def read_pool(state: State, pool_type: str) -> list[sqlite3.Row]:
    """Return the rows of all names in a pool."""
    return state.query(_OF_POOL, pool_type)


def read_special(state: State, pool_type: str) -> list[sqlite3.Row]:
    """Return the rows of names in a pool, or about to come to it, with more facts than that."""
    return state.query(f"{_SPECIAL} AND ? IN (type, moves_to)", pool_type)


def read_due(state: State, pool_type: str, now: float) -> list[sqlite3.Row]:
    """Return the rows of names whose membership has to change, or may have to: a process has ended.

    Args:
        state: The opened state directory.
        pool_type: The pool that they are in, or about to come to.
        now: CLOCK_BOOTTIME.

    Returns:
        The rows also have ``is_due``: the membership has to change, whether the process lives or
        not.
    """
    return state.query(_DUE, type=pool_type, now=now)


def next_times(state: State, pool_type: str) -> tuple[float | None, float | None]:
    """Return when a membership in a pool ends, and when a lease expires of a name that moves there.

    Both CLOCK_BOOTTIME, seconds; None for never.
    """
    ((ends_at, comes_at),) = state.query(_NEXT_TIMES, type=pool_type)
    return ends_at, comes_at


def closed_in(state: State, pool_type: str) -> int:
    """Return how many of a pool's resources take no new holder."""
    ((number,),) = state.query(
        "SELECT count(*) FROM member CROSS JOIN resource ON resource.name = member.name "
        f"WHERE ({IS_SPECIAL}) AND type = ? AND {_IS_CLOSED}",
        pool_type,
    )
    return int(number)


def member_of(row: sqlite3.Row) -> Member:
    """Read the membership of a name from its row."""
    name, pool_type = row["name"], row["type"]
    holder = None if is_free(row) else row["holder_identity"]
    if row["joined"] is None:  # no other facts
        return Member(name, pool_type, holder=holder)
    if pool_type is None:  # other facts don't count outside a pool
        return Member(name, expected=row["expected"])
    return Member(
        name,
        pool_type,
        expected=row["expected"],
        by_default=bool(row["by_default"]),
        holder=holder,
        cordoned=bool(row["cordoned"]),
        moves_to=row["moves_to"],
        leaves=bool(row["leaves"]),
        lifetime=_lifetime(row["process"], row["ttl_seconds"]),
        joined=row["joined"],
        properties=parse_properties(row["properties"]),
        cordon=_parse_cordon(row["cordon"]),
    )


def known(rows: Iterable[sqlite3.Row]) -> tuple[Member, ...]:
    """Read the memberships of all known names."""
    return tuple(each for each in map(member_of, rows) if each.is_known)


def write(
    state: State, member: Member, *, ends_at: float | None, held_back_until: float | None
) -> None:
    """Write the facts of a name, other than its pool and its holder.

    Args:
        state: The opened state directory, inside a transaction.
        member: The facts.
        ends_at: When its membership ends, CLOCK_BOOTTIME; None for one without a ttl.
        held_back_until: Until when it isn't granted, CLOCK_BOOTTIME; None if it may be.
    """
    if is_plain(member):
        state.db.execute("DELETE FROM member WHERE name = ?", (member.name,))
        return
    lifetime = member.lifetime or Lifetime()
    row = {
        "name": member.name,
        "expected": member.expected,
        "by_default": int(member.by_default),
        "cordoned": int(member.cordoned),
        "moves_to": member.moves_to,
        "leaves": int(member.leaves),
        "process": encode_process(lifetime.process),
        "ttl_seconds": lifetime.ttl_seconds,
        "ends_at": ends_at,
        "joined": member.joined,
        "held_back_until": held_back_until,
        "properties": _encode_properties(member.properties),
        "cordon": _encode_cordon(member.cordon),
    }
    insert(state.db, "member", row, replace=True)


def is_plain(member: Member) -> bool:
    """Return whether a name has no facts but its pool and its holder."""
    return member._replace(pool=None, holder=None) == Member(member.name)


def is_free(row: sqlite3.Row) -> bool:
    """Return whether a name is in a pool and not held."""
    return row["owner"] is None


def parse_properties(text: str | None) -> Properties:
    """Read properties; none from a text that no version writes."""
    if not text:
        return ()
    import json  # few have any

    return tuple(sorted((str(key), str(value)) for key, value in json.loads(text).items()))


def _encode_properties(properties: Sequence[tuple[str, str]]) -> str:
    if not properties:
        return ""
    import json

    return json.dumps(dict(properties))


def _parse_cordon(text: str | None) -> Cordon | None:
    if text is None:
        return None
    import json

    return read_cordon(json.loads(text))


def _encode_cordon(cordon: Cordon | None) -> str | None:
    if cordon is None:
        return None
    import json

    return json.dumps(cordon)


def _lifetime(process: str | None, ttl_seconds: float | None) -> Lifetime | None:
    if process is None and ttl_seconds is None:
        return None
    found: Process | None = parse_optional_process(process)
    return Lifetime(found, ttl_seconds)


def closed_for_nothing(state: State) -> list[str]:
    """Return free resources that take no holder although no fact forbids it."""
    return _names(
        state,
        "SELECT name FROM resource WHERE closed AND name NOT IN "
        f"(SELECT name FROM member WHERE {IS_SPECIAL})",
    )


def open_though_closed(state: State) -> list[str]:
    """Return free resources that take holders although they are cordoned, leaving or held back."""
    return _names(
        state,
        "SELECT resource.name FROM member CROSS JOIN resource ON resource.name = member.name "
        f"WHERE ({IS_SPECIAL}) AND {IS_FREE} AND "
        "(cordoned OR leaves OR moves_to IS NOT NULL OR held_back_until IS NOT NULL)",
    )


def going_nowhere(state: State) -> list[str]:
    """Return names that move to a missing pool when they are released."""
    return _names(state, "SELECT name FROM member WHERE moves_to NOT IN (SELECT type FROM pool)")


def left_over(state: State) -> list[str]:
    """Return names in no pool with more facts than their expected pool."""
    return _names(
        state,
        "SELECT name FROM member WHERE name NOT IN (SELECT name FROM resource) "
        "AND (expected IS NULL OR by_default OR joined OR properties <> '' OR name IN "
        f"(SELECT name FROM member WHERE {IS_SPECIAL}))",
    )


def count_in_pools(state: State) -> int:
    """Return how many names there are in all pools."""
    return int(state.query("SELECT count(*) FROM resource")[0][0])


def said_of(state: State) -> tuple[Member, ...]:
    """Return the names with more facts than their pool, in order."""
    return known(read_said(state))


def _names(state: State, sql: str) -> list[str]:
    return [row["name"] for row in state.query(f"{sql} ORDER BY 1")]
