"""What an engine has for those who say in which pool a name is, and what is so of it there."""

from __future__ import annotations

from collections.abc import Sequence

from leasectl.engines.membership import Member, Pools
from leasectl.model import Claimant, Lease
from leasectl.typed.hints import Callable, Protocol
from leasectl.typed.tuples import NamedTuple

# Says by `membership` what is to become of a name, or raises what refuses it.
Decide = Callable[[Member, Pools], Member]


class Updated(NamedTuple):
    """What has become of some names.

    Args:
        before: What was known of each.
        after: What is known of each now, in the same order.
        leases: What was claimed with that; empty unless it was to be.
    """

    before: tuple[Member, ...]
    after: tuple[Member, ...]
    leases: tuple[Lease, ...] = ()


class Members(Protocol):
    """Keeps one fact for each name: reads it, and writes what becomes of it, in one step.

    Whoever is let in or kept out by that is woken. What a fact says to be done with a release
    (`membership.after_release`) is part of that release, whoever makes it, and what is to be done
    when a lifetime is over (`after_lifetime`) of whatever looks at the pool first after that.
    Several steps are one where they are inside the engine's `atomic`.
    """

    def members(self, names: Sequence[str] | None = None) -> tuple[Member, ...]:
        """What is known of some names, in their order; or of all of which anything is known."""

    def update(
        self, names: Sequence[str], decide: Decide, *, claimant: Claimant | None = None
    ) -> Updated:
        """Have a function say what is to become of some names, and have it be so.

        All at once where the store can do that; else one after the other, each at once.

        Args:
            names: Which; each once.
            decide: May be called again if somebody else was faster, and has no effects.
            claimant: Who holds them all from then on, past queue and pace; None for nobody.

        Returns:
            What has become of them.

        Raises:
            NotAllowed: Somebody else holds one that the claimant is to hold.
            LeaseError: What the function refuses with; nothing has changed.
        """

    def belonging(self) -> Pools:
        """What there is beside the names: pools, patterns, and the default pool."""

    def change_belonging(self, change: Callable[[Pools], Pools]) -> None:
        """Have other patterns, or another default pool, as `update` has names.

        Raises:
            LeaseError: What the function refuses with; nothing has changed.
        """
