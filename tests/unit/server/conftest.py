"""One server for the tests of a module, and further ones for those that end theirs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Callable

import pytest

from tests.kit.serving import Serving
from tests.kit.support import Cli

_numbers = itertools.count()

NewPool = Callable[..., str]
Serve = Callable[..., Serving]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A server that the tests of a module share; each has pools of its own."""
    folder = tmp_path_factory.mktemp("shared")
    cli = Cli(folder / "state", folder)
    yield Serving(cli)
    cli.close()


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
