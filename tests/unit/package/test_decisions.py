"""docs/decisions.md: the index has every decision once, and says which was replaced by which."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

# What is written is the same on every Python.
pytestmark = pytest.mark.once

TEXT = (Path(__file__).parents[3] / "docs" / "decisions.md").read_text(encoding="utf-8")
TITLES = re.findall(r"^## \d{4}-\d\d-\d\d: (.+)$", TEXT, re.MULTILINE)
INDEX = re.findall(
    r"^  - (.+?)(?: \(replaced by: (.+)\))?$",
    TEXT.split("## Index\n")[1].split("\n## ")[0],
    re.MULTILINE,
)


def test_the_index_has_every_decision_once() -> None:
    assert TITLES
    assert sorted(title for title, _ in INDEX) == sorted(TITLES)


def test_what_replaced_a_decision_is_a_later_one() -> None:
    replaced = [(title, by) for title, by in INDEX if by]
    assert replaced
    # Newest first.
    assert all(TITLES.index(by) < TITLES.index(title) for title, by in replaced)
