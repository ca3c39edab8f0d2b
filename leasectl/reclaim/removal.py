"""Reclaim resources that are to leave their pool.

First they are cordoned, so that no new holder gets in between their release and their removal. If
this process is killed here, they stay cordoned, for all to see, and another run goes on. If it
gives up, it uncordons them, except those that were cordoned before.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

from leasectl.engines import refusals
from leasectl.engines.pool_admin import Members
from leasectl.engines.rules.membership import Cordon, Member, Pools, cordon, remove
from leasectl.errors import LeaseError
from leasectl.reclaim.plan import CHANGED, NotFreed, Wanted
from leasectl.reclaim.taking_back import Ground, Listener, take_back
from leasectl.system.poll import Sleep
from leasectl.text.wording import followed_by


class Removed(NamedTuple):
    """The result of a removal.

    Args:
        removed: The names that it has removed from the pool.
        left: The names that are still in it, and why.
    """

    removed: tuple[str, ...]
    left: tuple[NotFreed, ...]


def remove_when_ready(
    ground: Ground, members: Members, names: Sequence[str], wanted: Wanted, listener: Listener
) -> Generator[Sleep, set[int], Removed]:
    """Remove resources from their pool, the free ones at once, the others with their reclaim.

    Args:
        ground: With the pool.
        members: Of the same store.
        names: Each once.
        wanted: The options of the reclaim; the names are the leases to take back.
        listener: Its callbacks; names count as freed once they are removed.

    Raises:
        NotFound: One isn't in the pool; nothing has changed.
    """
    return _Removal(ground, members, names, listener).run(wanted)


class _Removal:
    def __init__(
        self, ground: Ground, members: Members, names: Sequence[str], listener: Listener
    ) -> None:
        self._ground = ground
        self._members = members
        self._cordon = Cordon(ground.asked_by, ground.clock.wall(), "to be removed")
        self._left = list(names)
        self._removed: list[str] = []
        self._listener = listener

    def run(self, wanted: Wanted) -> Generator[Sleep, set[int], Removed]:
        before = self._members.update(self._left, self._close).before
        closed = [each.name for each in before if not each.cordoned]
        why: dict[str, str] = {}
        try:
            self._remove(self._left)
            if self._left:
                meant = wanted._replace(names=frozenset(self._left))
                listener = self._listener._replace(freed=self._remove)
                outcome = yield from take_back(self._ground, meant, listener)
                why = {each.name: each.reason for each in outcome.not_freed}
                self._remove(self._left)  # those that were given back unasked
        finally:
            self._open([name for name in closed if name in self._left])
        left = tuple(NotFreed(name, why.get(name, CHANGED)) for name in self._left)
        return Removed(tuple(self._removed), left)

    def _close(self, member: Member, _: Pools) -> Member:
        if member.pool != self._ground.pool_type:
            raise refusals.no_resource(self._ground.pool_type, member.name)
        if member.cordoned:
            return member  # with the reason that it has
        return cordon(member, is_cordoned=True, why=self._cordon)

    def _remove(self, names: Sequence[str]) -> None:
        """Remove those names that aren't held from the pool."""
        after = self._members.update(tuple(names), self._out_if_free).after if names else ()
        removed = [each.name for each in after if each.pool != self._ground.pool_type]
        if removed:
            self._removed += removed
            self._left = [name for name in self._left if name not in removed]
            self._listener.freed(removed)

    def _out_if_free(self, member: Member, _: Pools) -> Member:
        """Remove a name from the pool, unless it is held or gone."""
        if member.pool != self._ground.pool_type or member.holder is not None:
            return member
        return remove(member, self._ground.pool_type, force=False)

    def _open(self, names: Sequence[str]) -> None:
        if not names:
            return

        def reopen(member: Member, _: Pools) -> Member:
            is_there = member.pool == self._ground.pool_type
            return cordon(member, is_cordoned=False) if is_there else member

        try:
            self._members.update(names, reopen)
        except LeaseError as error:
            left = (
                "these resources take no new holder until you run: leasectl pool uncordon "
                f"--names {','.join(names)}"
            )
            self._listener.warn(followed_by(error, left))
