"""``none:``: every request succeeds, and nothing is leased."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

from leasectl.backends.contract import Journal, Opening, Patience, Turn
from leasectl.backends.kinds import pool_prefixes
from leasectl.backends.without_pools import WithoutPools, own_events
from leasectl.errors import NotSupported
from leasectl.model import Claimant, ReleasedBy, Request
from leasectl.state.directory import State


def check_url(url: str) -> None:
    """There is one."""


def check_request(request: Request, wait_seconds: float | None) -> None:
    """Refuse to have looked for what isn't there; it can do all else."""
    if request.where:
        raise NotSupported(
            "--where is not supported by a dry run (none:), where nothing has properties; "
            f"{pool_prefixes('and')} can do it"
        )


def open_backend(url: str, opening: Opening) -> DryRunBackend:
    """Open what grants nothing."""
    return DryRunBackend(opening.state)


class DryRunBackend(WithoutPools):
    """Grants nothing to everybody, so that scripts run where there is no backend.

    The handles are real: they can be released, and show what was asked for.
    """

    remote = False

    def __init__(self, state: State) -> None:
        super().__init__("none:", lambda: own_events(state, self.url))
        self._state = state

    def atomic(self) -> AbstractContextManager[object]:
        return self._state.transaction()

    def acquire(self, claimant: Claimant, journal: Journal, patience: Patience) -> None:
        check_request(claimant.request, patience.wait_seconds)
        with self.atomic():
            journal.enqueuing()
            journal.granted(())

    def turn(self, claimant: Claimant, journal: Journal, patience: Patience) -> Turn:
        yield from ()
        self.acquire(claimant, journal, patience)

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        return ()

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        return ()
