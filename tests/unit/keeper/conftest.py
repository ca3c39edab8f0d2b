"""What tests of the keeper's parts work on; whole processes have a state directory of their own."""

from __future__ import annotations

import pytest

from tests.kit.desk import desk as desk
from tests.kit.marks import marked_below
from tests.kit.support import Cli

# What a process in the background meets differs between Pythons.
pytest_collection_modifyitems = marked_below(__file__, pytest.mark.processes)


@pytest.fixture
def cli(cli: Cli) -> Cli:
    """One whose keeper is a program of its own, as people have it."""
    cli.forks_keeper = False
    return cli
