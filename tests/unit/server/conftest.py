"""One server for the tests of a module, and further ones for those that end theirs."""

from __future__ import annotations

import itertools

import pytest

from tests.kit.marks import once_below
from tests.kit.serving import Serve, Serving
from tests.kit.serving import shared as shared
from tests.kit.support import Cli

_numbers = itertools.count()

# Long, and what differs between Pythons is in its clients' commands, which run on each.
pytest_collection_modifyitems = once_below(__file__)


@pytest.fixture
def pool(shared: Serving) -> str:
    """The type of a new pool of two resources behind the shared server."""
    pool_type = f"T{next(_numbers)}"
    shared.cli.pool(pool_type)
    return pool_type


@pytest.fixture
def single(shared: Serving) -> str:
    """The type of a new pool of one resource behind the shared server."""
    pool_type = f"S{next(_numbers)}"
    shared.cli.pool(pool_type, f"{pool_type}--00")
    return pool_type


@pytest.fixture
def serve(cli: Cli) -> Serve:
    """Start servers on the test's own state directory."""
    return lambda *options, **more: Serving(cli, *options, **more)
