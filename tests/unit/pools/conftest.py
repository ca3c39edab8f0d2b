"""A service on the embedded pool, for verbs that any engine can be under."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import LOCAL, Context
from leasectl.leases.service import Service
from leasectl.state.directory import State
from tests.kit.support import ManualClock


@pytest.fixture
def service(state_dir: Path, manual_clock: ManualClock) -> Iterator[Service]:
    state = State.open(str(state_dir))
    context = Context(LOCAL, caller=Caller("test@host", "host"), clock=manual_clock.clock)
    service = Service(state, context)
    service.pools.create_pool("A", ["a-1", "a-2"])
    service.pools.create_pool("B", ["b-1"])
    yield service
    state.close()
