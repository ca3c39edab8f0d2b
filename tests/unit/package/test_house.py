"""docs/house.md: the map shows every folder there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import leasectl

# What is written is the same on every Python.
pytestmark = pytest.mark.once

PACKAGE = Path(leasectl.__file__).parent
MAP = Path(__file__).parents[3] / "docs" / "house.md"


def test_the_map_shows_every_folder() -> None:
    shown = re.findall(r"^\| `([\w/]+/)` \|", MAP.read_text(encoding="utf-8"), re.MULTILINE)
    there = [path.parent.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*/__init__.py")]
    assert sorted(shown) == sorted(["leasectl/", *(f"{name}/" for name in there)])
