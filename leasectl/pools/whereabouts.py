"""In which pool a name is, and why."""

from __future__ import annotations

from contextlib import suppress
from typing import Literal, NamedTuple

from leasectl.engines.rules.membership import Member, belongs_to, matching_pattern
from leasectl.errors import NotFound
from leasectl.leases.recovery import release_abandoned
from leasectl.leases.service import Service
from leasectl.pools.overview_json import cordon_fields

State = Literal["free", "held", "held back", "cordoned", "expected"]


class Whereabouts(NamedTuple):
    """All that is known of a name's membership.

    Args:
        member: What the store keeps of it.
        belongs_to: The type of its expected pool; None for none.
        pattern: The pattern that says so; None if the name itself says so, or nothing does.
        held_back_seconds: It came to the default pool, and isn't granted for so much longer; None
            if it may be granted.
    """

    member: Member
    belongs_to: str | None
    pattern: str | None
    held_back_seconds: float | None = None

    @property
    def type(self) -> str | None:
        """The type of the pool that it is in, or will be."""
        return self.member.pool or self.belongs_to

    @property
    def state(self) -> State:
        """What can be had of it now."""
        if self.member.pool is None:
            return "expected"
        if self.member.holder is not None:
            return "held"
        if self.held_back_seconds is not None:
            return "held back"
        return "cordoned" if self.member.cordoned else "free"


class Expectation(NamedTuple):
    """The expected pool of a name, or of all names that match a pattern.

    Args:
        subject: The name or the pattern.
        is_pattern: It is a pattern.
        type: The expected pool's type.
        pool: The type of the pool that the name is in now; None for none, and for a pattern.
    """

    subject: str
    is_pattern: bool
    type: str
    pool: str | None = None


def whereabouts(service: Service, name: str) -> Whereabouts:
    """Return in which pool a name is, and where it is expected.

    Raises:
        NotFound: The name isn't known.
        NotSupported: The backend has no pools of its own.
    """
    members = service.members
    release_abandoned(service)
    (member,) = members.members([name])
    pools = members.belonging()
    expected = belongs_to(member, pools)
    if member.pool is None and expected is None:
        raise NotFound(
            f'"{name}" is in no pool, and no pool expects it; add it with: leasectl '
            f"pool add POOL --names {name}"
        )
    pattern = None if member.expected is not None else matching_pattern(name, pools)
    return Whereabouts(member, expected, pattern, _held_back_seconds(service, member))


def _held_back_seconds(service: Service, member: Member) -> float | None:
    """How long a name is still held back, as its pool shows it."""
    if member.pool is None or member.holder is not None or not member.by_default:
        return None
    with suppress(NotFound):  # deleted by now
        (pool,) = service.pools.pools(member.pool)
        found = (each.held_back_seconds for each in pool.resources if each.name == member.name)
        return next(found, None)
    return None


def expectations(service: Service, pool_type: str | None = None) -> tuple[Expectation, ...]:
    """What was said of where names belong, by type; patterns come after names.

    Args:
        service: On the backend that is asked.
        pool_type: Of names that belong to this pool; None for all.
    """
    named = [
        Expectation(each.name, is_pattern=False, type=each.expected, pool=each.pool)
        for each in service.members.members()
        if each.expected is not None
    ]
    patterns = service.members.belonging().patterns
    found = [
        *named,
        *(Expectation(each, is_pattern=True, type=patterns[each]) for each in patterns),
    ]
    wanted = (each for each in found if pool_type in (None, each.type))
    return tuple(sorted(wanted, key=lambda each: (each.type, each.is_pattern, each.subject)))


def whereabouts_fields(found: Whereabouts) -> dict[str, object]:
    """The whereabouts of a name as JSON."""
    member, lifetime = found.member, found.member.lifetime
    process = None if lifetime is None else lifetime.process
    return {
        "name": member.name,
        "type": found.type,
        "pool": member.pool,
        "belongs_to": found.belongs_to,
        "pattern": found.pattern,
        "by_default": member.by_default,
        "state": found.state,
        "held_back_seconds": found.held_back_seconds,
        "holder_identity": member.holder,
        "cordoned": member.cordoned,
        "cordon": cordon_fields(member.cordon),
        "moves_to": member.moves_to,
        "leaves": member.leaves,
        "joined_for_seconds": None if lifetime is None else lifetime.ttl_seconds,
        "joined_while_pid": None if process is None else process.pid,
        "properties": dict(member.properties),
    }


def expectation_fields(each: Expectation) -> dict[str, object]:
    """An expectation as JSON."""
    return {
        "name": None if each.is_pattern else each.subject,
        "pattern": each.subject if each.is_pattern else None,
        "type": each.type,
        "pool": each.pool,
    }
