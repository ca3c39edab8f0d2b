"""Add names to pools, and remove them, on any store."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.pool_admin import Members
from leasectl.engines.rules.membership import remove
from leasectl.pools import properties


def add_resources(members: Members, pool_type: str, names: Sequence[str]) -> None:
    """Add names that aren't in the pool yet."""
    properties.add_resources(members, pool_type, names, properties.NO_CHANGE, are_new=True)


def remove_resources(
    members: Members, pool_type: str, names: Sequence[str], *, force: bool = False
) -> None:
    """Remove names; by force, held ones too."""
    members.update(names, lambda member, _: remove(member, pool_type, force=force))
