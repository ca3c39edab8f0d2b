"""Marks for all tests of a folder, set by its own conftest.py."""

from __future__ import annotations

from pathlib import Path
from typing import Callable

import pytest


def once_below(conftest: str) -> Callable[[list[pytest.Item]], None]:
    """What marks a folder's tests `once`: to be run on one Python, not on each again."""
    return marked_below(conftest, pytest.mark.once)


def marked_below(conftest: str, mark: pytest.MarkDecorator) -> Callable[[list[pytest.Item]], None]:
    """What marks a folder's tests.

    Args:
        conftest: The ``__file__`` of the folder's conftest.py, which binds what is returned to the
            name ``pytest_collection_modifyitems``. pytest hands that all tests there are.
        mark: One of those in tox.ini.
    """
    below = f"{Path(conftest).parent}/"  # as text: of ten thousand tests, for each such folder

    def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
        for item in items:
            if str(item.path).startswith(below):
                item.add_marker(mark)

    return pytest_collection_modifyitems
