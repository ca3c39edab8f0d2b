"""A `Desk` without a keeper: tests do themselves what it would do."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.state import keeper_process
from tests.kit.desk import Desk
from tests.kit.support import ManualClock


@pytest.fixture
def desk(
    state_dir: Path, manual_clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Desk]:
    monkeypatch.setattr(keeper_process, "ensure", lambda state: None)
    desk = Desk(state_dir, manual_clock)
    yield desk
    desk.close()
