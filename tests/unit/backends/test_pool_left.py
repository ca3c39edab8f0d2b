"""What is released of a request that nobody waits for any more: its tickets, and why they go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from leasectl.backends.pool.backend import PoolBackend
from leasectl.engines.contract import Engine
from leasectl.engines.pool_admin import Sides
from leasectl.model import ReleasedBy
from leasectl.system.clock import Clock


class _Engine:
    """One that only notes what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def withdraw(self, claim_key: str, why: str = "") -> None:
        self.told.append(("withdraw", claim_key, why))

    def free(self, claim_key: str, names: Sequence[str] | None = None, **more: Any) -> tuple[str]:
        self.told.append(("free", claim_key, *(names or ()), more["by"]))
        return ("a",)


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("guard", "its process ended"),
        ("run", "its process ended"),
        ("delay", "its server didn't answer"),
        ("command", "its server didn't answer"),
    ],
)
def test_on_a_server_tickets_go_first_and_say_why(by: ReleasedBy, why: str) -> None:
    engine = _Engine()
    backend = PoolBackend("x:", cast(Engine, engine), cast(Sides, None), clock=Clock(), remote=True)
    assert backend.release("k/1", (), by=by) == ("a",)
    assert engine.told == [("withdraw", "k/1", why), ("free", "k/1", by)]
    engine.told.clear()
    backend.release("k/1", ("a",), by=by)
    assert engine.told == [("free", "k/1", "a", by)]
