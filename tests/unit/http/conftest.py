"""What is true of all tests of HTTP."""

from __future__ import annotations

from tests.kit.marks import once_below
from tests.kit.peculiar import serve as serve

# What they do as whole commands, other tests run on every Python.
pytest_collection_modifyitems = once_below(__file__)
