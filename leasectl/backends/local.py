"""``local:``: the embedded pool; ``none:``: every request succeeds, and nothing is leased."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from leasectl.backends.kinds import LOCAL, Backend, lacking
from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.local.engine import LocalEngine, LocalSides

if TYPE_CHECKING:
    from leasectl.backends.contract import Journal, Patience
    from leasectl.backends.kinds import Context
    from leasectl.engines.contract import LostListener
    from leasectl.model import Claimant, ReleasedBy, Request
    from leasectl.state.directory import State


class LocalBackend(PoolBackend):
    """The embedded pool of a state directory."""

    title = "the embedded pool"
    prefix = choice = help = LOCAL
    takes_address = False

    @classmethod
    def open(cls, context: Context, state: State, lost: LostListener) -> LocalBackend:
        clock = context.clock
        engine = LocalEngine(state, lost=lost, clock=clock)
        sides = LocalSides(state, lost=lost, clock=clock, caller=context.caller.identity)
        return cls(context.url, engine, sides, clock=clock)


class DryRunBackend(Backend):
    """Grants nothing to everybody, so that scripts run where there is no backend.

    The handles are real: they can be released, and show what was asked for.
    """

    title = "a dry run"
    prefix = choice = "none:"
    help = "none: (no leases, a dry run)"
    takes_address = False
    remote = False
    grants_nothing = True

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        if request.where:
            raise lacking(
                "--where is not supported by a dry run (none:), where nothing has properties"
            )

    def atomic(self) -> AbstractContextManager[object]:
        return self._state.transaction()

    def acquire(self, claimant: Claimant, journal: Journal, patience: Patience) -> None:
        self.check_request(claimant.request, patience.wait_seconds)
        with self.atomic():
            journal.enqueuing()
            journal.granted(())

    def release(
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> tuple[str, ...]:
        return ()

    def renew(
        self, claim_key: str, names: Sequence[str], *, ttl_seconds: float | None = None
    ) -> tuple[str, ...]:
        return ()
