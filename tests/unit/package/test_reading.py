"""docs/reading.md: the walks through the code lead along what there is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

# What is written is the same on every Python.
pytestmark = pytest.mark.once

ROOT = Path(__file__).parents[3]
READING = ROOT / "docs" / "reading.md"
# A step names a file of the package and what to read in it: `leasectl/x/y.py`: `Class.method`
_STEP = re.compile(r"`(leasectl/[\w/]+\.py)`: ((?:`[\w.]+`(?:, )?)+)")


def steps() -> list[tuple[str, str]]:
    """Each file, with each name that a walk says is in it."""
    text = " ".join(READING.read_text(encoding="utf-8").split())
    return [
        (path, name)
        for path, names in _STEP.findall(text)
        for name in re.findall(r"`([\w.]+)`", names)
    ]


def defined_in(path: Path) -> set[str]:
    """The classes, functions and constants of a module, and the methods as ``Class.method``."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef))
            }
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {each.id for each in targets if isinstance(each, ast.Name)}
    return found


@pytest.mark.parametrize(("path", "name"), steps())
def test_what_a_walk_names_is_there(path: str, name: str) -> None:
    assert (ROOT / path).is_file()
    assert name in defined_in(ROOT / path)


def test_there_are_four_walks_of_some_length() -> None:
    walks = READING.read_text(encoding="utf-8").split("\n## ")[1:]
    assert len(walks) == 4
    assert all(len(_STEP.findall(" ".join(walk.split()))) >= 8 for walk in walks)


def test_every_file_that_a_walk_names_is_a_step() -> None:
    text = READING.read_text(encoding="utf-8")
    named = set(re.findall(r"leasectl/[\w/]+\.py", text))
    assert named == {path for path, _ in steps()}
