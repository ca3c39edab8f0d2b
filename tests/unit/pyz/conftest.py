"""What is true of all tests of the pyz."""

from __future__ import annotations

from tests.kit.marks import once_below

# They run it on every Python by themselves.
pytest_collection_modifyitems = once_below(__file__)
