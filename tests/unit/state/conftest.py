"""The state directory that tests of what is in one look at, in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from leasectl.state.directory import State


@pytest.fixture
def state(state_dir: Path) -> Iterator[State]:
    """A new one, open."""
    with contextlib.closing(State.open(str(state_dir))) as state:
        yield state
