"""What an engine has for those who make pools and look at them."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from leasectl.engines.facts import NO_SETTINGS, Pool, PoolSettings
from leasectl.model import Process
from leasectl.typed.hints import Protocol


class PoolAdmin(Protocol):
    """Makes, changes, shows and deletes an engine's pools.

    Several of its steps are one where they are inside its engine's `atomic`.
    """

    def looking(self, pool_type: str | None = None) -> AbstractContextManager[object]:
        """Inside, all is as of one instant, the handles' records too, where the store can do that.

        What is over, and what the dead have left, is taken away before; nothing can be changed
        inside, and nobody waits for it.

        Args:
            pool_type: Of which pool; None for all.

        Raises:
            NotFound: No such type.
        """

    def pools(self, pool_type: str | None = None, *, expiries: bool = False) -> tuple[Pool, ...]:
        """All pools, or the one; NotFound when there is no such type.

        Args:
            pool_type: Which; None for all.
            expiries: Ask as well when each lease runs out, where that costs extra.
        """

    def create_pool(
        self, pool_type: str, names: Sequence[str], *, settings: PoolSettings = NO_SETTINGS
    ) -> None:
        """Make a pool; InvalidRequest when it is there or a name is taken."""

    def change_settings(
        self, pool_type: str, settings: PoolSettings, *, seen: PoolSettings | None = None
    ) -> bool:
        """Have a pool grant as these settings say, those who wait in it included.

        What it has granted before makes nobody wait for longer than the new pace says. Where that
        is longer, it may count from the next grant on only.

        Args:
            pool_type: Which.
            settings: All of them.
            seen: What they are made of, as they were before; None for whatever there is.

        Returns:
            Whether that is done; not where somebody else has changed what was seen.

        Raises:
            NotFound: No such type.
        """

    def add_resources(self, pool_type: str, names: Sequence[str]) -> None:
        """Add free resources to a pool; InvalidRequest when a name is taken."""

    def remove_resources(self, pool_type: str, names: Sequence[str], *, force: bool) -> None:
        """Take resources out; NotAllowed when one is held, unless forced: its lease is lost."""

    def end_early(
        self, claim_key: str, names: Sequence[str], *, guard: Process | None, reason: str
    ) -> tuple[str, ...]:
        """End claims before their time; their holder is told, and can't renew them any more.

        They are kept for their holder, though, until the time is over that their last renewal gave
        them, or it gives up all that it had (`Engine.free`), or its guard has ended, whichever is
        first. What has no ttl and no guard is free at once, also if it was being kept so far.

        Args:
            claim_key: What finds them.
            names: Which of them.
            guard: Whose end frees them, as far as the store can see it; None for nobody's.
            reason: Who does this, and why; `Resource.ended` shows it.

        Returns:
            The names that were ended, or freed, by this call.
        """

    def delete_pool(self, pool_type: str, *, force: bool) -> None:
        """Remove a pool; NotAllowed when it is in use, unless forced: its leases are lost."""
