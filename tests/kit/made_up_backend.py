"""A backend that there isn't: all that a new one needs is a class like this, and a line.

Its server is this process's memory. Run as a program it is `leasectl` with one backend more.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Callable

from leasectl.backends import kinds
from leasectl.backends.kinds import Context, lacking, no_backend
from leasectl.backends.pool.backend import PoolBackend
from leasectl.backends.servers import Renew, RenewalTerms
from leasectl.engines.contract import LostListener
from leasectl.model import Request
from leasectl.state.directory import State
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore

if TYPE_CHECKING:
    import pytest

SCHEME = "madeup"
TYPES = ("crane--red", "crane--yellow")


class MadeUpBackend(PoolBackend):
    title = "a made-up server"
    prefix = "madeup://"
    choice = "madeup://HOST"
    help = "madeup://HOST (for tests)"
    remote = True
    default_ttl_seconds = 7.0

    @classmethod
    def check_url(cls, url: str) -> None:
        if not url.startswith("madeup://"):
            raise no_backend(url)

    @classmethod
    def check_request(cls, request: Request, wait_seconds: float | None) -> None:
        if request.name is not None:
            raise lacking(f"--name is not supported by {cls.title}")

    @classmethod
    def open(cls, context: Context, state: State, lost: LostListener) -> MadeUpBackend:
        store = MadeUpStore(context.clock, lost)
        for each in TYPES:
            store.pools.create_pool(each, [f"{each}--00"])
        return cls(context.url, MadeUpEngine(store), store.sides, clock=context.clock)

    @classmethod
    def open_renewals(cls, context: Context, terms: RenewalTerms) -> Renew:
        words = f"of {terms.state_id} for {terms.ttl_seconds:g}s at {context.url}"
        return lambda claim_key, names: (f"{claim_key} {words}",)

    @classmethod
    def open_probe(cls, context: Context) -> Callable[[], None]:
        return lambda: None

    @classmethod
    def pool_types(cls, context: Context, *, seconds: float) -> Sequence[str]:
        return TYPES

    @classmethod
    def resource_names(
        cls, context: Context, begin: str, types: Collection[str], *, seconds: float
    ) -> Sequence[str]:
        return [f"{each}--00" for each in TYPES if not types or each in types]


def register_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process have one backend more, for a test."""
    monkeypatch.setitem(kinds.LOADERS, SCHEME, lambda: MadeUpBackend)


if __name__ == "__main__":
    kinds.register(lambda: MadeUpBackend, SCHEME)
    from leasectl.cli.app import main

    main()
