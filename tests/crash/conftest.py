"""What all crash tests need."""

from __future__ import annotations

from tests.kit.forking import nothing_runs_on as nothing_runs_on
from tests.kit.hosts import hosts as hosts
from tests.kit.marks import once_below

# They sweep for minutes, on a third of the events on each Python.
pytest_collection_modifyitems = once_below(__file__)
