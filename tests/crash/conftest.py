"""What all crash tests need."""

from __future__ import annotations

import pytest

from tests.kit.fork_server import load_everything
from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.hosts import hosts as hosts
from tests.kit.killing import EVERY_KILL
from tests.kit.kubernetes.hosts import kubernetes_hosts as kubernetes_hosts
from tests.kit.marks import marked_below, once_below

_mark_once = once_below(__file__)
_mark_long = marked_below(__file__, pytest.mark.timeout(0 if EVERY_KILL else 900))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """They sweep on a share of the events; with `EVERY_KILL` on all of them."""
    _mark_once(items)
    _mark_long(items)


@pytest.fixture(scope="session", autouse=True)
def everything_loaded() -> None:
    """What a test forks loads nothing: a kill while it imports would show nothing."""
    load_everything()
