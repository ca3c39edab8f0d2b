"""docs/words.md: one thing, one word; the names in the code are held against its tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import leasectl

# What is written is the same on every Python.
pytestmark = pytest.mark.once

PACKAGE = Path(leasectl.__file__).parent
WORDS = Path(__file__).parents[3] / "docs" / "words.md"
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")


def rows(heading: str) -> list[tuple[str, str]]:
    """The rows of the table below a heading of docs/words.md: what stands in its two columns."""
    section = WORDS.read_text(encoding="utf-8").split(f"## {heading}\n")[1].split("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [(first.strip(), second.strip()) for first, second in cells[2:]]


def parts(name: str) -> set[str]:
    """The words that a name is made of, in the singular."""
    words = {part.lower() for part in _PART.findall(name)}
    return words | {word[:-1] for word in words if word.endswith("s")}


def named_in(source: str) -> Iterator[str]:
    """The names of the classes and functions that a module defines, methods included."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name


def names_of(path: Path) -> list[str]:
    return [path.stem, path.parent.name, *named_in(path.read_text(encoding="utf-8"))]


MODULES = sorted(PACKAGE.rglob("*.py"))


@cache
def classes() -> dict[str, set[str]]:
    """The modules that define a class of a name, an underline before it left out."""
    found: dict[str, set[str]] = {}
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                where = path.relative_to(PACKAGE.parent).as_posix()
                found.setdefault(node.name.lstrip("_"), set()).add(where)
    return found


UNUSED = {word for word, _ in rows("Words that no name has")}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_name_has_a_word_that_was_given_up(path: Path) -> None:
    assert {name: parts(name) & UNUSED for name in names_of(path) if parts(name) & UNUSED} == {}


def test_a_word_that_was_given_up_would_be_noticed() -> None:
    source = "class EtcdEar:\n    def hush(self):\n        def _send_heartbeats(): pass\n"
    found = [parts(name) & UNUSED for name in named_in(source)]
    assert found == [{"ear"}, {"hush"}, {"heartbeat"}]


@pytest.mark.parametrize(("word", "where"), rows("Words that only one name has"))
def test_a_word_for_one_thing_is_one_class(word: str, where: str) -> None:
    (path,) = classes()[word]
    assert path.startswith(where.strip("`"))


@pytest.mark.parametrize("heading", ["What users read", "Inside"])
def test_a_table_has_each_word_once(heading: str) -> None:
    words = [word for word, _ in rows(heading)]
    assert words
    assert len(words) == len(set(words))
