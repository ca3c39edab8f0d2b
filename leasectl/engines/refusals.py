"""Refusals that all engines give in the same words.

Every command loads this, and few say it: what it takes to say it is imported there.
"""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.errors import InvalidRequest, NotAllowed, NotFound
from leasectl.text.naming import as_given, is_reserved
from leasectl.text.wording import counted


def no_pool(pool_type: str, known: Sequence[str]) -> NotFound:
    """There is no pool of that type, but some known ones."""
    from leasectl.text.wording import did_you_mean

    own = [each for each in known if not is_reserved(each)]
    return NotFound(f'no pool "{pool_type}"{did_you_mean(pool_type, own)}')


def deleted_meanwhile(pool_type: str) -> NotFound:
    """The pool has gone with its queue, and there is another of that type."""
    return NotFound(
        f'pool "{pool_type}" was deleted and created again while the request waited; try again'
    )


def no_resource(pool_type: str, name: str, *, is_in: str | None = None) -> NotFound:
    """The pool has no resource of that name, which may be in another."""
    if is_in is not None:
        return NotFound(
            f'resource "{name}" is in pool "{is_in}", not in pool "{pool_type}"; see: leasectl '
            f"pool of {name}"
        )
    return NotFound(
        f'no resource "{name}" in pool "{pool_type}"; list them with: '
        f"leasectl status -t {pool_type}"
    )


def too_few(
    pool_type: str,
    capacity: int,
    count: int,
    *,
    closed: int = 0,
    kind: type[InvalidRequest] = InvalidRequest,
) -> InvalidRequest:
    """The pool could not satisfy a request for so many, with some closed that take no holder."""
    found = f'pool "{pool_type}" has {counted(capacity, "resource")}'
    if closed and closed == capacity:
        every = "it is" if closed == 1 else "all are"
        found += f", but {every} unavailable (cordoned or leaving)"
    else:
        if closed:
            found += f", of which {closed} {'is' if closed == 1 else 'are'} unavailable"
        never = "can't be met" if closed else "can never be met"
        found += f", so a request for {count} {never}"
    return kind(f"{found}; see: leasectl status -t {pool_type}")


def pool_exists(pool_type: str) -> InvalidRequest:
    """A pool of that type is there already."""
    return InvalidRequest(
        f'pool "{pool_type}" exists; to add resources: leasectl pool add {pool_type} --count N; '
        f"to change its settings: leasectl pool set {pool_type}; to match a file: leasectl pool "
        "apply -f FILE"
    )


def name_taken(name: str, pool_type: str) -> InvalidRequest:
    """A resource of that name is in some pool already."""
    return InvalidRequest(
        f'resource "{name}" is already in pool "{pool_type}"; names are unique across pools'
    )


def resource_held(name: str, holder_identity: str) -> NotAllowed:
    """The resource can't be taken out while it is held."""
    return NotAllowed(
        f'resource "{name}" is held by {as_given(holder_identity)}; release it first, or '
        "take it away with --force"
    )


def pool_in_use(pool_type: str, held: int, waiting: int) -> NotAllowed:
    """The pool can't be deleted while it is used."""
    return NotAllowed(
        f'pool "{pool_type}" is in use ({held} held, {waiting} waiting); to delete it anyway, '
        "add --force"
    )


def in_another_pool(name: str, pool_type: str, to: str, *, is_held: bool) -> NotAllowed:
    """Refuse to put a resource into a pool while another pool has it."""
    when = " --when-free" if is_held else ""
    return NotAllowed(
        f'resource "{name}" is in pool "{pool_type}", and can be in one only; move it with: '
        f"leasectl pool move --names {name} --to {to}{when}"
    )


def belongs_elsewhere(name: str, pool_type: str) -> NotAllowed:
    """A resource is expected in another pool."""
    return NotAllowed(
        f'resource "{name}" is expected in pool "{pool_type}" (leasectl pool expect); see: '
        "leasectl pool expect --list"
    )


def in_no_pool(name: str, to: str = "POOL") -> NotFound:
    """Refuse to change a resource that is in no pool.

    Args:
        name: The resource.
        to: The pool that it was to be in, if that is known.
    """
    return NotFound(
        f'resource "{name}" is in no pool; add it with: leasectl pool add {to} --names {name}'
    )


def held_and_to_move(name: str, holder_identity: str) -> NotAllowed:
    """The resource can't be moved while it is held."""
    return NotAllowed(
        f'resource "{name}" is held by {as_given(holder_identity)}; to move it when '
        "it is released, add --when-free"
    )


def to_move_elsewhere(name: str, pool_type: str, to: str) -> NotAllowed:
    """The resource can't be expected where its release takes it away from."""
    return NotAllowed(
        f'resource "{name}" is to move to pool "{to}" when it is released; to keep it here: '
        f"leasectl pool move --names {name} --to {pool_type}"
    )


def no_pattern(pattern: str) -> NotFound:
    """Nothing is expected of the names that a pattern matches."""
    return NotFound(
        f'no pool expects names that match "{pattern}"; see: leasectl pool expect --list'
    )


def pattern_taken(pattern: str, pool_type: str) -> NotAllowed:
    """A pattern says another pool already."""
    return NotAllowed(
        f'names that match "{pattern}" are expected in pool "{pool_type}" already; first run: '
        f"leasectl pool expect {pool_type} --match '{pattern}' --drop"
    )


def held_by_another(name: str, holder_identity: str) -> NotAllowed:
    """Return the error for a name that is held and was to be claimed at once."""
    holder = as_given(holder_identity)
    return NotAllowed(f'resource "{name}" is held by {holder}, so it can\'t be acquired now')
