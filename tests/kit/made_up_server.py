"""A made-up server in this process, which a test has fail, or look on, at a certain request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Callable

import pytest

from leasectl.backends.pool.backend import PoolBackend
from leasectl.model import ReleasedBy
from tests.kit.desk import Desk
from tests.kit.made_up_backend import MadeUpBackend, register_made_up
from tests.kit.made_up_store import MadeUpEngine, MadeUpStore

URL = "madeup://here"
NAMES = ("T--00", "T--01", "T--02")
Look = Callable[[Sequence[str]], object]


class Server(PoolBackend):
    """The made-up server.

    Attributes:
        before_release: Called with the names of each release, before it is carried out.
        after_release: The same, before it is answered.
        withdrawn: By which claim keys a request was taken out of the queue.
        asked: The releases that came, each by claim key and names.
    """

    remote = True

    def __init__(self, store: MadeUpStore, desk: Desk) -> None:
        engine, sides = MadeUpEngine(store), store.sides
        super().__init__(URL, engine, sides, clock=desk.time.clock)
        self.before_release: Look = lambda names: None
        self.after_release: Look = lambda names: None
        self.withdrawn: list[str] = []
        self.asked: list[tuple[str, tuple[str, ...]]] = []

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self.withdrawn.append(claim_key)
        super().withdraw(claim_key, why)

    def release(  # type: ignore[override]
        self, claim_key: str, names: Sequence[str], *, by: ReleasedBy = "command"
    ) -> Iterator[str]:
        self.asked.append((claim_key, tuple(names)))
        for name in names:
            self.before_release([name])
            freed = tuple(super().release(claim_key, [name], by=by))
            self.after_release([name])
            yield from freed
        if not names:
            self.before_release([])
            yield from super().release(claim_key, [], by=by)


def change_kind(monkeypatch: pytest.MonkeyPatch, **facts: bool) -> None:
    """Change facts of the made-up server's class."""
    for name, value in facts.items():
        monkeypatch.setattr(MadeUpBackend, name, value)


@pytest.fixture
def server(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server with a pool T of three."""
    store = MadeUpStore(desk.time.clock)
    store.pools.create_pool("T", NAMES)
    server = Server(store, desk)
    register_made_up(monkeypatch)
    monkeypatch.setattr(MadeUpBackend, "open", lambda context, state, lost: server)
    return server
