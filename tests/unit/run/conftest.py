"""What tests of the parts of `run` work on; whole processes have a state directory of their own."""

from __future__ import annotations

import pytest

from tests.kit.desk import desk as desk
from tests.kit.marks import marked_below

# What a child and a signal do differs between Pythons.
pytest_collection_modifyitems = marked_below(__file__, pytest.mark.processes)
