"""What all crash tests need."""

from __future__ import annotations

import pytest

from tests.crash.sweeping import EVERY_KILL
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.hosts import hosts as hosts
from tests.kit.marks import marked_below, once_below

_mark_once = once_below(__file__)
_mark_long = marked_below(__file__, pytest.mark.timeout(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They sweep for minutes, on a third of the events on each Python; for long on all of them."""
    _mark_once(items)
    if EVERY_KILL:
        _mark_long(items)
