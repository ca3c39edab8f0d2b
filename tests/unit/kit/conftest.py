"""What is true of all tests of the tests' own kit."""

from __future__ import annotations

from tests.kit.ended import nothing_runs_on as nothing_runs_on
from tests.kit.marks import once_below

# They test the tests, not what runs on every Python.
pytest_collection_modifyitems = once_below(__file__)
